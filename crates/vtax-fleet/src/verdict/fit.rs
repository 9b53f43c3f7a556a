//! The fit of one rail, and the standing of each end in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_stats::{MedianPolish, RobustScale, TableCell, error_of_median, median};

use crate::{
    aim::{Share, suspicion},
    header::MeshHeader,
    name::FleetName,
    pair_test::PairTestKind,
    sample::{EndId, MeshSample},
};

/// The direction of an end's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeshDirection {
    Sends,
    Receives,
}

impl MeshDirection {
    pub const BOTH: [MeshDirection; 2] = [MeshDirection::Sends, MeshDirection::Receives];

    /// Returns the end of a sample that has this direction, and the other end.
    pub(crate) fn ends(self, sample: &MeshSample) -> [EndId; 2] {
        let pair = sample.pair;
        match self {
            MeshDirection::Sends => [pair.from, pair.to],
            MeshDirection::Receives => [pair.to, pair.from],
        }
    }

    pub(crate) fn other(self) -> MeshDirection {
        match self {
            MeshDirection::Sends => MeshDirection::Receives,
            MeshDirection::Receives => MeshDirection::Sends,
        }
    }
}

/// An end in one direction, compared with the others of its rail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndStanding {
    pub(crate) end: EndId,
    pub(crate) direction: MeshDirection,
    /// Logarithm of the speed with each partner, less what the partner explains and less the fleet's.
    pub(crate) values: Vec<f64>,
    /// Their median.
    pub(crate) effect: f64,
    pub(crate) score: f64,
    pub(crate) is_suspect: bool,
}

/// Standing of the ends of one rail in the rounds.
#[derive(Debug, Clone)]
pub(crate) struct RailFit {
    pub(crate) kind: PairTestKind,
    /// Logarithm of the speed of two usual ends.
    pub(crate) overall: f64,
    /// Scale of the residuals: the noise of one test.
    pub(crate) noise: f64,
    pub(crate) standings: BTreeMap<(EndId, MeshDirection), EndStanding>,
    /// Smallest slowness that is named, as a fall of the logarithm.
    pub(crate) least: f64,
    pub(crate) seed: u64,
}

impl RailFit {
    /// Fits each rail that has samples.
    pub(crate) fn of_rails(header: &MeshHeader, samples: &[MeshSample]) -> Vec<RailFit> {
        let mut rails: BTreeMap<Option<&FleetName>, Vec<&MeshSample>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.stage.is_of_rounds()) {
            rails.entry(header.ends[sample.pair.from.0].nic.rail.as_ref()).or_default().push(sample);
        }
        rails.into_values().filter_map(|samples| RailFit::of(header, &samples)).collect()
    }

    fn of(header: &MeshHeader, samples: &[&MeshSample]) -> Option<RailFit> {
        let kind = header.test.kind;
        let speeds: Vec<(&MeshSample, f64)> =
            samples.iter().filter_map(|sample| Some((*sample, sample.log_speed(kind)?))).collect();
        let cell = |(sample, value): &(&MeshSample, f64)| TableCell {
            row: sample.pair.from.0,
            column: sample.pair.to.0,
            value: *value,
        };
        let polish = MedianPolish::of(&speeds.iter().map(cell).collect::<Vec<_>>()).ok()?;
        let noise = RobustScale::of(&polish.residuals)?.scale;
        let least = Share::try_from(header.show).unwrap_or(Share::TENTH).log() / 2.0;
        let standings = BTreeMap::new();
        let mut fit = RailFit { kind, overall: polish.overall, noise, standings, least, seed: header.seed };
        for direction in MeshDirection::BOTH {
            let values = explained(&polish, &speeds, direction);
            fit.rank(direction, values, header.ends.len());
        }
        Some(fit)
    }

    /// Compares the ends of a direction with each other.
    fn rank(&mut self, direction: MeshDirection, values: BTreeMap<EndId, Vec<f64>>, all_ends: usize) {
        let effects: Vec<f64> = values.values().map(|values| median(values)).collect();
        let counts: Vec<f64> = values.values().map(|values| values.len() as f64).collect();
        let Some(scale) = RobustScale::of(&effects) else { return };
        // The scale of few ends may be small by chance, but not below what the noise of their tests explains.
        let scale = scale.at_least(error_of_median(self.noise, median(&counts) as u32));
        let threshold = suspicion(values.len(), all_ends).threshold();
        for ((end, mut values), effect) in values.into_iter().zip(effects) {
            let score = scale.score(effect);
            let effect = effect - scale.centre;
            values.iter_mut().for_each(|value| *value -= scale.centre);
            let is_suspect = score < -threshold && -effect >= self.least;
            let standing = EndStanding { end, direction, values, effect, score, is_suspect };
            self.standings.insert((end, direction), standing);
        }
    }

    pub(crate) fn suspects(&self) -> Vec<&EndStanding> {
        self.standings.values().filter(|standing| standing.is_suspect).collect()
    }

    /// Returns the ends of the rail that aren't slow in either direction.
    pub(crate) fn cleared(&self) -> Vec<EndId> {
        let is_fast = |end: EndId| {
            MeshDirection::BOTH.iter().all(|way| self.standings.get(&(end, *way)).is_some_and(|own| !own.is_suspect))
        };
        let of_rail = self.standings.keys().filter(|(_, direction)| *direction == MeshDirection::Sends);
        of_rail.map(|(end, _)| *end).filter(|end| is_fast(*end)).collect()
    }

    pub(crate) fn effect(&self, end: EndId, direction: MeshDirection) -> Option<f64> {
        Some(self.standings.get(&(end, direction))?.effect)
    }

    /// Returns the part that neither end of a sample explains.
    pub(crate) fn residual(&self, sample: &MeshSample) -> Option<f64> {
        Some(self.log_speed(sample)? - self.expected(sample)?)
    }

    /// Returns the logarithm of a sample's speed.
    pub(crate) fn log_speed(&self, sample: &MeshSample) -> Option<f64> {
        sample.log_speed(self.kind)
    }

    /// Returns the logarithm of the speed that both ends of a sample explain.
    pub(crate) fn expected(&self, sample: &MeshSample) -> Option<f64> {
        let of = |direction: MeshDirection| self.effect(direction.ends(sample)[0], direction);
        Some(self.overall + of(MeshDirection::Sends)? + of(MeshDirection::Receives)?)
    }
}

/// The values of each end: without the fleet's level and the effect of the partner.
fn explained(
    polish: &MedianPolish,
    speeds: &[(&MeshSample, f64)],
    direction: MeshDirection,
) -> BTreeMap<EndId, Vec<f64>> {
    let partners = match direction {
        MeshDirection::Sends => &polish.columns,
        MeshDirection::Receives => &polish.rows,
    };
    let mut values: BTreeMap<EndId, Vec<f64>> = BTreeMap::new();
    for (sample, speed) in speeds {
        let [end, partner] = direction.ends(sample);
        let of_partner = partners[partner.0].unwrap_or_default();
        values.entry(end).or_default().push(speed - polish.overall - of_partner);
    }
    values
}
