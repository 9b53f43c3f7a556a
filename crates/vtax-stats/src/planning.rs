//! Planning: the number of rounds needed to show a difference.
//!
//! * The noise of a round comes from earlier rounds. The length of the Hodges-Lehmann interval measures it as it
//!   affects the signed-rank test, whatever its shape (Lehmann 1963, "Nonparametric confidence intervals for a shift
//!   parameter", Annals of Mathematical Statistics 34(4)). A standard deviation doesn't: an outlier increases it, but
//!   hardly affects the test.
//! * The number of rounds is that of Student's test (Cohen, "Statistical Power Analysis for the Behavioral Sciences",
//!   1988, section 2.3) times π/3, which is what the signed-rank test additionally requires under normal noise: Hodges
//!   & Lehmann (1956), "The efficiency of some nonparametric competitors of the t-test", Annals of Mathematical
//!   Statistics 27(2).
//! * The smallest p of n rounds is 2/2ⁿ, and Holm's first step multiplies it by the number of comparisons.
//! * The noise itself is an estimate. A plan that took it as exact would keep its promise in fewer than four of five
//!   runs, because underestimated noise costs more of them than overestimated noise gains. So differences grow from a
//!   quantile of the normal distribution to that of the noncentral t: Julious & Owen (2006), "Sample size calculations
//!   for clinical studies allowing for uncertainty about the variance", Pharmaceutical Statistics 5(1). The noise of a
//!   machine also varies between runs: see `BETWEEN_RUNS`.
//!
//! The tests draw studies and count how many show the promised difference: four of five under normal noise, whether it
//! is known or estimated, and 7 of 10 if the noise has heavy tails.

use std::f64::consts::PI;

use statrs::distribution::{ContinuousCDF, Normal};

use super::{Confidence, Pair, PairedTax, Significance, student};

/// Maximum number of rounds of a run. Beyond it, longer samples gain more than additional rounds.
pub const MOST_ROUNDS: u32 = 2_000;
/// Minimum number of rounds with an interval from which their noise can be estimated.
pub const LEAST_FOR_NOISE: u32 = 6;
/// Number of sign patterns of ranks with a negative sum of at most 0, 1, 2, …, which is the p of such a sum in units of
/// the minimum.
const SIGNS: [f64; 10] = [1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 19.0, 25.0, 33.0];
/// Addition to Student's test where only few sums are small enough; determined by simulation, like the tests.
const TOO_FEW_SUMS: f64 = 0.25;
/// Share of studies that show a detectable difference: four of five.
const POWER: f64 = 0.8;
/// Variation of a machine's noise between two runs of one plan, as the degrees of freedom of an equally uncertain
/// estimate: the standard deviation of its logarithm is one quarter, and `1/√(2ν)` equals that for ν = 8.
const BETWEEN_RUNS: f64 = 8.0;

/// Noise of a round: the standard deviation of a log ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundNoise {
    /// Standard deviation of the equivalent normal distribution.
    pub sd: f64,
    /// Degrees of freedom of the estimate; infinite if it is known.
    pub degrees: f64,
}

impl RoundNoise {
    /// Estimates the noise from the rounds of a study; `None` if they are too few.
    pub fn of(pairs: &[Pair]) -> Option<RoundNoise> {
        let tax = PairedTax::of(pairs, Confidence::P95).ok()?;
        RoundNoise::of_interval(tax.low, tax.high, tax.pairs)
    }

    /// Estimates the noise from the 95 % interval of a [`PairedTax`]; `None` if its rounds are too few.
    pub fn of_interval(low: f64, high: f64, rounds: usize) -> Option<RoundNoise> {
        let rounds = u32::try_from(rounds).ok().filter(|rounds| *rounds >= LEAST_FOR_NOISE)?;
        let half = (high.ln() - low.ln()) / 2.0;
        let sd = half * f64::from(rounds).sqrt() / (quantile(0.975, rounds) * (PI / 3.0).sqrt());
        (sd.is_finite() && sd >= 0.0).then_some(RoundNoise { sd, degrees: f64::from(rounds - 1) })
    }

    /// Pools the noise of several comparisons of one kind with the same baseline. Because they share it, they contain
    /// hardly more information than half as many independent ones.
    pub fn pooled(noises: &[RoundNoise]) -> Option<RoundNoise> {
        let count = noises.len() as f64;
        let mean = |of: fn(&RoundNoise) -> f64| noises.iter().map(of).sum::<f64>() / count;
        let sd = mean(|noise| noise.sd * noise.sd).sqrt();
        let degrees = mean(|noise| noise.degrees) * (count / 2.0).max(1.0);
        (!noises.is_empty()).then_some(RoundNoise { sd, degrees })
    }

    /// Returns the expected noise in another run, in which the machine may be noisier.
    #[must_use]
    pub fn of_another_run(self) -> RoundNoise {
        RoundNoise { degrees: (self.degrees.recip() + BETWEEN_RUNS.recip()).recip(), ..self }
    }

    /// Returns the factor by which a difference must be larger than with exactly known noise, for `needed` standard
    /// errors.
    fn allowance(self, needed: f64) -> f64 {
        let power = Normal::standard().inverse_cdf(POWER);
        noncentral_t(power, self.degrees, needed - power) / needed
    }
}

/// Returns the quantile at a normal deviate `z`, by Abramowitz & Stegun, "Handbook of Mathematical Functions" (1964),
/// 26.7.10.
fn noncentral_t(z: f64, degrees: f64, noncentrality: f64) -> f64 {
    let shrunk = 1.0 - 0.25 / degrees;
    let spread = z * z / (2.0 * degrees);
    let square = shrunk * shrunk - spread;
    let root = (spread * noncentrality * noncentrality + z * z * square).max(0.0).sqrt();
    (shrunk * noncentrality + root) / square
}

/// Returns the minimum number of rounds in which each of this number of comparisons can be shown.
pub fn least_rounds(comparisons: usize) -> u32 {
    (1..).find(|rounds| least_p(*rounds, comparisons) < level()).unwrap_or(u32::MAX)
}

/// Returns the smallest log difference that this number of rounds with this noise shows in four of five studies; `None`
/// if none.
pub fn smallest_shown(rounds: u32, noise: RoundNoise, comparisons: usize) -> Option<f64> {
    let least = least_p(rounds, comparisons);
    let of_known = match SIGNS.iter().filter(|ways| **ways * least < level()).count() {
        0 => return None,
        1 => of_equal_signs(rounds),
        sums => of_ranks(rounds, comparisons) * (1.0 + TOO_FEW_SUMS / sums as f64),
    };
    Some(noise.sd * of_known * noise.allowance(of_known * f64::from(rounds).sqrt()))
}

/// Returns the minimum number of rounds that show this log difference; `None` if even [`MOST_ROUNDS`] don't.
pub fn rounds_to_show(difference: f64, noise: RoundNoise, comparisons: usize) -> Option<u32> {
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

fn level() -> f64 {
    Significance::FIVE_PERCENT.get()
}

/// Returns the minimum p after Holm's first step.
fn least_p(rounds: u32, comparisons: usize) -> f64 {
    let rounds = i32::try_from(rounds).unwrap_or(i32::MAX);
    2.0 * comparisons.max(1) as f64 * 0.5f64.powi(rounds)
}

fn of_equal_signs(rounds: u32) -> f64 {
    Normal::standard().inverse_cdf(POWER.powf(1.0 / f64::from(rounds)))
}

/// Returns the quantile of Student's t for this number of rounds.
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

    fn known(sd: f64) -> RoundNoise {
        RoundNoise { sd, degrees: f64::INFINITY }
    }

    #[test]
    fn the_fewest_rounds_are_those_of_the_exact_test() {
        assert_eq!([1, 2, 10, 40, 48, 50].map(least_rounds), [6, 7, 9, 11, 11, 11]);
        assert_eq!(smallest_shown(3, known(0.01), 2), None);
        assert!(smallest_shown(7, known(0.01), 2).is_some());
    }

    #[test]
    fn more_rounds_show_less_and_more_noise_needs_more() {
        let shown = |rounds| smallest_shown(rounds, known(0.05), 40).expect("enough rounds");
        assert!((12..200).all(|rounds| shown(rounds + 1) < shown(rounds)));
        let needed = |noise| rounds_to_show(0.02, known(noise), 40).expect("not too many");
        assert!(needed(0.01) < needed(0.02) && needed(0.02) < needed(0.08));
        assert_eq!(rounds_to_show(0.001, known(1.0), 40), None);
        assert_eq!(rounds_to_show(0.02, known(0.0), 40), Some(11));
    }

    struct Noise(Xoshiro256PlusPlus);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            Normal::standard().inverse_cdf(self.uniform())
        }

        /// Returns a number from Student's t with 3 degrees of freedom.
        fn heavy(&mut self) -> f64 {
            StudentsT::new(0.0, 1.0, 3.0).expect("good").inverse_cdf(self.uniform())
        }
    }

    /// Returns the two-sided p of the signed-rank test, by counting the subsets of ranks.
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

    /// Returns the share of a thousand studies in which a difference is shown.
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
            let difference = smallest_shown(rounds, known(1.0), comparisons).expect("enough rounds");
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
            let all: Vec<f64> = (0..400)
                .filter_map(|_| RoundNoise::of(&pairs(rounds, || draws.normal())))
                .map(|noise| noise.sd)
                .collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64 / 0.01;
            assert!((from..to).contains(&mean), "{rounds}: {mean}");
        }
        assert_eq!(RoundNoise::of(&pairs(5, || 1.0)), None);
    }

    /// 50 rounds with heavy tails: planning by the standard deviation would require half as many rounds again.
    #[test]
    fn rounds_are_enough_and_not_too_many_where_tails_are_heavy() {
        let mut draws = Noise(Xoshiro256PlusPlus::seed_from_u64(3));
        let estimates = (0..200).filter_map(|_| RoundNoise::of(&pairs(50, || draws.heavy())));
        let mut sds: Vec<f64> = estimates.map(|noise| noise.sd).collect();
        sds.sort_by(f64::total_cmp);
        let rounds = rounds_to_show(0.01, known(sds[100]), 10).expect("not too many");
        let power = power(rounds, 10, 0.01, || 0.01 * draws.heavy());
        assert!((0.67..0.9).contains(&power), "{rounds} rounds: {power}");
    }

    /// The promise of a pilot was kept in 68 of 100 runs, not in 80.
    #[test]
    fn four_of_five_studies_show_what_an_estimate_of_the_noise_promised() {
        let mut draws = Noise(Xoshiro256PlusPlus::seed_from_u64(4));
        for (pilot, rounds, comparisons) in [(6, 12, 10), (6, 30, 40), (11, 20, 10), (25, 25, 24)] {
            let mut kept = 0;
            for _ in 0..600 {
                // The noise of the machine varies from run to run.
                let sd = (0.25 * draws.normal()).exp();
                let noise = RoundNoise::of(&pairs(pilot, || draws.normal())).expect("enough rounds").of_another_run();
                let difference = smallest_shown(rounds, noise, comparisons).expect("enough rounds") / 0.01;
                let values: Vec<f64> = (0..rounds).map(|_| sd * draws.normal() + difference).collect();
                kept += u32::from(p(&values) * (comparisons as f64) < level());
            }
            let share = f64::from(kept) / 600.0;
            assert!((0.75..0.95).contains(&share), "{pilot} rounds, then {rounds} of {comparisons}: {share}");
        }
    }

    #[test]
    fn the_quantile_is_that_of_the_table() {
        // Quantiles of the central t with 10 degrees of freedom: 0.879 at 80 %, 1.372 at 90 %.
        for (z, quantile) in [(0.8416, 0.879), (1.2816, 1.372)] {
            assert!((noncentral_t(z, 10.0, 0.0) - quantile).abs() < 0.01, "{z}");
        }
        assert!((noncentral_t(0.8416, f64::INFINITY, 2.0) - 2.8416).abs() < 1e-9);
    }

    #[test]
    fn several_rows_know_more_of_the_noise_than_one() {
        let one = RoundNoise { sd: 3.0, degrees: 10.0 };
        assert_eq!(RoundNoise::pooled(&[one]), Some(one));
        let other = RoundNoise { sd: 1.0, degrees: 10.0 };
        assert_eq!(RoundNoise::pooled(&[one, other, other, one]), Some(RoundNoise { sd: 5f64.sqrt(), degrees: 20.0 }));
        assert_eq!(RoundNoise::pooled(&[]), None);
        assert!((one.of_another_run().degrees - 80.0 / 18.0).abs() < 1e-9);
    }
}
