//! Suspects, measured again with cleared ends.

use std::collections::BTreeSet;

use rand::{SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use vtax_stats::{Confidence, median};

use super::{EndStanding, RailFit, Slowness};
use crate::{
    campaign::StagedPairs,
    sample::{EndId, MeshSample, MeshStage},
};

/// Tests of a suspect with cleared ends if there are few suspects.
const TESTS: usize = 12;
/// Tests beyond those that would decide if all were slow: some are disturbed.
const SPARE: usize = 4;
/// Pairs of cleared ends that are measured concurrently.
const CONTROLS: usize = 4;
/// With fewer new values, the result is inconclusive.
const FEWEST: usize = 4;
/// Share of meshes in which all suspects are fast but one is slow again by chance.
const LEVEL: f64 = 0.05;

/// Result of measuring a suspect again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Again {
    Slow(Slowness),
    Fast(Slowness),
    /// Too few of these tests succeeded.
    NotMeasured,
}

impl Again {
    /// Judges the new tests of a suspect, one of `suspects`.
    pub(crate) fn of(rail: &RailFit, suspect: &EndStanding, samples: &[MeshSample], suspects: usize) -> Again {
        let values = new_values(rail, suspect, samples);
        let level = Confidence::try_from(100.0 * (1.0 - 2.0 * LEVEL / suspects.max(1) as f64).max(0.8));
        let (Ok(level), true) = (level, values.len() >= FEWEST) else { return Again::NotMeasured };
        match (Slowness::of(&values, level), Slowness::of(&values, Confidence::P95)) {
            (Some(judged), Some(shown)) if judged.low > 0.0 && -median(&values) >= rail.least => Again::Slow(shown),
            (_, Some(shown)) => Again::Fast(shown),
            (_, None) => Again::NotMeasured,
        }
    }

    pub(crate) fn is_slow(self) -> bool {
        !matches!(self, Again::Fast(_))
    }
}

/// Returns the part of the new rates that partners leave unexplained, minus the change of the whole fleet in the
/// meantime.
fn new_values(rail: &RailFit, suspect: &EndStanding, samples: &[MeshSample]) -> Vec<f64> {
    let direction = suspect.direction;
    let of_stage = |stage: MeshStage| samples.iter().filter(move |sample| sample.stage == stage);
    let controls: Vec<f64> = of_stage(MeshStage::Controls).filter_map(|sample| rail.residual(sample)).collect();
    let fleet = if controls.is_empty() { 0.0 } else { median(&controls) };
    let value = |sample: &MeshSample| {
        let [end, partner] = direction.ends(sample);
        let of_partner = rail.effect(partner, direction.other())?;
        (end == suspect.end).then_some(rail.log_speed(sample)? - rail.overall - of_partner - fleet)
    };
    of_stage(MeshStage::Suspects).filter_map(value).collect()
}

/// The rounds in which each suspect of a rail is measured with different cleared ends.
pub(super) fn rounds(rail: &RailFit, lost: &BTreeSet<EndId>) -> Vec<StagedPairs> {
    let there = |end: &EndId| !lost.contains(end);
    let suspects: BTreeSet<EndId> = rail.suspects().iter().map(|suspect| suspect.end).filter(there).collect();
    let suspects: Vec<EndId> = suspects.into_iter().collect();
    let mut cleared: Vec<EndId> = rail.cleared().into_iter().filter(there).collect();
    cleared.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(rail.seed));
    if suspects.is_empty() || cleared.len() < 2 {
        return Vec::new();
    }
    // With few partners, each is used several times.
    (0..tests_of(suspects.len())).map(|number| round(&suspects, &cleared, number)).collect()
}

/// The number of tests per suspect. The signed-rank test of n values has no probability below 2^-n.
fn tests_of(suspects: usize) -> usize {
    let decisive = (suspects as f64 / LEVEL).log2().ceil() as usize;
    TESTS.max(decisive + SPARE)
}

fn round(suspects: &[EndId], cleared: &[EndId], number: usize) -> StagedPairs {
    let partner = |place: usize| cleared[(place + number) % cleared.len()];
    let pairs = suspects.iter().enumerate().map(|(place, suspect)| (MeshStage::Suspects, [*suspect, partner(place)]));
    // The next ones on the circle have no suspect in this round.
    let free = cleared.len().saturating_sub(suspects.len()) / 2;
    let control = |nth: usize| [partner(suspects.len() + 2 * nth), partner(suspects.len() + 2 * nth + 1)];
    let controls = (0..free.min(CONTROLS)).map(|nth| (MeshStage::Controls, control(nth)));
    pairs.chain(controls).collect()
}
