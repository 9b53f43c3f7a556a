//! The centre of symmetric differences without assuming their shape: Walsh averages.
//!
//! Hodges & Lehmann (1963), "Estimates of location based on rank tests", Annals of Mathematical Statistics 34(2); the
//! interval is Tukey's inversion of Wilcoxon's signed-rank test (`signed_rank.rs`): Hollander, Wolfe & Chicken,
//! "Nonparametric Statistical Methods", 3rd edition (2014), sections 3.2 and 3.3.

use super::error::finite;
use super::signed_rank::rank_of_tail;
use super::summary::median_of_sorted;
use super::{Confidence, StatsError, student};

/// Differences beyond this would only fill memory: the averages grow with the square.
pub(super) const MAX_PAIRS: usize = 2_000;

/// The centre of differences that were taken pair by pair, and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centre {
    /// The Hodges-Lehmann estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
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

/// The means of all pairs of differences, each difference with itself included, sorted.
pub(super) struct WalshAverages {
    sorted: Vec<f64>,
}

/// The same in no order: n (n + 1) / 2 averages.
pub(super) fn averages(differences: &[f64]) -> impl Iterator<Item = f64> {
    let with_later = |(i, left): (usize, &f64)| {
        let left = *left;
        differences[i..].iter().map(move |right| left.midpoint(*right))
    };
    differences.iter().enumerate().flat_map(with_later)
}

impl WalshAverages {
    /// The averages of at least one difference.
    pub(super) fn of(differences: &[f64]) -> Self {
        let mut sorted: Vec<f64> = averages(differences).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }

    /// The Hodges-Lehmann estimate: the median of the averages.
    pub(super) fn centre(&self) -> f64 {
        median_of_sorted(&self.sorted)
    }

    /// The averages that lie `rank` from either end, counted from 1.
    fn between(&self, rank: usize) -> (f64, f64) {
        (self.sorted[rank - 1], self.sorted[self.sorted.len() - rank])
    }
}

/// An interval for the centre with at least this confidence.
///
/// Exact for every symmetric distribution. Where there are too few differences for any signed-rank interval (fewer than
/// 6 at 95 %, than 8 at 99 %), Student's, which assumes that they are normal. Needs two differences.
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
        /// An estimate that excludes "the same" beside a p that doesn't, or the other way round, would be
        /// two verdicts on one row.
        #[test]
        fn interval_and_p_agree(noise in prop::collection::vec(-1.0..1.0f64, 6..100), shift in -0.6..0.6f64) {
            let differences: Vec<f64> = noise.iter().map(|noise| noise + shift).collect();
            let (low, high) = interval(&differences, &WalshAverages::of(&differences), Confidence::P95);
            let excludes = low > 0.0 || high < 0.0;
            prop_assert_eq!(excludes, p_value(&differences).get() <= 0.05);
        }
    }
}
