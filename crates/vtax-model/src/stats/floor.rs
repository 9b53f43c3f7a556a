//! The noise floor: what this machine calls a difference when there is none.
//!
//! Every round measures the baseline twice, A and A'. The interval of A'/A tells the largest difference that
//! could still be an accident of place or time within the round (the floor). A floor is a warning and no
//! condition of a verdict: a comparison's own interval already has its own noise in it, and a floor beside a
//! noisy baseline would deny differences that are plain to see.

use super::paired::{RatioEstimate, estimate};
use super::{Confidence, LogDifference, PValue, Pair, Significance, StatsError, resampled, signed_rank};

/// What the baseline measured twice says about the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseFloor {
    /// A' over A.
    pub ratio: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// The far end of the interval.
    pub floor: LogDifference,
    /// The p-value of the signed-rank test of A' against A.
    pub p: PValue,
    /// The log ratio of each round.
    pub log_ratios: Vec<f64>,
}

impl NoiseFloor {
    /// Estimates from the pairs (A, A') of two rounds or more. A is the baseline, A' the cell.
    pub fn of(pairs: &[Pair], confidence: Confidence) -> Result<Self, StatsError> {
        let RatioEstimate { ratio, low, high, log_ratios, .. } = estimate(pairs, confidence)?;
        let [below, above] = [low, high].map(LogDifference::of_ratio);
        let floor = if below > above { below } else { above };
        let p = signed_rank::p_value(&log_ratios);
        Ok(Self { ratio, low, high, floor, p, log_ratios })
    }

    /// Rounds.
    pub fn pairs(&self) -> usize {
        self.log_ratios.len()
    }

    /// A and A' differ by more than chance: the order within the round, or something that one of
    /// the two has and the other doesn't, makes a difference of its own.
    pub fn is_biased(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// Whether a ratio is no farther from "the same" than the baseline may be from itself.
    pub fn covers(&self, ratio: f64) -> bool {
        LogDifference::of_ratio(ratio) <= self.floor
    }

    /// The smallest difference that `pairs` rounds as noisy as the baseline's show at
    /// `significance` in four of five studies. None if so few rounds can show no difference, however large.
    pub fn smallest_shown(&self, pairs: usize, significance: Significance) -> Option<LogDifference> {
        resampled::smallest_shown(&self.log_ratios, pairs, significance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_far_end_of_the_interval() {
        // Six pairs: the interval is their whole range.
        let cells = [0.97, 1.0, 1.01, 1.02, 0.99, 1.01];
        let pairs = cells.map(|cell| Pair { baseline: 1.0, cell });
        let floor = NoiseFloor::of(&pairs, Confidence::P95).unwrap();
        assert!((floor.floor.loss() - 0.03).abs() < 1e-12);
        assert!(floor.covers(0.98) && floor.covers(1.025) && !floor.covers(1.05) && !floor.is_biased());
        let biased = cells.map(|cell| Pair { baseline: 0.9, cell });
        assert!(NoiseFloor::of(&biased, Confidence::P95).unwrap().is_biased());
    }
}
