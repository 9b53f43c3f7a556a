//! The centre of symmetric differences without assuming their shape: Walsh averages.
//!
//! Hodges & Lehmann (1963), "Estimates of location based on rank tests", Annals of Mathematical
//! Statistics 34(2); the interval is Tukey's inversion of Wilcoxon's signed-rank test: Hollander,
//! Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd edition (2014), sections 3.2 and 3.3.

use statrs::distribution::{ContinuousCDF, Normal};

use super::summary::median_of_sorted;
use super::{Confidence, student};

/// Above this many differences the rank statistic's normal approximation is used, whose interval is
/// then wider than the exact one by a few of more than two thousand ranks.
const EXACT: usize = 64;

/// The means of all pairs of differences, each difference with itself included, sorted.
pub(super) struct WalshAverages {
    sorted: Vec<f64>,
}

impl WalshAverages {
    /// Of at least one difference: n (n + 1) / 2 averages.
    pub(super) fn of(differences: &[f64]) -> Self {
        let mut sorted: Vec<f64> = differences
            .iter()
            .enumerate()
            .flat_map(|(i, left)| differences[i..].iter().map(|right| left.midpoint(*right)))
            .collect();
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
/// Exact for every symmetric distribution. Where there are too few differences for any signed-rank
/// interval (fewer than 6 at 95 %, than 8 at 99 %), Student's, which assumes that they are
/// normal. Needs two differences.
pub(super) fn interval(differences: &[f64], averages: &WalshAverages, confidence: Confidence) -> (f64, f64) {
    match rank_of_interval(differences.len(), confidence) {
        0 => {
            let (mean, margin) = student::mean_and_margin(differences, confidence);
            (mean - margin, mean + margin)
        }
        rank => averages.between(rank),
    }
}

/// How far from the ends of the sorted averages the interval's ends are, counted from 1: the
/// number of values of the signed-rank statistic that together are at most as likely as one tail.
/// 0 if there is none.
fn rank_of_interval(n: usize, confidence: Confidence) -> usize {
    if n > EXACT {
        return approximate_rank(n, confidence);
    }
    let mut below = 0.0;
    signed_rank_probabilities(n)
        .iter()
        .take_while(|probability| {
            below += **probability;
            below <= confidence.tail()
        })
        .count()
}

/// Probabilities of the signed-rank statistic's values 0, 1, … if each rank 1..=n counts with
/// probability one half.
fn signed_rank_probabilities(n: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; n * (n + 1) / 2 + 1];
    probabilities[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..probabilities.len()).rev() {
            let with = if sum >= rank { probabilities[sum - rank] } else { 0.0 };
            probabilities[sum] = 0.5 * (probabilities[sum] + with);
        }
    }
    probabilities
}

/// Hollander, Wolfe & Chicken, equation 3.41.
fn approximate_rank(n: usize, confidence: Confidence) -> usize {
    let n = n as f64;
    let mean = n * (n + 1.0) / 4.0;
    let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let rank = mean - Normal::standard().inverse_cdf(1.0 - confidence.tail()) * sd;
    rank.floor().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_the_median_of_the_averages() {
        // Averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6.
        assert_eq!(WalshAverages::of(&[6.0, 1.0, 2.0]).centre(), 2.75);
        // Of 1, 3: 1, 2, 3.
        assert_eq!(WalshAverages::of(&[1.0, 3.0]).centre(), 2.0);
    }

    /// The usual table of Wilcoxon's critical values, two-sided: the rank is one more.
    #[test]
    fn ranks_are_those_of_the_published_table() {
        for (n, critical) in
            [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (15, 25), (18, 40), (20, 52), (30, 137)]
        {
            assert_eq!(rank_of_interval(n, Confidence::P95), critical + 1, "n = {n}");
        }
        for (n, critical) in [(8, 0), (10, 3), (20, 37)] {
            assert_eq!(rank_of_interval(n, Confidence::P99), critical + 1, "n = {n}");
        }
        assert_eq!(rank_of_interval(5, Confidence::P95), 0);
        assert_eq!(rank_of_interval(7, Confidence::P99), 0);
    }

    #[test]
    fn the_approximation_continues_the_exact_ranks() {
        for confidence in [Confidence::P95, Confidence::P99] {
            let (exact, approximate) = (rank_of_interval(EXACT, confidence), approximate_rank(EXACT, confidence));
            assert!((exact - 5..=exact).contains(&approximate), "{exact} and {approximate}");
        }
    }

    #[test]
    fn six_differences_give_their_whole_range() {
        let differences = [0.3, -0.1, 0.2, 0.5, 0.9, 0.4];
        let averages = WalshAverages::of(&differences);
        assert_eq!(interval(&differences, &averages, Confidence::P95), (-0.1, 0.9));
    }
}
