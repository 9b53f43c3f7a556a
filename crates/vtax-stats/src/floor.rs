//! Noise floor: the difference that a machine shows without a cause.
//!
//! Every round measures the baseline twice, A and A'. The interval of A'/A shows the largest difference that could
//! still be an effect of position or time within the round (the floor). A floor is a warning, not a condition of a
//! verdict: a comparison's own interval already includes its noise, and with a noisy baseline a floor would deny
//! obvious differences.

use super::{Confidence, LogDifference, Pair, PairedTax, StatsError};

/// Noise of the machine, from the baseline measured twice.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseFloor {
    /// A' over A: A is the baseline, A' the cell.
    pub tax: PairedTax,
    /// Far bound of its interval.
    pub floor: LogDifference,
}

impl NoiseFloor {
    /// Estimates the floor from the pairs (A, A') of two rounds or more.
    pub fn of(pairs: &[Pair], confidence: Confidence) -> Result<Self, StatsError> {
        let tax = PairedTax::of(pairs, confidence)?;
        let [below, above] = [tax.low, tax.high].map(LogDifference::of_ratio);
        Ok(Self { floor: if below > above { below } else { above }, tax })
    }

    /// Returns `true` if a ratio is no farther from 1 than the baseline may be from itself.
    pub fn covers(&self, ratio: f64) -> bool {
        LogDifference::of_ratio(ratio) <= self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_far_end_of_the_interval() {
        // With six pairs, the interval is their whole range.
        let cells = [0.97, 1.0, 1.01, 1.02, 0.99, 1.01];
        let pairs = cells.map(|cell| Pair { baseline: 1.0, cell });
        let floor = NoiseFloor::of(&pairs, Confidence::P95).unwrap();
        assert!((floor.floor.loss() - 0.03).abs() < 1e-12);
        assert!(floor.covers(0.98) && floor.covers(1.025) && !floor.covers(1.05) && !floor.tax.excludes_equality());
        let biased = cells.map(|cell| Pair { baseline: 0.9, cell });
        assert!(NoiseFloor::of(&biased, Confidence::P95).unwrap().tax.excludes_equality());
    }
}
