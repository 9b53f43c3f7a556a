//! Detection limit: the smallest difference that four of five studies like this one show.
//!
//! A formula would require a distribution of the noise, and that of machines is not normal: factors derived from it
//! kept the promise in 57 to 70 % of studies with heavy tails, skew or a mixture. So the study's own rounds are
//! resampled with replacement (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 25), after their
//! centre is moved to zero. The shift that each such study needs is known without a search: the signed-rank test shows
//! a shift by δ if all but the last few Walsh averages are then above zero, so δ is minus one of them. The result
//! covers the needs of four of five studies.
//!
//! A few rounds contain little information on their noise, and the result applies to other studies than the one that
//! prints it. The allowance was determined by simulating studies of 8 to 50 rounds with normal, heavy-tailed, skewed
//! and mixed noise, and families of 1 to 40 (see [`allowance`]): with it, four of five is kept within 5 points from 30
//! rounds. With fewer rounds, the limit is too large (up to 95 of 100 studies under normal noise show it), and 75 of
//! 100 show it where one of ten samples is disturbed (`tests/trial/verdicts.rs`).

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::signed_rank::{EXACT, rank_of_tail};
use super::walsh::{WalshAverages, averages};
use super::{LogDifference, Significance};

const POWER: f64 = 0.8;
/// Number of resampled studies: the share of covered needs, four of five, then has a standard error of two points.
const STUDIES: usize = 400;

/// Returns the smallest difference that four of five studies of `pairs` rounds show, with log ratios drawn from these;
/// `None` if nothing can be shown.
pub(super) fn smallest_shown(log_ratios: &[f64], pairs: usize, significance: Significance) -> Option<LogDifference> {
    // More rounds than these change little except the error, which decreases with their square root.
    let drawn = pairs.min(EXACT);
    let rank = rank_of_tail(drawn, significance.get() / 2.0);
    if rank == 0 || log_ratios.len() < 2 {
        return None;
    }
    let centre = WalshAverages::of(log_ratios).centre();
    let centred: Vec<f64> = log_ratios.iter().map(|log_ratio| log_ratio - centre).collect();
    let mut needs = needs(&centred, drawn, rank);
    let (_, need, _) = needs.select_nth_unstable_by((POWER * STUDIES as f64) as usize, f64::total_cmp);
    let of_more = (drawn as f64 / pairs as f64).sqrt();
    Some(LogDifference::of_log(*need * allowance(log_ratios.len(), rank) * of_more))
}

/// Returns the shift that each of the resampled studies needs.
fn needs(centred: &[f64], pairs: usize, rank: usize) -> Vec<f64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(pairs as u64);
    let mut study = vec![0.0; pairs];
    let mut sums = Vec::with_capacity(pairs * (pairs + 1) / 2);
    let mut need = |_| {
        study.iter_mut().for_each(|round| *round = centred[below(&mut random, centred.len())]);
        sums.clear();
        sums.extend(averages(&study));
        -*sums.select_nth_unstable_by(rank - 1, f64::total_cmp).1
    };
    (0..STUDIES).map(&mut need).collect()
}

/// Returns an integer below `bound`: Lemire (2019), without the rejection, whose bias is 1 in 2^50 here.
fn below(random: &mut impl Rng, bound: usize) -> usize {
    ((u128::from(random.next_u64()) * bound as u128) >> 64) as usize
}

/// Returns the factor of the needs, for the number of rounds from which the noise is known, and for a decisive average
/// near the end of their order.
fn allowance(known: usize, rank: usize) -> f64 {
    1.0 + 2.0 / known as f64 + 3.0 / rank as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::synthetic::Draws;

    fn shown(rounds: usize, noise: f64, pairs: usize, family: usize) -> Option<f64> {
        let log_ratios = Draws::seeded(10).samples(rounds, |z| noise * z);
        smallest_shown(&log_ratios, pairs, Significance::FIVE_PERCENT.shared_by(family)).map(LogDifference::log)
    }

    #[test]
    fn too_few_rounds_can_show_nothing() {
        for (pairs, family) in [(0, 1), (1, 1), (5, 1), (6, 2), (10, 26)] {
            assert_eq!(shown(20, 0.02, pairs, family), None, "{pairs}, {family}");
        }
        assert!(shown(20, 0.02, 6, 1).is_some() && shown(20, 0.02, 11, 40).is_some());
        assert_eq!(smallest_shown(&[0.1], 20, Significance::FIVE_PERCENT), None);
    }

    #[test]
    fn more_rounds_less_noise_and_smaller_families_show_smaller_differences() {
        let of = |noise, pairs, family| shown(30, noise, pairs, family).expect("enough rounds");
        assert!(of(0.005, 18, 1) < of(0.05, 18, 1));
        assert!(of(0.05, 40, 1) < of(0.05, 11, 1) && of(0.05, 400, 1) < of(0.05, 60, 1));
        assert!(of(0.05, 30, 20) > of(0.05, 30, 1));
        assert_eq!(of(0.0, 30, 1), 0.0);
    }

    /// Many rounds of normal noise need (1.96 + 0.84) · s / √n, times √(π / 3) for ranks.
    #[test]
    fn many_rounds_agree_with_normal_theory() {
        let need = shown(60, 1.0, 60, 1).expect("enough rounds");
        let expected = (1.96 + 0.84) / 60f64.sqrt() * (std::f64::consts::PI / 3.0).sqrt();
        assert!((need / expected - 1.0).abs() < 0.15, "{need} and {expected}");
    }

    #[test]
    fn the_same_rounds_give_the_same_figure() {
        assert_eq!(shown(20, 0.02, 20, 5), shown(20, 0.02, 20, 5));
    }
}
