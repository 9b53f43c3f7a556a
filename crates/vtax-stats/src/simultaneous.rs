//! Intervals that hold for several figures at the same time, and decisions about targets.
//!
//! If the best of m figures is chosen, or each of m figures is compared with a target, one of m 95 % intervals misses
//! its true value far more often than in 5 % of cases. By Bonferroni's inequality, m intervals at 1 - 0.05/m are all
//! correct in 95 % of cases, however the figures depend on each other (Dunn, "Multiple comparisons among means",
//! Journal of the American Statistical Association 56, 1961), and so is one that is selected after looking at all of
//! them. No other correction for the selection is required (Benjamini & Yekutieli, "False discovery rate-adjusted
//! multiple confidence intervals for selected parameters", Journal of the American Statistical Association 100, 2005).
//!
//! An interval is widened by the ratio of the two quantiles of Student's t, on the logarithmic scale of
//! [`Summary`](super::Summary), each side on its own.

use super::{planning::MOST_ROUNDS, student};

/// Share of cases in which any of the intervals may miss its true value.
const LEVEL: f64 = 0.05;
/// Normal quantile of the share of runs that should decide as planned: four of five, as in
/// [`planning`](super::planning).
const POWER_DEVIATE: f64 = 0.841_621;
/// Maximum logarithm of a bound, so that bounds are finite and above zero.
const LARGEST_LOG: f64 = 200.0;

/// Mean of a cell's rounds with the bounds of its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundedMean {
    /// Mean, or another figure of all rounds.
    pub mean: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Number of rounds; a single one has no interval.
    pub rounds: u32,
}

impl BoundedMean {
    /// Returns the figure with an interval that is valid together with those of `figures - 1` others, from its 95 %
    /// interval. `None` if a figure is not above zero, or has too few rounds for an interval.
    #[must_use]
    pub fn simultaneous(self, figures: usize) -> Option<BoundedMean> {
        let BoundedMean { mean, low, high, rounds } = self;
        let is_interval = low > 0.0 && low <= mean && mean <= high && high.is_finite() && rounds > 1;
        let factor = is_interval.then(|| widening(rounds, figures))?;
        let side = |bound: f64| ((bound / mean).ln() * factor).clamp(-LARGEST_LOG, LARGEST_LOG).exp() * mean;
        Some(BoundedMean { low: side(low), high: side(high), ..self })
    }

    /// Returns the number of rounds after which four of five such simultaneous intervals would exclude the target, if
    /// the mean is the true value; `None` if it is too close to the target.
    pub fn rounds_to_exclude(self, target: f64, figures: usize) -> Option<u32> {
        let distance = (target / self.mean).ln();
        let bound = if distance < 0.0 { self.low } else { self.high };
        let half = (bound / self.mean).ln().abs();
        let quantile = critical(self.rounds, figures);
        let ratio = half * (1.0 + POWER_DEVIATE / quantile) / distance.abs();
        let rounds = (f64::from(self.rounds) * ratio * ratio).ceil().max(f64::from(self.rounds));
        (rounds <= f64::from(MOST_ROUNDS)).then_some(rounds as u32)
    }
}

fn widening(rounds: u32, figures: usize) -> f64 {
    critical(rounds, figures) / critical(rounds, 1)
}

fn critical(rounds: u32, figures: usize) -> f64 {
    let tail = LEVEL / 2.0 / figures.max(1) as f64;
    student::quantile(1.0 - tail, rounds.saturating_sub(1).max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Confidence, Summary, tests::synthetic::Draws};

    fn figure(mean: f64, low: f64, high: f64, rounds: u32) -> BoundedMean {
        BoundedMean { mean, low, high, rounds }
    }

    #[test]
    fn the_widening_is_that_of_the_tables() {
        // t(10): 2.228 at 97.5 %; 3.169 at 99.5 %, which applies to five figures.
        let wide = figure(100.0, 90.0, 110.0, 11).simultaneous(5).expect("an interval");
        let expected = |bound: f64| 100.0 * ((bound / 100.0_f64).ln() * 3.169 / 2.228).exp();
        assert!((wide.low - expected(90.0)).abs() < 0.01 && (wide.high - expected(110.0)).abs() < 0.01, "{wide:?}");
        let one = figure(100.0, 90.0, 110.0, 11).simultaneous(1).expect("an interval");
        assert!((one.low - 90.0).abs() < 1e-9 && (one.high - 110.0).abs() < 1e-9, "{one:?}");
    }

    #[test]
    fn a_value_without_an_interval_is_not_widened() {
        for wrong in [
            figure(1.0, 1.0, 1.0, 1),
            figure(1.0, 0.0, 2.0, 5),
            figure(1.0, f64::NAN, 2.0, 5),
            figure(1.0, 0.5, f64::INFINITY, 5),
            figure(3.0, 1.0, 2.0, 5),
        ] {
            assert_eq!(wrong.simultaneous(3), None, "{wrong:?}");
        }
        let two = figure(1.0, 1e-9, 1e9, 2).simultaneous(1000).expect("an interval");
        assert!(two.low > 0.0 && two.high.is_finite(), "{two:?}");
    }

    fn drawn(draws: &mut Draws, rounds: usize, truth: f64) -> BoundedMean {
        let samples = draws.samples(rounds, |z| truth * (1.0 + 0.05 * z));
        let summary = Summary::of(&samples, Confidence::P95).expect("samples");
        let spread = summary.spread.expect("two or more");
        figure(summary.mean, spread.low, spread.high, rounds as u32)
    }

    #[test]
    fn all_intervals_hold_together() {
        let mut draws = Draws::seeded(7);
        for (rounds, figures) in [(5, 12), (20, 12), (11, 3)] {
            let held = (0..600)
                .filter(|_| {
                    (0..figures).all(|_| {
                        let wide = drawn(&mut draws, rounds, 1.0).simultaneous(figures).expect("an interval");
                        wide.low <= 1.0 && 1.0 <= wide.high
                    })
                })
                .count();
            assert!(held >= 564, "{rounds} rounds of {figures}: {held} of 600");
        }
    }

    #[test]
    fn the_planned_rounds_decide_four_of_five_times() {
        let mut draws = Draws::seeded(8);
        let (truth, target, figures) = (1.0, 1.02, 6);
        let mut planned = Vec::new();
        for _ in 0..200 {
            let pilot = drawn(&mut draws, 30, truth).simultaneous(figures).expect("an interval");
            let known =
                BoundedMean { mean: truth, low: pilot.low / pilot.mean, high: pilot.high / pilot.mean, ..pilot };
            planned.extend(known.rounds_to_exclude(target, figures));
        }
        planned.sort_unstable();
        let rounds = planned[planned.len() / 2] as usize;
        let decided = (0..500)
            .filter(|_| drawn(&mut draws, rounds, truth).simultaneous(figures).is_some_and(|wide| wide.high < target))
            .count();
        assert!((370..450).contains(&decided), "{rounds} rounds: {decided} of 500");
    }

    #[test]
    fn a_figure_at_its_target_is_never_decided() {
        assert_eq!(figure(100.0, 95.0, 105.0, 20).rounds_to_exclude(100.0, 2), None);
        assert_eq!(figure(100.0, 95.0, 105.0, 20).rounds_to_exclude(100.1, 2), None);
        assert!(figure(100.0, 95.0, 105.0, 20).rounds_to_exclude(104.0, 2).is_some_and(|rounds| rounds > 20));
    }
}
