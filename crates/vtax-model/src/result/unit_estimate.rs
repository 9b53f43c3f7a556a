//! Estimates that carry their unit.

use super::Estimate;
use crate::metric::FigureUnit;

/// An estimate, convertible only to other units of its quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnitEstimate {
    estimate: Estimate,
    unit: FigureUnit,
}

impl UnitEstimate {
    /// Combines an estimate and its unit.
    pub fn new(estimate: Estimate, unit: FigureUnit) -> UnitEstimate {
        UnitEstimate { estimate, unit }
    }

    /// Converts it to another unit; none if that unit is of another quantity.
    pub fn converted_to(&self, unit: FigureUnit) -> Option<Estimate> {
        let Estimate { mean, median, low, high, n } = self.estimate;
        let factor = self.unit.factor(unit)?;
        let [low, high] = [low, high].map(|end| end.map(|end| end * factor));
        Some(Estimate { mean: mean * factor, median: median * factor, low, high, n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_same_in_each_unit_of_its_quantity_and_none_in_others() {
        let estimate = Estimate { mean: 2.5, median: 2.0, low: Some(1.5), high: None, n: 4 };
        let cost = UnitEstimate::new(estimate, FigureUnit::MicrosecondsPerKb);
        let in_ns = Estimate { mean: 2500.0, median: 2000.0, low: Some(1500.0), high: None, n: 4 };
        assert_eq!(cost.converted_to(FigureUnit::NanosecondsPerKb), Some(in_ns));
        assert_eq!(cost.converted_to(FigureUnit::MicrosecondsPerKb), Some(estimate));
        assert_eq!(cost.converted_to(FigureUnit::Microseconds), None);
    }
}
