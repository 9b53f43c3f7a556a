//! Tax: the cost of a cell relative to its baseline, from rounds that contain both.
//!
//! A machine drifts: temperature, neighbours, memory layout. A comparison of two arms measured one after another
//! mistakes the drift for a difference: at 6 % drift, Mann-Whitney calls equal arms different in 47 % of
//! ten-against-ten comparisons. Within a round both arms see the same machine, so the round's log ratio is the figure,
//! and the order within the round is random.
//!
//! * estimate: Hodges-Lehmann of the log ratios, which is robust against one bad round;
//! * interval: inverted signed-rank test (`walsh.rs`), whose coverage is exact at any number of rounds, where a
//!   bootstrap over 8 to 20 is too narrow (see [`super::summary`]);
//! * p: the same test (`signed_rank.rs`), so that the three can't contradict each other. With a test of the sum, one
//!   bad round could deny a difference that all the others show.

use super::walsh::Centre;
use super::{
    Confidence, LogDifference, PValue, Preference, Side, Significance, StatsError, resampled, signed_rank, student,
};

/// Maximum size of a logarithm, so that its exponential is finite and above zero.
const MAX_LOG: f64 = 700.0;

/// Figures of the two arms in one round, in the same unit, both above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Figure of the baseline.
    pub baseline: f64,
    /// Figure of the cell.
    pub cell: f64,
}

/// Ratio of a cell to its baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedTax {
    /// Cell over baseline: 1.05 is 5 % higher.
    pub ratio: f64,
    /// Lower bound of the ratio's interval.
    pub low: f64,
    /// Upper bound of the ratio's interval.
    pub high: f64,
    /// Two-sided p of the signed-rank test; not corrected for the other cells.
    pub p: PValue,
    /// Number of rounds.
    pub pairs: usize,
    /// Standard deviation of the log ratios: the noise of one round.
    pub log_sd: f64,
    /// Log ratio of each round.
    pub log_ratios: Vec<f64>,
}

impl PairedTax {
    /// Compares the two arms in at least two rounds.
    pub fn of(pairs: &[Pair], confidence: Confidence) -> Result<Self, StatsError> {
        let log_ratios = log_ratios(pairs)?;
        let Centre { value, low, high } = Centre::of(&log_ratios, confidence)?;
        let [ratio, low, high] = [value, low, high].map(ratio);
        let (p, log_sd) = (signed_rank::p_value(&log_ratios), student::standard_deviation(&log_ratios));
        Ok(Self { ratio, low, high, p, pairs: pairs.len(), log_sd, log_ratios })
    }

    /// Returns `true` if the interval lies entirely on one side of 1.
    pub fn excludes_equality(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// Returns the maximum cost as a share: the bound of the interval on the worse side. 0 if the whole interval is
    /// better.
    pub fn costs_at_most(&self, direction: Preference) -> f64 {
        match direction {
            Preference::LowerIsBetter => (self.high - 1.0).max(0.0),
            Preference::HigherIsBetter => (1.0 - self.low).max(0.0),
        }
    }

    /// Returns `true` if the interval allows a factor of two: around the estimate if the interval excludes 1, otherwise
    /// from 1 to its far bound.
    pub fn is_too_wide(&self) -> bool {
        let half = match self.excludes_equality() {
            true => LogDifference::of_log((self.high / self.low).ln() / 2.0),
            false => LogDifference::of_log(self.high.ln().max(-self.low.ln())),
        };
        half > LogDifference::FACTOR_OF_TWO
    }

    /// Returns the smallest difference that four of five studies of `pairs` such rounds show; `None` if they show none.
    pub fn smallest_shown(&self, pairs: usize, significance: Significance) -> Option<LogDifference> {
        resampled::smallest_shown(&self.log_ratios, pairs, significance)
    }
}

fn log_ratios(pairs: &[Pair]) -> Result<Vec<f64>, StatsError> {
    let log_ratio = |(index, pair): (usize, &Pair)| {
        let log = |arm, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(value.ln())
            } else {
                Err(StatsError::NotPositive { number: index + 1, arm, value })
            }
        };
        Ok(log(Side::Cell, pair.cell)? - log(Side::Baseline, pair.baseline)?)
    };
    pairs.iter().enumerate().map(log_ratio).collect()
}

fn ratio(log: f64) -> f64 {
    log.clamp(-MAX_LOG, MAX_LOG).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::synthetic::{Draws, OutcomeCounts, Rounds};
    use crate::walsh::MAX_PAIRS;
    use proptest::prelude::*;

    fn pairs(figures: &[(f64, f64)]) -> Vec<Pair> {
        figures.iter().map(|(baseline, cell)| Pair { baseline: *baseline, cell: *cell }).collect()
    }

    #[test]
    fn figures_of_known_pairs() {
        // Log ratios ln 2 · (1, 2, 6): the median of the averages is ln 2 · 2.75; p = 2/8.
        let tax = PairedTax::of(&pairs(&[(1.0, 2.0), (5.0, 20.0), (0.5, 32.0)]), Confidence::P95).unwrap();
        assert!((tax.ratio - 2f64.powf(2.75)).abs() < 1e-12);
        assert_eq!((tax.p.get(), tax.pairs), (0.25, 3));
        assert!((tax.log_sd - 2f64.ln() * 7f64.sqrt()).abs() < 1e-12);
        assert!(!tax.excludes_equality());
    }

    #[test]
    fn pairs_without_a_ratio_are_named() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = PairedTax::of(&pairs(&[(1.0, 1.0), (1.0, bad)]), Confidence::P95).unwrap_err();
            assert!(matches!(error, StatsError::NotPositive { number: 2, arm: Side::Cell, .. }), "{error}");
            let error = PairedTax::of(&pairs(&[(bad, 1.0), (1.0, 1.0)]), Confidence::P95).unwrap_err();
            assert!(matches!(error, StatsError::NotPositive { number: 1, arm: Side::Baseline, .. }), "{error}");
        }
        assert!(matches!(PairedTax::of(&[], Confidence::P95), Err(StatsError::TooFew { .. })));
        let one = pairs(&[(1.0, 1.0)]);
        assert!(matches!(PairedTax::of(&one, Confidence::P95), Err(StatsError::TooFew { .. })));
        let many = one.repeat(MAX_PAIRS + 1);
        assert!(matches!(PairedTax::of(&many, Confidence::P95), Err(StatsError::TooMany { .. })));
    }

    #[test]
    fn identical_pairs_have_no_tax() {
        let tax = PairedTax::of(&pairs(&[(3.0, 3.0); 11]), Confidence::P95).unwrap();
        assert_eq!((tax.ratio, tax.low, tax.high, tax.p, tax.log_sd), (1.0, 1.0, 1.0, PValue::ONE, 0.0));
    }

    #[test]
    fn the_interval_holds_the_true_ratio_with_outliers() {
        let mut draws = Draws::seeded(6);
        let held = OutcomeCounts::of(2_000, || {
            let pair = |z: f64| if z.abs() > 1.6 { 20.0 * z } else { z };
            let log_ratios = draws.samples(11, |z| 0.02 * pair(z));
            let pairs: Vec<Pair> = log_ratios.iter().map(|d| Pair { baseline: 1.0, cell: d.exp() }).collect();
            let tax = PairedTax::of(&pairs, Confidence::P95).unwrap();
            tax.low <= 1.0 && 1.0 <= tax.high
        });
        assert!(held.rate() >= 0.93, "{held:?}");
    }

    /// Two to five rounds at 95 % use Student's interval, because they are too few for ranks.
    #[test]
    fn few_rounds_still_have_an_interval_that_holds() {
        let mut draws = Draws::seeded(7);
        for rounds in [2, 3, 5] {
            let plan = Rounds { rounds, noise: 0.02, drift: 0.0, ratio: 0.8 };
            let held = OutcomeCounts::of(2_000, || {
                let tax = PairedTax::of(&draws.study(plan).cell, Confidence::P95).unwrap();
                tax.low <= 0.8 && 0.8 <= tax.high
            });
            assert!(held.is_near(0.95), "{plan:?}: {held:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn swapping_the_arms_turns_the_ratio_over(
            figures in prop::collection::vec((1e-3..1e9f64, 1e-3..1e9f64), 2..24)
        ) {
            let swapped: Vec<_> = figures.iter().map(|(baseline, cell)| (*cell, *baseline)).collect();
            let there = PairedTax::of(&pairs(&figures), Confidence::P95).unwrap();
            let back = PairedTax::of(&pairs(&swapped), Confidence::P95).unwrap();
            prop_assert!((there.ratio.ln() + back.ratio.ln()).abs() < 1e-9);
            prop_assert!((there.low.ln() + back.high.ln()).abs() < 1e-9);
            prop_assert!((there.high.ln() + back.low.ln()).abs() < 1e-9);
            prop_assert_eq!(there.p, back.p);
            prop_assert_eq!(there.excludes_equality(), back.excludes_equality());
        }

        #[test]
        fn figures_are_in_order_and_finite(
            figures in prop::collection::vec((f64::MIN_POSITIVE..f64::MAX, f64::MIN_POSITIVE..f64::MAX), 2..40)
        ) {
            let tax = PairedTax::of(&pairs(&figures), Confidence::P99).unwrap();
            prop_assert!(0.0 < tax.low && tax.low <= tax.ratio && tax.ratio <= tax.high);
            prop_assert!(tax.high.is_finite() && tax.log_sd.is_finite());
            prop_assert!(tax.p.get() > 0.0 && tax.p.get() <= 1.0);
        }
    }
}
