//! Walsh averages: the centre of symmetric differences without an assumption about their shape.
//!
//! Hodges & Lehmann (1963), "Estimates of location based on rank tests", Annals of Mathematical Statistics 34(2); the
//! interval is Tukey's inversion of Wilcoxon's signed-rank test (`signed_rank.rs`): Hollander, Wolfe & Chicken,
//! "Nonparametric Statistical Methods", 3rd edition (2014), sections 3.2 and 3.3.

use super::error::finite;
use super::signed_rank::rank_of_tail;
use super::{Confidence, StatsError, student};

/// Maximum number of pairs, beyond which the sum of the doubled ranks overflows 32 bits.
pub(super) const MAX_PAIRS: usize = 65_535;

/// Centre of paired differences, and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centre {
    /// Hodges-Lehmann estimate.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl Centre {
    /// Estimates from the differences of two pairs or more; all must be finite.
    pub fn of(differences: &[f64], confidence: Confidence) -> Result<Self, StatsError> {
        match differences.len() {
            given @ (0 | 1) => return Err(StatsError::TooFew { figure: "a paired difference", given, needed: 2 }),
            2..=MAX_PAIRS => finite(differences)?,
            given => return Err(StatsError::TooMany { given, limit: MAX_PAIRS }),
        }
        let averages = WalshAverages::of(differences);
        let (low, high) = interval(differences, &averages, confidence);
        Ok(Self { value: averages.centre(), low, high })
    }
}

/// Means of all pairs of differences, including each difference with itself: n (n + 1) / 2 averages.
///
/// They are found in the sorted differences and never stored, because their number grows with the square: those of
/// 14,000 rounds would fill 800 MB.
pub(super) struct WalshAverages {
    differences: Vec<f64>,
}

/// Returns all averages, in no particular order.
pub(super) fn averages(differences: &[f64]) -> impl Iterator<Item = f64> {
    let with_later = |(i, left): (usize, &f64)| {
        let left = *left;
        differences[i..].iter().map(move |right| left.midpoint(*right))
    };
    differences.iter().enumerate().flat_map(with_later)
}

impl WalshAverages {
    /// Creates the averages of at least one difference.
    pub(super) fn of(differences: &[f64]) -> Self {
        let mut differences = differences.to_vec();
        differences.sort_unstable_by(f64::total_cmp);
        Self { differences }
    }

    /// Returns the Hodges-Lehmann estimate: the median of the averages.
    pub(super) fn centre(&self) -> f64 {
        let middle = self.len() / 2;
        if self.len() % 2 == 1 { self.nth(middle) } else { self.nth(middle - 1).midpoint(self.nth(middle)) }
    }

    /// Returns the averages that are `rank` from either end, counted from 1.
    fn between(&self, rank: usize) -> (f64, f64) {
        (self.nth(rank - 1), self.nth(self.len() - rank))
    }

    fn len(&self) -> usize {
        self.differences.len() * (self.differences.len() + 1) / 2
    }

    /// Returns the average above `smaller` others: the smallest number that at least `smaller + 1` averages don't
    /// exceed, found by bisection over the doubles in their order.
    fn nth(&self, smaller: usize) -> f64 {
        let (mut low, mut high) =
            (position(self.differences[0]), position(self.differences[self.differences.len() - 1]));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.up_to(at(middle)) > smaller {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        // Converts -0.0, which precedes 0.0 in the order of doubles, to 0.0.
        at(low) + 0.0
    }

    /// Returns the number of averages that are at most `limit`. The larger one difference of a pair is, the smaller the
    /// other one must be.
    fn up_to(&self, limit: f64) -> usize {
        let (mut count, mut end) = (0, self.differences.len());
        for (i, left) in self.differences.iter().enumerate() {
            while end > i && left.midpoint(self.differences[end - 1]) > limit {
                end -= 1;
            }
            if end <= i {
                break;
            }
            count += end - i;
        }
        count
    }
}

/// Returns the position of a number among all doubles in their order.
fn position(number: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Returns the number at a position.
fn at(position: u64) -> f64 {
    const SIGN: u64 = 1 << 63;
    f64::from_bits(if position & SIGN == 0 { !position } else { position & !SIGN })
}

/// Returns an interval for the centre with at least this confidence.
///
/// Exact for every symmetric distribution. If there are too few differences for any signed-rank interval (fewer than 6
/// at 95 %, or 8 at 99 %), Student's interval is used, which assumes that they are normal. Requires two differences.
fn interval(differences: &[f64], averages: &WalshAverages, confidence: Confidence) -> (f64, f64) {
    match rank_of_tail(differences.len(), confidence.tail()) {
        0 => {
            let (mean, margin) = student::mean_and_margin(differences, confidence);
            (mean - margin, mean + margin)
        }
        rank => averages.between(rank),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed_rank::p_value;
    use proptest::prelude::*;

    #[test]
    fn the_estimate_is_the_median_of_the_averages() {
        // Averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6.
        assert_eq!(WalshAverages::of(&[6.0, 1.0, 2.0]).centre(), 2.75);
        // Of 1, 3: 1, 2, 3.
        assert_eq!(WalshAverages::of(&[1.0, 3.0]).centre(), 2.0);
    }

    #[test]
    fn six_differences_give_their_whole_range() {
        let differences = [0.3, -0.1, 0.2, 0.5, 0.9, 0.4];
        let averages = WalshAverages::of(&differences);
        assert_eq!(interval(&differences, &averages, Confidence::P95), (-0.1, 0.9));
    }

    #[test]
    fn a_centre_needs_finite_differences_of_two_pairs() {
        let refused = |differences: &[f64]| Centre::of(differences, Confidence::P95).unwrap_err();
        assert!(matches!(refused(&[1.0]), StatsError::TooFew { given: 1, .. }));
        assert!(matches!(refused(&[1.0, f64::NAN]), StatsError::NotFinite { number: 2, .. }));
        assert!(matches!(refused(&[1.0; MAX_PAIRS + 1]), StatsError::TooMany { .. }));
        let centre = Centre::of(&[0.3, -0.1, 0.2, 0.5, 0.9, 0.4], Confidence::P95).unwrap();
        assert_eq!((centre.low, centre.high), (-0.1, 0.9));
    }

    proptest! {
        #[test]
        fn the_nth_average_is_that_of_the_sorted_ones(
            differences in prop::collection::vec(prop_oneof![-1e3..1e3f64, Just(0.0), Just(-0.0), Just(0.5)], 1..40)
        ) {
            let mut sorted: Vec<f64> = averages(&differences).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            let found = WalshAverages::of(&differences);
            prop_assert_eq!(found.len(), sorted.len());
            for (nth, average) in sorted.into_iter().enumerate() {
                prop_assert_eq!(found.nth(nth), average);
            }
        }

        /// If the estimate's interval excluded 1 but p didn't, or vice versa, one row would have two verdicts.
        #[test]
        fn interval_and_p_agree(noise in prop::collection::vec(-1.0..1.0f64, 6..100), shift in -0.6..0.6f64) {
            let differences: Vec<f64> = noise.iter().map(|noise| noise + shift).collect();
            let (low, high) = interval(&differences, &WalshAverages::of(&differences), Confidence::P95);
            let excludes = low > 0.0 || high < 0.0;
            prop_assert_eq!(excludes, p_value(&differences).get() <= 0.05);
        }
    }
}
