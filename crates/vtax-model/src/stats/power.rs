//! How large a difference must be to be shown in four of five studies.
//!
//! A verdict asks three things (see [`super::judge`]), of which two are not Student's, and a study that
//! prints the answer knows the machine's noise only from its own few rounds. No formula has all of
//! that: the sample-size formula of Cohen ("Statistical Power Analysis for the Behavioral Sciences",
//! 1988, section 2.3), with t for the normal quantiles, showed its difference in 62 to 83 % of studies
//! of 6 to 30 rounds. So the factor is drawn: a thousand studies in which A, A' and the cell are equal
//! and the noise is normal; each needs a difference of its own to be shown. The factor is such that
//! four of five needs are covered by *another* study's noise estimate times the factor over √n.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use super::signed_rank::{WalshAverages, interval};
use super::{Confidence, Significance, sign_flip, student};

/// Four of five, and a standard error of what a thousand draws can tell.
const POWER: f64 = 0.8 + 0.0126;
const STUDIES: usize = 1_000;

/// Rounds beyond this change the factor by less than the drawing does.
const MOST: usize = 64;

/// Up to here the sign-flip test's few p-values are felt, and its need is searched for; above that
/// it is Student's.
const FEW: usize = 14;

/// In units of the noise over √rounds, the difference in logarithms that four of five studies show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    /// If the noise is known from the baseline measured twice.
    pub(super) by_repeat: f64,
    /// If it is the larger of that and the cell's.
    pub(super) by_noisier: f64,
}

/// The factor for studies of `pairs` rounds; None if these can show nothing at this level: the
/// least p-value of n pairs in the sign-flip test is 2 / 2^n.
pub(super) fn factor(pairs: usize, significance: Significance) -> Option<Factor> {
    static KNOWN: Mutex<BTreeMap<(usize, u64), Factor>> = Mutex::new(BTreeMap::new());
    if pairs < 2 || 2.0 * 0.5f64.powf(pairs as f64) >= significance.get() {
        return None;
    }
    let pairs = pairs.min(MOST);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    Some(*known.entry((pairs, significance.get().to_bits())).or_insert_with(|| drawn(pairs, significance)))
}

fn drawn(pairs: usize, significance: Significance) -> Factor {
    let mut noise = Noise(Xoshiro256PlusPlus::seed_from_u64(pairs as u64));
    let studies: Vec<Null> = (0..STUDIES).map(|_| Null::drawn(pairs, significance, &mut noise)).collect();
    let root = (pairs as f64).sqrt();
    let covering = |known: fn(&Null) -> f64| {
        // The study that prints the figure is not the one that needs it.
        let others = studies.iter().cycle().skip(1);
        let mut factors: Vec<f64> = studies.iter().zip(others).map(|(of, by)| of.need * root / known(by)).collect();
        factors.sort_unstable_by(f64::total_cmp);
        factors[(POWER * STUDIES as f64).ceil() as usize - 1]
    };
    Factor {
        by_repeat: covering(|study| study.repeat_sd),
        by_noisier: covering(|study| study.repeat_sd.max(study.cell_sd)),
    }
}

/// Standard normal numbers.
struct Noise(Xoshiro256PlusPlus);

impl Noise {
    fn next(&mut self) -> f64 {
        let within = ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        Normal::standard().inverse_cdf(within)
    }
}

/// A study without a difference.
struct Null {
    /// The least difference that, added to the cell, would have been shown.
    need: f64,
    cell_sd: f64,
    repeat_sd: f64,
}

impl Null {
    fn drawn(pairs: usize, significance: Significance, noise: &mut Noise) -> Self {
        let rounds: Vec<[f64; 3]> = (0..pairs).map(|_| std::array::from_fn(|_| noise.next())).collect();
        let over_a = |arm: usize| rounds.iter().map(|round| round[arm] - round[0]).collect();
        let (repeat, cell): (Vec<f64>, Vec<f64>) = (over_a(1), over_a(2));
        Self {
            need: need(&cell, &repeat, significance),
            cell_sd: student::standard_deviation(&cell),
            repeat_sd: student::standard_deviation(&repeat),
        }
    }
}

/// What all three conditions of a verdict ask for, in logarithms.
fn need(cell: &[f64], repeat: &[f64], significance: Significance) -> f64 {
    let averages = WalshAverages::of(cell);
    let (low, _) = interval(cell, &averages, Confidence::P95);
    let (below, above) = interval(repeat, &WalshAverages::of(repeat), Confidence::P95);
    let for_floor = below.abs().max(above.abs()) - averages.centre();
    let need = for_floor.max(-low);
    need.max(for_test(cell, need, significance))
}

/// What the sign-flip test asks for, if that is more than `enough`.
fn for_test(cell: &[f64], enough: f64, significance: Significance) -> f64 {
    let shown = |by: f64| {
        let moved: Vec<f64> = cell.iter().map(|difference| difference + by).collect();
        sign_flip::p_value(&moved).get() < significance.get()
    };
    if cell.len() > FEW {
        let (n, quantile) = (cell.len(), student::quantile(1.0 - significance.get() / 2.0, cell.len() - 1));
        return quantile * student::standard_deviation(cell) / (n as f64).sqrt() - student::mean(cell);
    }
    if shown(enough) {
        return enough;
    }
    // With all differences above zero p is the least there is.
    let all = -cell.iter().copied().fold(f64::INFINITY, f64::min) + 1e-6;
    let (mut short, mut long) = (enough.min(all), all);
    for _ in 0..12 {
        let middle = short.midpoint(long);
        *(if shown(middle) { &mut long } else { &mut short }) = middle;
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor_of(pairs: usize, family: usize) -> Factor {
        factor(pairs, Significance::FIVE_PERCENT.shared_by(family)).unwrap()
    }

    #[test]
    fn too_few_rounds_have_no_factor() {
        for (pairs, family) in [(0, 1), (1, 1), (5, 1), (6, 2), (10, 26)] {
            assert!(factor(pairs, Significance::FIVE_PERCENT.shared_by(family)).is_none(), "{pairs}, {family}");
        }
    }

    #[test]
    fn the_factor_falls_with_rounds_and_rises_with_the_family() {
        let of = |pairs, family| factor_of(pairs, family).by_repeat;
        assert!(of(6, 1) > of(8, 1) && of(8, 1) > of(18, 1));
        assert!(of(11, 20) > of(11, 4) && of(11, 4) > of(11, 1));
        assert_eq!(of(MOST, 1), of(2_000, 1));
    }

    /// A larger estimate of the same noise needs a smaller factor.
    #[test]
    fn the_noisier_of_two_needs_less() {
        for pairs in [6, 11, 30] {
            let factor = factor_of(pairs, 1);
            assert!(factor.by_noisier < factor.by_repeat, "{pairs}: {factor:?}");
        }
    }

    /// With much noise known for sure, a study needs the floor (|z| + t) and an estimate above it.
    #[test]
    fn many_rounds_need_what_normal_theory_says() {
        // E|z| + 1.96 + 0.84 · sd, where sd is about that of X - |Y| with a correlation of a half.
        let factor = factor_of(MOST, 1).by_repeat;
        assert!((3.3..4.0).contains(&factor), "{factor}");
    }
}
