//! Hosts whose tests vary much more than those of others, though their median isn't slow.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_stats::{OutlierTest, RobustScale};

use super::MeshVerdict;
use crate::{aim::FALSE_ALARMS, sample::EndId};

/// Ratio of an end's spread to the fleet's from which it is named.
const FACTOR: f64 = 3.0;
/// Lower bound of a fleet's spread: 0.1 %.
const LEAST: f64 = 1e-3;
/// With fewer tests, a spread is meaningless.
const FEWEST: usize = 8;

/// A host whose rates vary from test to test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unstable {
    pub end: ForeignText,
    /// Standard deviation of its tests, as a share of the rate.
    pub spread: f64,
    /// The same for the fleet.
    pub of_fleet: f64,
    pub tests: usize,
}

/// The unstable ends that are not slow.
pub(super) fn found(verdict: &MeshVerdict<'_>, slow: &BTreeSet<EndId>) -> Vec<Unstable> {
    let mut residuals: BTreeMap<EndId, Vec<f64>> = BTreeMap::new();
    for rail in &verdict.rails {
        for sample in verdict.samples.iter().filter(|sample| sample.stage.is_of_rounds()) {
            let Some(residual) = rail.residual(sample) else { continue };
            for end in [sample.pair.from, sample.pair.to] {
                residuals.entry(end).or_default().push(residual);
            }
        }
    }
    residuals.retain(|_, of_end| of_end.len() >= FEWEST);
    let spread = |of_end: &Vec<f64>| RobustScale::of(of_end).map_or(LEAST, |found| found.scale.max(LEAST));
    let spreads: Vec<f64> = residuals.values().map(|of_end| spread(of_end).ln()).collect();
    let Some(fleet) = RobustScale::of(&spreads) else { return Vec::new() };
    let threshold = OutlierTest::new(spreads.len(), spreads.len(), FALSE_ALARMS).threshold();
    // Differences too small to be named as slow are too small to be named as unstable.
    let least = verdict.rails.iter().map(|rail| rail.least).fold(f64::INFINITY, f64::min);
    let is_unstable =
        |spread: f64| fleet.score(spread) > threshold && spread - fleet.centre > FACTOR.ln() && spread.exp() >= least;
    let ends = residuals.iter().zip(&spreads).filter(|((end, _), spread)| is_unstable(**spread) && !slow.contains(end));
    let named = ends.map(|((end, of_end), spread)| Unstable {
        end: verdict.header.name(*end).clone(),
        spread: spread.exp(),
        of_fleet: fleet.centre.exp(),
        tests: of_end.len(),
    });
    named.collect()
}
