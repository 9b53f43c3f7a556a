//! Trial of the statistics: thousands of studies with known true values, evaluated with the functions of the tables.
//!
//! There are three guarantees, each for every number of samples that a study is likely to have, and for a machine that
//! is stable, fluctuates or drifts:
//!
//! * an interval of 95 % covers the true value in at least 93 % of 2,000 studies;
//! * a family of equal arms has a false alarm in at most 5 %;
//! * a difference of 5 % under 3 % of drift is found in at least 90 % with 18 rounds, and a detectable difference is
//!   shown in four of five (`trial/verdicts.rs`).
//!
//! The true ratio doesn't change on a machine that drifts. A true mean or percentile is that of the machine in the
//! measured rounds: five rounds can't predict its state tomorrow, as
//! [`a_mean_does_not_foresee_where_the_machine_wanders`] shows.

use std::sync::LazyLock;

use statrs::distribution::{ContinuousCDF, Normal};

use super::percentile_intervals;
use super::synthetic::{Draws, Drift, NoiseShape, OutcomeCounts, Rounds, SyntheticStudy};
use crate::histogram::Histogram;
use crate::{Confidence, PairedTax, Summary, student};

mod verdicts;

const DRAWS: u32 = 2_000;
const SAMPLES: [usize; 4] = [5, 11, 18, 30];
const DRIFTS: [Drift; 3] = [Drift::None, Drift::Around(0.03), Drift::Walk(0.03)];

/// Asserts `low <= truth <= high` in at least 93 % of the draws.
fn assert_holds(what: &str, held: &OutcomeCounts) {
    assert!(held.rate() >= 0.93, "{what}: {held:?}");
}

// The mean.

/// Returns samples of lognormal noise on a drifting machine, and their true mean.
fn mean_study(draws: &mut Draws, n: usize, noise: f64, drift: Drift) -> (Vec<f64>, f64) {
    let machine = draws.machine(n, drift);
    let samples = machine.iter().map(|level| (level + noise * draws.normal()).exp()).collect();
    let of_machine = match drift {
        Drift::None => 1.0,
        Drift::Around(sd) => (sd * sd / 2.0).exp(),
        Drift::Walk(_) => machine.iter().map(|level| level.exp()).sum::<f64>() / n as f64,
    };
    (samples, of_machine * (noise * noise / 2.0).exp())
}

fn mean_holds(samples: &[f64], truth: f64) -> bool {
    let spread = Summary::of(samples, Confidence::P95).unwrap().spread.unwrap();
    spread.low <= truth && truth <= spread.high
}

#[test]
fn the_mean_s_interval_holds_the_mean() {
    let mut draws = Draws::seeded(31);
    for (n, drift) in SAMPLES.into_iter().flat_map(|n| DRIFTS.map(|drift| (n, drift))) {
        for noise in [0.02, 0.1, 0.3] {
            let held = OutcomeCounts::of(DRAWS, || {
                let (samples, truth) = mean_study(&mut draws, n, noise, drift);
                mean_holds(&samples, truth)
            });
            assert_holds(&format!("mean, {n} samples, noise {noise}, {drift:?}"), &held);
        }
    }
}

#[test]
fn the_mean_s_interval_holds_it_over_heavy_tails() {
    let mut draws = Draws::seeded(47);
    for n in [5, 11, 30, 50] {
        let held = OutcomeCounts::of(DRAWS, || {
            let samples: Vec<f64> = (0..n).map(|_| 1.0 + 0.03 * draws.shaped(NoiseShape::HeavyTails)).collect();
            mean_holds(&samples, 1.0)
        });
        assert_holds(&format!("{n} samples"), &held);
    }
}

/// If this fails, the module's documentation is wrong: strongly skewed samples have lower coverage, but higher than
/// with an interval on a linear scale.
#[test]
fn the_mean_of_strongly_skewed_samples_is_held_more_often_on_a_log_scale() {
    let mut draws = Draws::seeded(48);
    let truth = 0.5f64.exp();
    for n in [5, 11, 50] {
        let mut on_linear_scale = 0;
        let held = OutcomeCounts::of(DRAWS, || {
            let samples: Vec<f64> = (0..n).map(|_| draws.shaped(NoiseShape::Skew)).collect();
            let (mean, margin) = student::mean_and_margin(&samples, Confidence::P95);
            on_linear_scale += u32::from((mean - truth).abs() <= margin);
            mean_holds(&samples, truth)
        });
        assert!((0.87..0.93).contains(&held.rate()), "{n} samples: {held:?}");
        assert!(held.rate() > f64::from(on_linear_scale) / f64::from(DRAWS), "{n} samples: {on_linear_scale}");
    }
}

/// The baseline is measured twice in every round, and both samples see the same state of the machine.
#[test]
fn the_mean_of_an_arm_measured_twice_is_held_by_rounds() {
    let mut draws = Draws::seeded(44);
    let (noise, drift) = (0.02, 0.03f64);
    let truth = ((noise * noise + drift * drift) / 2.0).exp();
    for n in SAMPLES {
        let mut as_if_apart = 0;
        let by_rounds = OutcomeCounts::of(DRAWS, || {
            let machine = draws.machine(n, Drift::Around(drift));
            let twice = machine.iter().zip(1u32..).flat_map(|(level, round)| [(round, *level); 2]);
            let samples: Vec<(u32, f64)> =
                twice.map(|(round, level)| (round, (level + noise * draws.normal()).exp())).collect();
            let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
            as_if_apart += u32::from(mean_holds(&values, truth));
            let spread = Summary::of_rounds(&samples, Confidence::P95).unwrap().spread.unwrap();
            spread.low <= truth && truth <= spread.high
        });
        assert_holds(&format!("{n} rounds, twice"), &by_rounds);
        assert!(as_if_apart < DRAWS * 9 / 10, "{n} rounds: the text of `of_rounds` is wrong: {as_if_apart}");
    }
}

/// If this fails, the module's documentation is wrong.
#[test]
fn a_mean_does_not_foresee_where_the_machine_wanders() {
    let mut draws = Draws::seeded(32);
    for n in SAMPLES {
        let held = OutcomeCounts::of(DRAWS, || mean_holds(&mean_study(&mut draws, n, 0.02, Drift::Walk(0.03)).0, 1.0));
        assert!(held.rate() < 0.8, "{n} samples: {held:?}");
    }
}

// The tax.

fn tax_of(study: &SyntheticStudy) -> PairedTax {
    PairedTax::of(&study.cell, Confidence::P95).unwrap()
}

#[test]
fn the_tax_s_interval_holds_the_ratio() {
    let mut draws = Draws::seeded(33);
    for (rounds, drift) in SAMPLES.into_iter().flat_map(|n| [0.0, 0.03, 0.06].map(|drift| (n, drift))) {
        // Logarithms of lognormal noise are normal whatever its size: only its ratio to the drift matters.
        let plan = Rounds { rounds, noise: 0.02, drift, ratio: 1.05 };
        let held = OutcomeCounts::of(DRAWS, || {
            let tax = tax_of(&draws.study(plan));
            tax.low <= 1.05 && 1.05 <= tax.high
        });
        assert_holds(&format!("tax, {plan:?}"), &held);
    }
}

// Percentiles.

/// Realistic path: most round trips within 15 %, and a few in a tail around three times the time.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Variation of the level between samples, as a standard deviation of its logarithm.
    level: f64,
    /// Variation of the share of round trips in the tail.
    tail: f64,
}

const BODY: f64 = 0.15;
const TAIL: f64 = 0.6;
const TAIL_AT: f64 = 1.0;
const TAIL_SHARE: f64 = 0.02;
/// Short, so that tests iterate over few counters.
const FASTEST_NS: f64 = 1_000.0;
const PERCENTS: [f64; 3] = [50.0, 99.0, 99.9];

/// Returns the middles of equal shares of the normal distribution.
fn normal_scores(n: usize) -> Vec<f64> {
    (0..n).map(|i| Normal::standard().inverse_cdf((i as f64 + 0.5) / n as f64)).collect()
}

/// Fills a histogram with a sample of a million round trips.
fn sample(draws: &mut Draws, path: Path, machine: f64, histogram: &mut Histogram) {
    static SCORES: LazyLock<[Vec<f64>; 2]> = LazyLock::new(|| [normal_scores(200), normal_scores(100)]);
    let level = machine + path.level * draws.normal();
    let tail = (TAIL_SHARE * (path.tail * draws.normal() - path.tail * path.tail / 2.0).exp()).min(1.0);
    histogram.clear();
    for (scores, middle, sd, share) in [(&SCORES[0], 0.0, BODY, 1.0 - tail), (&SCORES[1], TAIL_AT, TAIL, tail)] {
        let count = (share * 1e6 / scores.len() as f64) as u64;
        for score in scores {
            histogram.record_many((FASTEST_NS * (level + middle + sd * score).exp()) as u64, count);
        }
    }
}

/// Returns the share of round trips up to a value, over all samples that the machine could have produced.
fn share_below(ns: f64, path: Path, drift: Drift, machine: &[f64]) -> f64 {
    let normal = |off: f64, sd: f64| Normal::standard().cdf(off / sd);
    let around = if let Drift::Around(sd) = drift { sd } else { 0.0 };
    let of = |machine: f64| {
        let off = (ns / FASTEST_NS).ln() - machine;
        let spread = |sd: f64| (sd * sd + path.level * path.level + around * around).sqrt();
        (1.0 - TAIL_SHARE) * normal(off, spread(BODY)) + TAIL_SHARE * normal(off - TAIL_AT, spread(TAIL))
    };
    match drift {
        Drift::Walk(_) => machine.iter().map(|level| of(*level)).sum::<f64>() / machine.len() as f64,
        Drift::None | Drift::Around(_) => of(0.0),
    }
}

/// Returns the coverage of each percentile's interval.
fn percentiles_held(draws: &mut Draws, n: usize, path: Path, drift: Drift) -> [OutcomeCounts; 3] {
    let mut held = [const { Vec::new() }; 3];
    let mut samples = vec![Histogram::new(); n];
    for _ in 0..DRAWS {
        let machine = draws.machine(n, drift);
        machine.iter().zip(&mut samples).for_each(|(level, histogram)| sample(draws, path, *level, histogram));
        let intervals = percentile_intervals(&samples, &PERCENTS);
        for (at, (low, high)) in intervals.expect("two samples or more").into_iter().enumerate() {
            let below = |ns: u64| 100.0 * share_below(ns as f64, path, drift, &machine);
            held[at].push(below(low) <= PERCENTS[at] && PERCENTS[at] <= below(high + 1));
        }
    }
    held.map(|held| {
        let mut held = held.into_iter();
        OutcomeCounts::of(DRAWS, || held.next().expect("one for each draw"))
    })
}

fn percentiles_on_trial(seed: u64, drift: Drift, samples: &[usize]) {
    let mut draws = Draws::seeded(seed);
    for &n in samples {
        let path = Path { level: 0.05, tail: 0.6 };
        for (held, percent) in percentiles_held(&mut draws, n, path, drift).iter().zip(PERCENTS) {
            assert_holds(&format!("p{percent}, {n} samples, {drift:?}"), held);
        }
    }
}

#[test]
fn a_percentiles_interval_covers_it_on_a_steady_machine() {
    percentiles_on_trial(34, DRIFTS[0], &SAMPLES);
}

#[test]
fn a_percentile_s_interval_holds_it_on_a_machine_that_comes_and_goes() {
    percentiles_on_trial(35, DRIFTS[1], &SAMPLES[..3]);
}

#[test]
fn a_percentile_s_interval_holds_it_on_a_machine_that_wanders() {
    percentiles_on_trial(36, DRIFTS[2], &SAMPLES);
}

/// Few samples can't represent a tail that most of them lack; `pooled.rs` documents the coverage in that case.
#[test]
fn a_tail_that_most_samples_lack_is_held_less_often() {
    let mut draws = Draws::seeded(37);
    for n in [5, 11] {
        let [_, p99, p999] = percentiles_held(&mut draws, n, Path { level: 0.05, tail: 1.0 }, Drift::None);
        assert!(p99.rate() >= 0.9 && p999.rate() >= 0.9, "{n} samples: {p99:?}, {p999:?}");
        assert!(p99.rate() < 0.93, "better than the text says: {n} samples: {p99:?}");
    }
}
