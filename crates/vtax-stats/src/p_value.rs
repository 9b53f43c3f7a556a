//! Probabilities of tests: p-values and significance levels.

use super::StatsError;

/// Probability of a difference at least this large if there is none: above 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PValue(f64);

impl PValue {
    /// No evidence against "no difference".
    pub const ONE: Self = Self(1.0);

    /// Creates a p-value. 0 is refused: with finitely many samples nothing is impossible.
    pub fn new(p: f64) -> Result<Self, StatsError> {
        if p > 0.0 && p <= 1.0 { Ok(Self(p)) } else { Err(StatsError::PValue { given: p }) }
    }

    /// Returns the probability.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns the p-value corrected for `tests`, at most 1 (Bonferroni's bound).
    pub(super) fn times(self, tests: usize) -> Self {
        Self((self.0 * tests.max(1) as f64).min(1.0))
    }
}

/// Accepted rate of false alarms: above 0, below one half.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Significance(f64);

impl Significance {
    /// One in twenty, the level of every verdict of vtax.
    pub const FIVE_PERCENT: Self = Self(0.05);

    /// Returns the fraction.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns the level for each of `tests`, which the first step of Holm's procedure requires of the smallest
    /// p-value.
    pub fn shared_by(self, tests: usize) -> Self {
        Self(self.0 / tests.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probabilities_are_taken() {
        for p in [0.0, -0.1, 1.0 + f64::EPSILON, f64::NAN, f64::INFINITY] {
            assert!(PValue::new(p).is_err(), "{p}");
        }
        assert_eq!(PValue::new(0.4).unwrap().times(3), PValue::ONE);
        assert_eq!(Significance::FIVE_PERCENT.shared_by(5).get(), 0.01);
    }
}
