//! Estimates of a cell's figures, each under its name in the table of figures.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::Estimate;
use crate::metric::SampleFigure;

/// Estimates by figure; unknown figures are missing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FigureEstimates(BTreeMap<SampleFigure, Estimate>);

impl FigureEstimates {
    pub fn get(&self, figure: SampleFigure) -> Option<Estimate> {
        self.0.get(&figure).copied()
    }
}

impl FromIterator<(SampleFigure, Estimate)> for FigureEstimates {
    fn from_iter<T: IntoIterator<Item = (SampleFigure, Estimate)>>(estimates: T) -> FigureEstimates {
        FigureEstimates(BTreeMap::from_iter(estimates))
    }
}

impl Serialize for FigureEstimates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(figure, estimate)| (figure.name(), estimate)))
    }
}

impl<'de> Deserialize<'de> for FigureEstimates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FigureEstimates, D::Error> {
        deserializer.deserialize_map(Known)
    }
}

/// Accepts names of figures. A newer vtax may have written others.
struct Known;

impl<'de> Visitor<'de> for Known {
    type Value = FigureEstimates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("estimates by the names of figures")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FigureEstimates, A::Error> {
        let mut estimates = FigureEstimates::default();
        while let Some(name) = fields.next_key::<String>()? {
            let figure = SampleFigure::named(&name).filter(|figure| figure.is_told_alone());
            let Some(figure) = figure else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            if let Some(estimate) = fields.next_value()? {
                estimates.0.insert(figure, estimate);
            }
        }
        Ok(estimates)
    }
}
