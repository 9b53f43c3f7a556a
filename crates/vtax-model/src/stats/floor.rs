//! The noise floor: what this machine calls a difference when there is none.
//!
//! Every round measures the baseline twice, A and A'. The interval of A'/A tells two things: the
//! largest difference that could still be an accident of place or time within the round (the
//! floor), and, from its spread, how small a difference so many rounds can show at all.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::paired::{Estimate, estimate};
use super::{Confidence, Pair, Significance, StatsError, power, student};

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
        let (_, Estimate { ratio, low, high, log_sd }) = estimate(pairs, confidence)?;
        let [below, above] = [low, high].map(RelativeDifference::of_ratio);
        let floor = if below > above { below } else { above };
        Ok(Self { ratio, low, high, floor, log_sd, pairs: pairs.len() })
    }

    /// A and A' differ by more than chance: the order within the round, or something that one of
    /// the two has and the other doesn't, makes a difference of its own.
    pub fn is_biased(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// The smallest difference that `pairs` rounds as noisy as the baseline's show at
    /// `significance` in at least four of five studies. None if no difference, however large, can be
    /// shown.
    pub fn smallest_shown(&self, pairs: usize, significance: Significance) -> Option<RelativeDifference> {
        let factor = power::factor(pairs, significance)?.by_repeat;
        smallest_shown(factor, self.log_sd, self.floor, pairs)
    }

    /// The same for a cell whose rounds are as noisy as `cell_log_sd` says: by the noisier of the two.
    pub(super) fn smallest_shown_of(
        &self,
        cell_log_sd: f64,
        pairs: usize,
        significance: Significance,
    ) -> Option<RelativeDifference> {
        let factor = power::factor(pairs, significance)?.by_noisier;
        smallest_shown(factor, self.log_sd.max(cell_log_sd), self.floor, pairs)
    }
}

/// The larger of what four of five studies with this noise need, and of what this study's own floor
/// asks for: in logarithms `ln(1 + floor) + t(0.8, n - 1) · s / √n`, since an estimate has an even
/// chance of falling short of the true difference, and a floor that comes from the place in the round
/// stays.
fn smallest_shown(factor: f64, log_sd: f64, floor: RelativeDifference, pairs: usize) -> Option<RelativeDifference> {
    let error = log_sd / (pairs as f64).sqrt();
    let beyond_floor = floor.fraction().ln_1p() + student::quantile(0.8, pairs - 1) * error;
    let difference = beyond_floor.max(factor * error).exp_m1();
    difference.is_finite().then_some(RelativeDifference(difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::synthetic::{Draws, Rounds};

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
        // n = 11: 4 · 0.02 / √11 = 0.024121.
        let shown = smallest_shown(4.0, 0.02, RelativeDifference(0.0), 11);
        assert!((shown.unwrap().fraction() - 0.024121f64.exp_m1()).abs() < 1e-6);
        // The floor of 2 % asks for more: t(0.8, 10) = 0.8791; ln 1.02 + 0.8791 · 0.0060302 = 0.025104.
        let shown = smallest_shown(4.0, 0.02, RelativeDifference(0.02), 11);
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
}
