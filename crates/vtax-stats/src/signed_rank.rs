//! Wilcoxon's signed-rank test for differences on one side of zero.
//!
//! Wilcoxon (1945), "Individual comparisons by ranking methods", Biometrics Bulletin 1(6). The differences are ranked
//! by their size; the statistic is the sum of the ranks of the positive ones. Without a difference between the arms,
//! each sign is as random as a fair coin, so the statistic's distribution is known for any symmetric noise, and one
//! outlier has no more weight than the largest rank.
//!
//! * Ties: equal sizes share the mean of their ranks, and the distribution is that of these ranks (conditional on the
//!   ties), not that of untied ranks.
//! * Zeros: Pratt (1959), "Remarks on zeros and ties in the Wilcoxon signed rank procedures", JASA 54(287): they are
//!   ranked with the others and then omitted, since a zero is on neither side. If they are omitted first, as Wilcoxon
//!   did, a difference that moves towards zero can become more significant.
//! * Up to 64 differences the distribution is exact. Above, it is normal, with the variance of the actual ranks (which
//!   accounts for ties and zeros) and a continuity correction: Hollander, Wolfe & Chicken, "Nonparametric Statistical
//!   Methods", 3rd edition (2014), section 3.1.

use std::sync::OnceLock;

use statrs::distribution::{ContinuousCDF, Normal};

use super::PValue;

/// Number of differences up to which every sum of ranks is counted.
pub(super) const EXACT: usize = 64;

/// Returns the two-sided p-value.
pub(super) fn p_value(differences: &[f64]) -> PValue {
    let ranks = Ranks::of(differences);
    let tail = match differences.len() {
        0..=EXACT => ranks.exact_tail(),
        _ => ranks.normal_tail(),
    };
    // The normal tail of two thousand equal signs is below the smallest double.
    PValue::new((2.0 * tail).clamp(f64::MIN_POSITIVE, 1.0)).expect("clamped to what a p-value can be")
}

/// Returns the distance of an interval's bounds from the ends of the sorted Walsh averages that leaves `tail` on either
/// side, counted from 1: the number of values of the statistic that together are at most as likely. 0 if there is none,
/// because `n` differences are too few.
///
/// It uses the same distributions as [`p_value`], so that (without ties) an interval excludes zero exactly if p is at
/// most twice the tail.
pub(super) fn rank_of_tail(n: usize, tail: f64) -> usize {
    match n {
        0..=EXACT => untied(n).partition_point(|below| *below <= tail),
        _ => approximate_rank(n, tail),
    }
}

fn approximate_rank(n: usize, tail: f64) -> usize {
    let n = n as f64;
    let mean = n * (n + 1.0) / 4.0;
    let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let rank = mean + 0.5 - Normal::standard().inverse_cdf(1.0 - tail) * sd;
    rank.floor().max(0.0) as usize
}

/// Ranks of the differences that aren't zero, doubled so that shared ranks are integers.
struct Ranks {
    doubled: Vec<u32>,
    /// Smaller of the doubled sums of the two signs.
    smaller: u32,
    /// Set if no two differences have the same size, and none is zero.
    untied: bool,
}

impl Ranks {
    fn of(differences: &[f64]) -> Self {
        let mut by_size = differences.to_vec();
        by_size.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
        let mut ranks = Ranks { doubled: Vec::new(), smaller: 0, untied: true };
        let (mut above, mut passed) = (0, 0);
        for tied in by_size.chunk_by(|a, b| a.abs() == b.abs()) {
            // The first of them has the rank `passed` + 1, and the last one `passed` + their number.
            let shared = (2 * passed + tied.len() + 1) as u32;
            passed += tied.len();
            ranks.untied &= tied.len() == 1 && tied[0] != 0.0;
            if tied[0] != 0.0 {
                above += shared * tied.iter().filter(|difference| **difference > 0.0).count() as u32;
                ranks.doubled.extend(tied.iter().map(|_| shared));
            }
        }
        ranks.smaller = above.min(ranks.doubled.iter().sum::<u32>() - above);
        ranks
    }

    /// Returns the probability that a sum is at most as large as the smaller of the two.
    fn exact_tail(&self) -> f64 {
        match self.untied {
            true => untied(self.doubled.len())[self.smaller as usize / 2],
            false => sums(&self.doubled, self.smaller as usize).iter().sum(),
        }
    }

    fn normal_tail(&self) -> f64 {
        let ranks = || self.doubled.iter().map(|rank| f64::from(*rank));
        let (mean, sd) = (ranks().sum::<f64>() / 2.0, (ranks().map(|rank| rank * rank).sum::<f64>() / 4.0).sqrt());
        // Half a rank for continuity is one doubled rank.
        let off = (mean - f64::from(self.smaller) - 1.0).max(0.0);
        if sd > 0.0 { Normal::standard().sf(off / sd) } else { 0.5 }
    }
}

/// Returns the probabilities of the sums 0, 1, …, `most`, if each rank is included with probability one half.
fn sums(ranks: &[u32], most: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; most + 1];
    probabilities[0] = 1.0;
    for rank in ranks.iter().map(|rank| *rank as usize) {
        for sum in (0..=most).rev() {
            let with = if sum >= rank { probabilities[sum - rank] } else { 0.0 };
            probabilities[sum] = 0.5 * (probabilities[sum] + with);
        }
    }
    probabilities
}

/// Returns the probabilities that the sum of untied ranks 1..=n is at most 0, 1, …; computed once for each n.
fn untied(n: usize) -> &'static [f64] {
    static KNOWN: [OnceLock<Vec<f64>>; EXACT + 1] = [const { OnceLock::new() }; EXACT + 1];
    KNOWN[n].get_or_init(|| {
        let ranks: Vec<u32> = (1..=n as u32).collect();
        let mut below = 0.0;
        let mut add = |probability: f64| {
            below += probability;
            below
        };
        sums(&ranks, n * (n + 1) / 2).into_iter().map(&mut add).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::synthetic::Draws;
    use proptest::prelude::*;

    fn p(differences: &[f64]) -> f64 {
        p_value(differences).get()
    }

    #[test]
    fn counted_by_hand() {
        // For ±1 ±2 ±3, only two of eight patterns have all ranks on one side.
        assert_eq!(p(&[0.1, 0.2, 0.3]), 2.0 / 8.0);
        // Rank 1 is negative: sums of 0 and 1, on both sides.
        assert_eq!(p(&[3.0, 2.0, -1.0]), 4.0 / 8.0);
        assert_eq!(p(&[-0.3]), 1.0);
        assert_eq!(p(&[]), 1.0);
        assert_eq!(p(&[0.0, 0.0]), 1.0);
        assert_eq!(p(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]), 2.0 / 1024.0);
    }

    /// Equal sizes turn it into the sign test: 9 of 10 are positive, (1 + 10) · 2 / 1024.
    #[test]
    fn ties_have_the_distribution_of_their_own_ranks() {
        let mut nine = [0.1; 10];
        nine[3] = -0.1;
        assert_eq!(p(&nine), 22.0 / 1024.0);
    }

    /// Pratt: the zero has rank 1, and the sums of 2, 3, 4 that are at most 2 are 0 and 2.
    #[test]
    fn zeros_are_ranked_and_omitted() {
        assert_eq!(p(&[0.0, -1.0, 2.0, 3.0]), 2.0 * 2.0 / 8.0);
    }

    #[test]
    fn every_pattern_counted_one_by_one_gives_the_same() {
        let mut draws = Draws::seeded(3);
        for n in 1..=11 {
            let mut differences = draws.samples(n, |z| ((z + 0.5) * 4.0).round() / 4.0);
            differences.dedup_by(|a, b| *a == 0.0 && *b == 0.0);
            let ranks = Ranks::of(&differences);
            let sum = |signs: u32| {
                let positive = |(i, rank): (usize, &u32)| if signs >> i & 1 == 1 { *rank } else { 0 };
                ranks.doubled.iter().enumerate().map(positive).sum::<u32>()
            };
            let patterns = 1u32 << ranks.doubled.len();
            let small = (0..patterns).filter(|signs| sum(*signs) <= ranks.smaller).count();
            let expected = (2.0 * small as f64 / f64::from(patterns)).min(1.0);
            assert!((p(&differences) - expected).abs() < 1e-12, "{differences:?}");
        }
    }

    #[test]
    fn the_normal_tail_continues_the_exact_one() {
        let mut draws = Draws::seeded(4);
        for shift in [0.0, 0.2, 0.4, 0.6] {
            let differences = draws.samples(EXACT, |z| z + shift);
            let ranks = Ranks::of(&differences);
            let (exact, normal) = (ranks.exact_tail(), ranks.normal_tail());
            assert!((normal / exact - 1.0).abs() < 0.03 || (normal - exact).abs() < 1e-4, "{exact} and {normal}");
        }
    }

    #[test]
    fn many_differences_of_one_sign_are_never_impossible() {
        let all: Vec<f64> = (1..=2_000).map(f64::from).collect();
        assert!(p(&all) > 0.0);
        assert_eq!(p(&[0.0; 70]), 1.0);
        assert!(p(&[0.1; 70]) < 1e-12, "equal sizes of one sign are as clear as any");
    }

    /// Usual table of Wilcoxon's two-sided critical values: the rank is one higher.
    #[test]
    fn ranks_are_those_of_the_published_table() {
        for (n, critical) in
            [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (15, 25), (18, 40), (20, 52), (30, 137)]
        {
            assert_eq!(rank_of_tail(n, 0.025), critical + 1, "n = {n}");
        }
        for (n, critical) in [(8, 0), (10, 3), (20, 37)] {
            assert_eq!(rank_of_tail(n, 0.005), critical + 1, "n = {n}");
        }
        assert_eq!(rank_of_tail(5, 0.025), 0);
        assert_eq!(rank_of_tail(7, 0.005), 0);
    }

    #[test]
    fn the_approximation_continues_the_exact_ranks() {
        for tail in [0.025, 0.005, 0.0005] {
            let (exact, approximate) = (rank_of_tail(EXACT, tail), approximate_rank(EXACT, tail));
            assert!((exact - 9..=exact + 1).contains(&approximate), "{exact} and {approximate}");
        }
    }

    proptest! {
        #[test]
        fn the_other_sign_has_the_same_p(differences in prop::collection::vec(-5.0..5.0f64, 1..80)) {
            let turned: Vec<f64> = differences.iter().map(|difference| -difference).collect();
            prop_assert_eq!(p(&differences), p(&turned));
        }
    }
}
