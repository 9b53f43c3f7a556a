//! Pairs that are slower than their two ends explain: a slow path between them, or one of several.
//!
//! Some tests of any fleet are disturbed, so one slow test says nothing. The most doubtful pairs are tested again, and
//! named if more of these tests were slow than the share of slow tests in the whole fleet explains.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_stats::median;

use super::{MeshVerdict, RailFit};
use crate::{
    aim::Share,
    campaign::StagedPairs,
    sample::{DirectedPair, EndId, MeshSample, MeshStage},
    schedule::EndPair,
};

/// Tests of each doubtful pair.
const TESTS: usize = 6;
/// Ends per pair that is tested again; more pairs would take longer than the rounds.
const ENDS_PER_PAIR: usize = 10;
const FEWEST_PAIRS: usize = 5;
/// Residuals beyond this multiple of the noise are slow.
const SLOW: f64 = 5.0;
/// Share of meshes in which a pair is named though its tests are no more often slow than all tests.
const LEVEL: f64 = 0.05;
/// Assumed share of slow tests if fewer were seen.
const LEAST_SHARE: f64 = 0.01;

/// A pair that is slower than its ends are with others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowPair {
    pub from: ForeignText,
    pub to: ForeignText,
    /// Share by which its slow source ports are slower than its ends are with others.
    pub slower: f64,
    /// Source ports that were slow when the pair was tested again. If these are only some of them, one of several paths
    /// is slow.
    pub slow_ports: usize,
    /// All source ports of these tests.
    pub ports: usize,
}

/// The fall below the expected rate from which a source port counts as slow.
fn slow_below(rail: &RailFit) -> f64 {
    (SLOW * rail.noise).max(rail.least)
}

/// Returns the part of each source port's speed that both ends leave unexplained.
fn port_residuals(rail: &RailFit, sample: &MeshSample) -> Vec<f64> {
    let Some(expected) = rail.expected(sample) else { return Vec::new() };
    sample.values.iter().filter_map(|value| Some(rail.kind.log_speed(*value)? - expected)).collect()
}

fn slowest_port(rail: &RailFit, sample: &MeshSample) -> Option<f64> {
    port_residuals(rail, sample).into_iter().reduce(f64::min)
}

/// The doubtful pairs, the slowest first.
fn doubtful(verdict: &MeshVerdict<'_>) -> Vec<DirectedPair> {
    let of_rounds = || verdict.samples.iter().filter(|sample| sample.stage.is_of_rounds());
    let mut found: Vec<(f64, DirectedPair)> = Vec::new();
    for rail in &verdict.rails {
        let suspects: BTreeSet<EndId> = rail.suspects().iter().map(|suspect| suspect.end).collect();
        let is_of_suspect = |pair: DirectedPair| [pair.from, pair.to].iter().any(|end| suspects.contains(end));
        let slow = of_rounds().filter(|sample| !is_of_suspect(sample.pair)).filter_map(|sample| {
            let residual = slowest_port(rail, sample)?;
            (residual < -slow_below(rail)).then_some((residual, sample.pair))
        });
        found.extend(slow);
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found.truncate((verdict.header.ends.len() / ENDS_PER_PAIR).max(FEWEST_PAIRS));
    found.into_iter().map(|(_, pair)| pair).collect()
}

/// The rounds in which the doubtful pairs are tested again.
pub(super) fn rounds(verdict: &MeshVerdict<'_>, lost: &BTreeSet<EndId>) -> Vec<StagedPairs> {
    let both_there = |pair: &EndPair| pair.iter().all(|end| !lost.contains(end));
    let sorted = |pair: DirectedPair| [pair.from.min(pair.to), pair.from.max(pair.to)];
    let pairs: BTreeSet<EndPair> = doubtful(verdict).into_iter().map(sorted).filter(both_there).collect();
    let round: StagedPairs = pairs.into_iter().map(|pair| (MeshStage::Pairs, pair)).collect();
    if round.is_empty() { Vec::new() } else { vec![round; TESTS] }
}

/// The pairs that were slow again in more tests than chance explains.
pub(super) fn found(verdict: &MeshVerdict<'_>) -> Vec<SlowPair> {
    let mut again: BTreeMap<DirectedPair, Vec<&MeshSample>> = BTreeMap::new();
    for sample in verdict.samples.iter().filter(|sample| sample.stage == MeshStage::Pairs) {
        again.entry(sample.pair).or_default().push(sample);
    }
    let count = again.len();
    let mut found = Vec::new();
    for rail in &verdict.rails {
        let share = share_of_slow(rail, verdict.samples);
        let of_rail = again.iter().filter_map(|(pair, samples)| judge(verdict, rail, *pair, samples, share, count));
        found.extend(of_rail);
    }
    found
}

/// The share of all tests of the rounds that were slow.
fn share_of_slow(rail: &RailFit, samples: &[MeshSample]) -> f64 {
    let of_rounds = samples.iter().filter(|sample| sample.stage.is_of_rounds());
    let slowest: Vec<f64> = of_rounds.filter_map(|sample| slowest_port(rail, sample)).collect();
    let slow = slowest.iter().filter(|residual| **residual < -slow_below(rail)).count();
    (slow as f64 / slowest.len().max(1) as f64).max(LEAST_SHARE)
}

fn judge(
    verdict: &MeshVerdict<'_>,
    rail: &RailFit,
    pair: DirectedPair,
    samples: &[&MeshSample],
    share: f64,
    count: usize,
) -> Option<SlowPair> {
    let limit = usual_residual(rail, verdict.samples, pair) - slow_below(rail);
    let tests: Vec<f64> = samples.iter().filter_map(|sample| slowest_port(rail, sample)).collect();
    let slow_tests = tests.iter().filter(|residual| **residual < limit).count();
    let ports: Vec<f64> = samples.iter().flat_map(|sample| port_residuals(rail, sample)).collect();
    let slow: Vec<f64> = ports.iter().copied().filter(|residual| *residual < limit).collect();
    let by_chance = at_least(slow_tests, tests.len(), share);
    if slow_tests == 0 || by_chance > LEVEL / count.max(1) as f64 {
        return None;
    }
    let [from, to] = [pair.from, pair.to].map(|end| verdict.header.name(end).clone());
    let slower = Share::of_log(-median(&slow)).get();
    Some(SlowPair { from, to, slower, slow_ports: slow.len(), ports: ports.len() })
}

/// Usual residual of an end of the pair with its other partners, in all tests, if negative. The effects are fitted to
/// few tests of each end: if several of these were faster than usual, all later tests of that end seem slow.
fn usual_residual(rail: &RailFit, samples: &[MeshSample], pair: DirectedPair) -> f64 {
    let residual = |sample: &MeshSample| Some(rail.log_speed(sample)? - rail.expected(sample)?);
    let usual = |is_of_end: &dyn Fn(DirectedPair) -> bool| {
        let others = samples.iter().filter(|sample| sample.pair != pair && is_of_end(sample.pair));
        let residuals: Vec<f64> = others.filter_map(residual).collect();
        if residuals.is_empty() { 0.0 } else { median(&residuals) }
    };
    let [from, to] = [usual(&|other| other.from == pair.from), usual(&|other| other.to == pair.to)];
    from.min(to).min(0.0)
}

/// The binomial probability of at least `successes` in `trials`.
fn at_least(successes: usize, trials: usize, share: f64) -> f64 {
    let mut probability = vec![1.0];
    for _ in 0..trials {
        let fails = probability.iter().map(|before| before * (1.0 - share)).chain([0.0]);
        let succeeds = [0.0].into_iter().chain(probability.iter().map(|before| before * share));
        probability = fails.zip(succeeds).map(|(fails, succeeds)| fails + succeeds).collect();
    }
    probability.iter().skip(successes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schedule::MeshPlan,
        simulated::{header, named},
    };

    #[test]
    fn binomial_tails_match_hand_counts() {
        assert_eq!(at_least(0, 3, 0.5), 1.0);
        assert_eq!(at_least(2, 3, 0.5), 0.5);
        assert!((at_least(6, 6, 0.1) - 1e-6).abs() < 1e-12);
        assert_eq!(at_least(4, 3, 0.5), 0.0);
    }

    fn sample(stage: MeshStage, from: usize, to: usize, rate: f64) -> MeshSample {
        let pair = DirectedPair { from: EndId(from), to: EndId(to) };
        MeshSample { stage, wave: 0, pair, values: vec![rate], failure: None, lost: Vec::new() }
    }

    /// An end that was fast in most of its few rounds, e.g. behind a full token bucket, is later as fast as the others.
    /// All its pairs seemed slow then.
    #[test]
    fn an_end_that_was_fast_in_its_rounds_has_no_slow_pairs() {
        let ends = named(6, None);
        let header = header(&ends, &MeshPlan::new(&ends, None, 1), 0.1, 1);
        let all = (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to);
        let rate = |from: usize, to: usize| if from == 4 && to != 2 && to != 3 { 103e6 } else { 95.8e6 };
        let mut samples: Vec<MeshSample> =
            all.map(|(from, to)| sample(MeshStage::Rounds, from, to, rate(from, to))).collect();
        samples.extend((0..6).map(|_| sample(MeshStage::Controls, 4, 3, 95.8e6)));
        samples.extend((0..6).map(|_| sample(MeshStage::Pairs, 4, 0, 95.8e6)));
        let named = |samples: &[MeshSample]| found(&MeshVerdict::of(&header, samples)).len();
        assert_eq!(named(&samples), 0);
        samples.truncate(36);
        samples.extend((0..6).map(|_| sample(MeshStage::Pairs, 4, 0, 80e6)));
        assert_eq!(named(&samples), 1);
    }
}
