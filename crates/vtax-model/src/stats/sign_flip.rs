//! Is the sum of differences larger than chance, if the sign of each is a coin's?
//!
//! The randomization test of Fisher ("The Design of Experiments", 1935, section 21): without a
//! difference between the arms, a pair's log ratio is as likely as its negative, because the order
//! within the round was drawn. No distribution is assumed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::PValue;

/// Up to here all sign patterns are counted: 2^16 sums in each half.
const EXACT: usize = 32;
/// Patterns drawn above that.
const DRAWN: u32 = 100_000;

/// The two-sided p-value of |Σ differences|: exact up to 32 differences, above that from 100,000
/// patterns, seeded from the differences' magnitudes (so that swapping the arms changes nothing).
pub(super) fn p_value(differences: &[f64]) -> PValue {
    let magnitudes: Vec<f64> = differences.iter().map(|value| value.abs()).collect();
    let total: f64 = magnitudes.iter().sum();
    // Sums that differ only by rounding count as equal.
    let bound = differences.iter().sum::<f64>().abs() - 1e-12 * total;
    if bound <= 0.0 {
        return PValue::ONE;
    }
    let p = if differences.len() <= EXACT { exact(&magnitudes, bound) } else { drawn(&magnitudes, bound) };
    PValue::new(p).expect("the pattern that was measured is counted, so p is above 0")
}

/// The share of all 2^n patterns whose sum reaches `bound` on either side: those of the first half
/// meet those of the second (Horowitz & Sahni 1974, "Computing partitions with applications to the
/// knapsack problem", JACM 21(2)), which takes 2^(n/2) sums instead of 2^n.
fn exact(magnitudes: &[f64], bound: f64) -> f64 {
    let (first, second) = magnitudes.split_at(magnitudes.len() / 2);
    let (first, second) = (sorted_sums(first), sorted_sums(second));
    let mut from = second.len();
    let mut reaching = 0u64;
    for sum in &first {
        while from > 0 && sum + second[from - 1] >= bound {
            from -= 1;
        }
        reaching += (second.len() - from) as u64;
    }
    // Every pattern has its mirror image, and bound > 0 keeps the two sides apart.
    2.0 * reaching as f64 / (first.len() * second.len()) as f64
}

/// The sums of all sign patterns, ascending.
fn sorted_sums(magnitudes: &[f64]) -> Vec<f64> {
    magnitudes.iter().fold(vec![0.0], |sums, value| with_and_without(&sums, *value))
}

/// Every ascending sum less and plus the value: two ascending lists, merged.
fn with_and_without(sums: &[f64], value: f64) -> Vec<f64> {
    let mut merged = Vec::with_capacity(2 * sums.len());
    let mut more = sums.iter().map(|sum| sum + value).peekable();
    for less in sums.iter().map(|sum| sum - value) {
        while let Some(sum) = more.next_if(|sum| *sum < less) {
            merged.push(sum);
        }
        merged.push(less);
    }
    merged.extend(more);
    merged
}

/// (k + 1) / (m + 1): Phipson & Smyth (2010), "Permutation p-values should never be zero",
/// Statistical Applications in Genetics and Molecular Biology 9(1).
fn drawn(magnitudes: &[f64], bound: f64) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed_of(magnitudes));
    let reaching = (0..DRAWN).filter(|_| drawn_sum(magnitudes, &mut random).abs() >= bound).count();
    (reaching as f64 + 1.0) / (f64::from(DRAWN) + 1.0)
}

fn drawn_sum(magnitudes: &[f64], random: &mut Xoshiro256PlusPlus) -> f64 {
    let mut sum = 0.0;
    for values in magnitudes.chunks(64) {
        let signs = random.next_u64();
        for (bit, value) in values.iter().enumerate() {
            sum += if signs >> bit & 1 == 1 { *value } else { -value };
        }
    }
    sum
}

/// FNV-1a over the magnitudes' bits.
fn seed_of(magnitudes: &[f64]) -> u64 {
    magnitudes
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::synthetic::Draws;

    fn p(differences: &[f64]) -> f64 {
        p_value(differences).get()
    }

    #[test]
    fn counted_by_hand() {
        // Of ±1 ±2 ±3 only +6 and -6 reach 6.
        assert_eq!(p(&[1.0, 2.0, 3.0]), 2.0 / 8.0);
        // 4 is reached by ±6 and ±4.
        assert_eq!(p(&[3.0, 2.0, -1.0]), 4.0 / 8.0);
        // Balanced: every pattern reaches 0.
        assert_eq!(p(&[1.0, 2.0, -3.0]), 1.0);
        assert_eq!(p(&[0.0, 0.0]), 1.0);
        assert_eq!(p(&[-0.3]), 1.0);
        // All of one sign: the two extreme patterns.
        assert_eq!(p(&[0.1; 10]), 2.0 / 1024.0);
        // Equal magnitudes: the sign test. 9 of 10 up: (1 + 10) · 2 / 1024.
        let mut nine = [0.1; 10];
        nine[3] = -0.1;
        assert_eq!(p(&nine), 22.0 / 1024.0);
    }

    /// Fisher's own example: Darwin's maize, "The Design of Experiments", section 21: 863 of
    /// 32,768 patterns reach the sum of 314 on one side or 1,726 on both.
    #[test]
    fn darwin_s_maize() {
        let eighths_of_an_inch =
            [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
        assert_eq!(eighths_of_an_inch.iter().sum::<f64>(), 314.0);
        assert_eq!(p(&eighths_of_an_inch), 1726.0 / 32768.0);
    }

    #[test]
    fn every_pattern_counted_one_by_one_gives_the_same() {
        let mut draws = Draws::seeded(3);
        for n in 1..=11 {
            let differences = draws.samples(n, |z| z + 0.5);
            let bound = differences.iter().sum::<f64>().abs() * (1.0 - 1e-12);
            let sum = |signs: u32| {
                let signed = |(i, d): (usize, &f64)| if signs >> i & 1 == 1 { *d } else { -d };
                differences.iter().enumerate().map(signed).sum::<f64>()
            };
            let reaching = (0..1u32 << n).filter(|signs| sum(*signs).abs() >= bound).count();
            assert_eq!(p(&differences), reaching as f64 / f64::from(1u32 << n), "n = {n}");
        }
    }

    #[test]
    fn drawn_patterns_agree_with_counted_ones_and_repeat() {
        let mut draws = Draws::seeded(4);
        let differences = draws.samples(24, |z| z + 0.45);
        let magnitudes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
        let bound = differences.iter().sum::<f64>().abs() * (1.0 - 1e-12);
        let (exact, drawn_once) = (exact(&magnitudes, bound), drawn(&magnitudes, bound));
        let error = (exact * (1.0 - exact) / f64::from(DRAWN)).sqrt();
        assert!((exact - drawn_once).abs() < 4.0 * error, "{exact} and {drawn_once}");
        assert_eq!(drawn_once, drawn(&magnitudes, bound));
    }

    #[test]
    fn many_differences_of_one_sign_are_never_impossible() {
        assert_eq!(p(&[0.1; 70]), 1.0 / 100_001.0);
    }
}
