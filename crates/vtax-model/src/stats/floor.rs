//! The noise floor: what this machine calls a difference when there is none.
//!
//! Every round measures the baseline twice, A and A'. The interval of A'/A tells two things: the
//! largest difference that could still be an accident of place or time within the round (the
//! floor), and, from its spread, how small a difference so many rounds can show at all.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Confidence, Pair, PairedTax, Significance, StatsError, student};

/// The chance, about, of showing a difference that is as large as "could show" says.
const POWER: f64 = 0.8;

/// A difference as a fraction of the baseline, without sign: 0.05 is 5 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RelativeDifference(f64);

impl RelativeDifference {
    /// How far a ratio is from "the same".
    pub fn of_ratio(ratio: f64) -> Self {
        Self((ratio - 1.0).abs())
    }

    /// As a fraction.
    pub fn fraction(self) -> f64 {
        self.0
    }

    /// In percent.
    pub fn percent(self) -> f64 {
        self.0 * 100.0
    }
}

impl fmt::Display for RelativeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.percent())
    }
}

/// What the baseline measured twice says about the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseFloor {
    /// A' over A.
    pub ratio: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// The largest difference inside the interval: what is not larger is taken for noise.
    pub floor: RelativeDifference,
    /// Standard deviation of the log ratios: the noise of one round.
    pub log_sd: f64,
    /// Rounds.
    pub pairs: usize,
}

impl NoiseFloor {
    /// From the pairs (A, A') of two rounds or more: A as the baseline, A' as the cell.
    pub fn of(pairs: &[Pair], confidence: Confidence) -> Result<Self, StatsError> {
        let repeat = PairedTax::of(pairs, confidence)?;
        let [below, above] = [repeat.low, repeat.high].map(RelativeDifference::of_ratio);
        Ok(Self {
            ratio: repeat.ratio,
            low: repeat.low,
            high: repeat.high,
            floor: if below > above { below } else { above },
            log_sd: repeat.log_sd,
            pairs: repeat.pairs,
        })
    }

    /// A and A' differ by more than chance: the order within the round, or something that one of
    /// the two has and the other doesn't, makes a difference of its own.
    pub fn is_biased(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// The smallest difference that `pairs` rounds as noisy as the baseline's show at
    /// `significance` in about four of five studies. None if no difference, however large, can be shown.
    pub fn smallest_shown(&self, pairs: usize, significance: Significance) -> Option<RelativeDifference> {
        smallest_shown(self.log_sd, self.floor, pairs, significance)
    }
}

/// The smallest difference that passes the rule of [`super::judge`] with a power of about 80 %.
///
/// In logarithms, the larger of what the test asks for,
/// `(t(1 - α/2, n - 1) + t(0.8, n - 1)) · s / √n` (the sample-size formula of Cohen, "Statistical
/// Power Analysis for the Behavioral Sciences", 1988, section 2.3, with t for the normal quantiles),
/// and what the floor asks for, `ln(1 + floor) + t(0.8, n - 1) · s / √n`, since an estimate has an
/// even chance of falling short of the true difference.
///
/// The noise is itself estimated, so the power comes out a little lower: 76 to 78 % in simulated
/// studies of 8 to 18 rounds.
///
/// The least p-value of n pairs in the sign-flip test is 2 / 2^n: if that isn't below α, none.
pub(super) fn smallest_shown(
    log_sd: f64,
    floor: RelativeDifference,
    pairs: usize,
    significance: Significance,
) -> Option<RelativeDifference> {
    if pairs < 2 || 2.0 * 0.5f64.powf(pairs as f64) >= significance.get() {
        return None;
    }
    let error = log_sd / (pairs as f64).sqrt();
    let margin = student::quantile(POWER, pairs - 1) * error;
    let for_test = student::quantile(1.0 - significance.get() / 2.0, pairs - 1) * error;
    let for_floor = floor.fraction().ln_1p();
    let difference = (for_test.max(for_floor) + margin).exp_m1();
    difference.is_finite().then_some(RelativeDifference(difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::synthetic::{Draws, Rounds, Tally};

    fn floor_of(rounds: usize, noise: f64, seed: u64) -> NoiseFloor {
        let plan = Rounds { rounds, noise, drift: 0.0, ratio: 1.0 };
        NoiseFloor::of(&Draws::seeded(seed).study(plan).repeat, Confidence::P95).unwrap()
    }

    #[test]
    fn the_floor_is_the_far_end_of_the_interval() {
        // Six pairs: the interval is their whole range.
        let cells = [0.97, 1.0, 1.01, 1.02, 0.99, 1.01];
        let pairs = cells.map(|cell| Pair { baseline: 1.0, cell });
        let floor = NoiseFloor::of(&pairs, Confidence::P95).unwrap();
        assert!((floor.floor.fraction() - 0.03).abs() < 1e-12);
        assert_eq!(floor.floor.to_string(), "3.0 %");
        assert!(!floor.is_biased());
        let biased = cells.map(|cell| Pair { baseline: 0.9, cell });
        assert!(NoiseFloor::of(&biased, Confidence::P95).unwrap().is_biased());
    }

    #[test]
    fn the_smallest_difference_by_hand() {
        // n = 11: t(0.975, 10) = 2.2281, t(0.8, 10) = 0.8791; (3.1072) · 0.02 / √11 = 0.018737.
        let shown = smallest_shown(0.02, RelativeDifference(0.0), 11, Significance::FIVE_PERCENT);
        assert!((shown.unwrap().fraction() - 0.018737f64.exp_m1()).abs() < 1e-6);
        // The floor of 2 % asks for more: ln 1.02 + 0.8791 · 0.0060302 = 0.025104.
        let shown = smallest_shown(0.02, RelativeDifference(0.02), 11, Significance::FIVE_PERCENT);
        assert!((shown.unwrap().fraction() - 0.025104f64.exp_m1()).abs() < 1e-6);
    }

    #[test]
    fn too_few_rounds_can_show_nothing() {
        let floor = floor_of(5, 0.02, 9);
        for pairs in [0, 1, 5] {
            assert_eq!(floor.smallest_shown(pairs, Significance::FIVE_PERCENT), None);
        }
        assert!(floor.smallest_shown(6, Significance::FIVE_PERCENT).is_some());
        assert_eq!(floor.smallest_shown(6, Significance::FIVE_PERCENT.shared_by(10)), None);
    }

    #[test]
    fn more_rounds_and_less_noise_show_smaller_differences() {
        let [quiet, loud] = [0.005, 0.05].map(|noise| floor_of(18, noise, 10));
        let shown = |floor: &NoiseFloor, pairs| floor.smallest_shown(pairs, Significance::FIVE_PERCENT).unwrap();
        assert!(shown(&quiet, 18) < shown(&loud, 18));
        assert!(shown(&loud, 40) < shown(&loud, 8));
        let strict = Significance::FIVE_PERCENT.shared_by(12);
        assert!(loud.smallest_shown(11, strict).unwrap() > shown(&loud, 11));
    }

    /// A' has its own interval over A, so "the same" is above the floor in one study of twenty.
    #[test]
    fn an_unbiased_baseline_is_seldom_called_biased() {
        let mut draws = Draws::seeded(11);
        let plan = Rounds { rounds: 11, noise: 0.02, drift: 0.03, ratio: 1.0 };
        let biased =
            Tally::of(2_000, || NoiseFloor::of(&draws.study(plan).repeat, Confidence::P95).unwrap().is_biased());
        assert!(biased.is_at_most(0.05), "{biased:?}");
    }
}
