//! Distance between two figures, regardless of which is larger.

use super::Preference;

/// Difference without a sign, as the logarithm of a ratio: factors of 2 and of 1/2 are equally large differences.
///
/// As a share, a difference depends on the direction: a factor of 2 is a gain of 100 % and a loss of 50 %. A loss can
/// never reach 100 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LogDifference(f64);

impl LogDifference {
    /// Factor of two: twice as much, or half.
    pub const FACTOR_OF_TWO: Self = Self(std::f64::consts::LN_2);

    /// Converts from a logarithm, whose sign is dropped.
    pub fn of_log(log: f64) -> Self {
        Self(log.abs())
    }

    /// Returns the distance of a ratio from 1.
    pub fn of_ratio(ratio: f64) -> Self {
        Self::of_log(ratio.ln())
    }

    /// Returns the logarithm.
    pub fn log(self) -> f64 {
        self.0
    }

    /// Returns the difference as a share of the smaller figure: `e^x - 1`.
    pub fn gain(self) -> f64 {
        self.0.exp_m1()
    }

    /// Returns the difference as a share of the larger figure: `1 - e^-x`, below 1.
    pub fn loss(self) -> f64 {
        -(-self.0).exp_m1()
    }

    /// Returns the share by which a figure gets worse: times grow, rates shrink.
    pub fn cost(self, direction: Preference) -> f64 {
        match direction {
            Preference::LowerIsBetter => self.gain(),
            Preference::HigherIsBetter => self.loss(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_as_far_either_way_and_differs_as_a_share() {
        assert_eq!(LogDifference::of_ratio(2.0), LogDifference::of_ratio(0.5));
        assert_eq!(LogDifference::of_ratio(0.5), LogDifference::FACTOR_OF_TWO);
        assert!((LogDifference::of_ratio(2.0).cost(Preference::LowerIsBetter) - 1.0).abs() < 1e-12);
        assert!((LogDifference::of_ratio(2.0).cost(Preference::HigherIsBetter) - 0.5).abs() < 1e-12);
    }

    /// B2 of the review: "could show ≥ 174 %" was printed for a bandwidth.
    #[test]
    fn a_loss_of_bandwidth_never_reaches_a_hundred_percent() {
        let told = LogDifference::of_ratio(2.74).cost(Preference::HigherIsBetter);
        assert!((told - 0.635).abs() < 1e-3, "{told}");
        assert!(LogDifference::of_log(30.0).loss() < 1.0);
    }
}
