//! How many rounds show a difference, said before they are measured.
//!
//! * The noise of a round comes from earlier rounds. The length of the Hodges-Lehmann interval tells it as the
//!   signed-rank test feels it, whatever its shape (Lehmann 1963, "Nonparametric confidence intervals for a
//!   shift parameter", Annals of Mathematical Statistics 34(4)). A standard deviation doesn't: one outlier
//!   makes it large, and moves the test hardly at all.
//! * The rounds are those of Student's test (Cohen, "Statistical Power Analysis for the Behavioral Sciences",
//!   1988, section 2.3) times π/3. That is what the signed-rank test needs more under normal noise: Hodges &
//!   Lehmann (1956), "The efficiency of some nonparametric competitors of the t-test", Annals of Mathematical
//!   Statistics 27(2).
//! * The least p of n rounds is 2/2ⁿ, and Holm's first step multiplies it by the number of comparisons.
//!
//! The tests draw studies and count how many show what was promised: four of five under normal noise, and 7
//! of 10 if the noise has heavy tails.

use std::f64::consts::PI;

use statrs::distribution::{ContinuousCDF, Normal};

use super::{Confidence, Pair, PairedTax, Significance, student};

/// No run takes more rounds than that: beyond it, longer samples gain more than further rounds.
pub const MOST_ROUNDS: u32 = 2_000;
/// Fewer rounds than that have no interval from which their noise could be told.
pub const LEAST_FOR_NOISE: u32 = 6;
/// How many signs of ranks have a negative sum of at most 0, 1, 2, …: the p of such a sum in units of the least.
const SIGNS: [f64; 10] = [1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 19.0, 25.0, 33.0];
/// What the test needs more than Student's where only few sums are small enough; drawn, as the tests do.
const TOO_FEW_SUMS: f64 = 0.25;
/// Studies of five that show a difference that can be shown.
const POWER: f64 = 0.8;

/// The fewest rounds in which each of so many comparisons can be shown.
pub fn least_rounds(comparisons: usize) -> u32 {
    (1..).find(|rounds| least_p(*rounds, comparisons) < level()).unwrap_or(u32::MAX)
}

/// The smallest log difference that so many rounds with this noise show in four of five studies; None if none.
pub fn smallest_shown(rounds: u32, noise: f64, comparisons: usize) -> Option<f64> {
    let least = least_p(rounds, comparisons);
    match SIGNS.iter().filter(|ways| **ways * least < level()).count() {
        0 => None,
        1 => Some(noise * of_equal_signs(rounds)),
        sums => Some(noise * of_ranks(rounds, comparisons) * (1.0 + TOO_FEW_SUMS / sums as f64)),
    }
}

/// The fewest rounds that show such a difference, a logarithm; none if [`MOST_ROUNDS`] don't.
pub fn rounds_to_show(difference: f64, noise: f64, comparisons: usize) -> Option<u32> {
    let shows = |rounds: u32| smallest_shown(rounds, noise, comparisons).is_some_and(|smallest| smallest <= difference);
    let (mut short, mut enough) = (least_rounds(comparisons), MOST_ROUNDS);
    if shows(short) {
        return Some(short);
    }
    if !shows(enough) {
        return None;
    }
    while enough - short > 1 {
        let middle = short.midpoint(enough);
        *(if shows(middle) { &mut enough } else { &mut short }) = middle;
    }
    Some(enough)
}

/// The noise of a round, as the standard deviation of a normal log ratio; none of too few rounds.
pub fn noise(pairs: &[Pair]) -> Option<f64> {
    let rounds = u32::try_from(pairs.len()).ok().filter(|rounds| *rounds >= LEAST_FOR_NOISE)?;
    let tax = PairedTax::of(pairs, Confidence::P95).ok()?;
    let half = (tax.high.ln() - tax.low.ln()) / 2.0;
    Some(half * f64::from(rounds).sqrt() / (quantile(0.975, rounds) * (PI / 3.0).sqrt()))
}

fn level() -> f64 {
    Significance::FIVE_PERCENT.get()
}

/// After Holm's first step.
fn least_p(rounds: u32, comparisons: usize) -> f64 {
    let rounds = i32::try_from(rounds).unwrap_or(i32::MAX);
    2.0 * comparisons.max(1) as f64 * 0.5f64.powi(rounds)
}

fn of_equal_signs(rounds: u32) -> f64 {
    Normal::standard().inverse_cdf(POWER.powf(1.0 / f64::from(rounds)))
}

/// Student's, of so many rounds.
fn quantile(probability: f64, rounds: u32) -> f64 {
    student::quantile(probability, rounds.saturating_sub(1).max(1) as usize)
}

fn of_ranks(rounds: u32, comparisons: usize) -> f64 {
    let tail = level() / comparisons.max(1) as f64 / 2.0;
    let quantiles = quantile(1.0 - tail, rounds) + quantile(POWER, rounds);
    quantiles * (PI / 3.0 / f64::from(rounds)).sqrt()
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    use statrs::distribution::StudentsT;

    use super::*;

    #[test]
    fn the_fewest_rounds_are_those_of_the_exact_test() {
        assert_eq!([1, 2, 10, 40, 48, 50].map(least_rounds), [6, 7, 9, 11, 11, 11]);
        assert_eq!(smallest_shown(3, 0.01, 2), None);
        assert!(smallest_shown(7, 0.01, 2).is_some());
    }

    #[test]
    fn more_rounds_show_less_and_more_noise_needs_more() {
        let shown = |rounds| smallest_shown(rounds, 0.05, 40).expect("enough rounds");
        assert!((12..200).all(|rounds| shown(rounds + 1) < shown(rounds)));
        let needed = |noise| rounds_to_show(0.02, noise, 40).expect("not too many");
        assert!(needed(0.01) < needed(0.02) && needed(0.02) < needed(0.08));
        assert_eq!(rounds_to_show(0.001, 1.0, 40), None);
        assert_eq!(rounds_to_show(0.02, 0.0, 40), Some(11));
    }

    struct Noise(Xoshiro256PlusPlus);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            Normal::standard().inverse_cdf(self.uniform())
        }

        /// Student's with 3 degrees of freedom.
        fn heavy(&mut self) -> f64 {
            StudentsT::new(0.0, 1.0, 3.0).expect("good").inverse_cdf(self.uniform())
        }
    }

    /// Two-sided p of the signed-rank test, by counting the subsets of ranks.
    fn p(values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let ranks = 1..=sorted.len();
        let above: usize = ranks.clone().zip(&sorted).filter(|(_, value)| **value > 0.0).map(|(rank, _)| rank).sum();
        let all: usize = ranks.clone().sum();
        let mut share = vec![0.0; all + 1];
        share[0] = 1.0;
        for rank in ranks {
            let with_it = |sum: usize| if sum >= rank { share[sum - rank] } else { 0.0 };
            share = (0..=all).map(|sum| (share[sum] + with_it(sum)) / 2.0).collect();
        }
        (2.0 * share[..=above.min(all - above)].iter().sum::<f64>()).min(1.0)
    }

    #[test]
    fn the_test_of_these_tests_is_the_exact_one() {
        assert!((p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) - 2.0 / 64.0).abs() < 1e-12);
        assert!((p(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) - 4.0 / 64.0).abs() < 1e-12);
        assert!((p(&[-6.0, 2.0, 3.0, 4.0, 5.0, 1.0]) - 2.0 * 14.0 / 64.0).abs() < 1e-12);
    }

    /// In how many of a thousand studies a difference is shown.
    fn power(rounds: u32, comparisons: usize, difference: f64, mut draw: impl FnMut() -> f64) -> f64 {
        let shown = |_: &u32| {
            let values: Vec<f64> = (0..rounds).map(|_| draw() + difference).collect();
            p(&values) * (comparisons as f64) < level()
        };
        (0..1_000).filter(shown).count() as f64 / 1e3
    }

    #[test]
    fn four_of_five_studies_show_what_was_promised() {
        let mut noise = Noise(Xoshiro256PlusPlus::seed_from_u64(1));
        for (rounds, comparisons) in [(6, 1), (8, 1), (20, 1), (9, 3), (11, 40), (12, 40), (14, 40), (30, 40), (50, 48)]
        {
            let difference = smallest_shown(rounds, 1.0, comparisons).expect("enough rounds");
            let power = power(rounds, comparisons, difference, || noise.normal());
            assert!((0.75..0.85).contains(&power), "{rounds} rounds of {comparisons}: {power}");
        }
    }

    fn pairs(rounds: u32, mut draw: impl FnMut() -> f64) -> Vec<Pair> {
        (0..rounds).map(|_| Pair { baseline: 1.0, cell: (0.01 * draw()).exp() }).collect()
    }

    #[test]
    fn the_noise_of_normal_rounds_is_their_standard_deviation() {
        let mut draws = Noise(Xoshiro256PlusPlus::seed_from_u64(2));
        for (rounds, from, to) in [(6, 0.9, 1.4), (11, 0.9, 1.2), (50, 0.95, 1.1)] {
            let all: Vec<f64> = (0..400).filter_map(|_| noise(&pairs(rounds, || draws.normal()))).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64 / 0.01;
            assert!((from..to).contains(&mean), "{rounds}: {mean}");
        }
        assert_eq!(noise(&pairs(5, || 1.0)), None);
    }

    /// From 50 rounds of heavy tails: a standard deviation would ask for half as many rounds again.
    #[test]
    fn rounds_are_enough_and_not_too_many_where_tails_are_heavy() {
        let mut draws = Noise(Xoshiro256PlusPlus::seed_from_u64(3));
        let mut known: Vec<f64> = (0..200).filter_map(|_| noise(&pairs(50, || draws.heavy()))).collect();
        known.sort_by(f64::total_cmp);
        let rounds = rounds_to_show(0.01, known[100], 10).expect("not too many");
        let power = power(rounds, 10, 0.01, || 0.01 * draws.heavy());
        assert!((0.67..0.9).contains(&power), "{rounds} rounds: {power}");
    }
}
