//! Comparison of two independent sets of figures: ratio, interval and p-value.
//!
//! No distribution is assumed, since a handful of figures can't show it: the ratio is the Hodges-Lehmann estimate over
//! all pairs, the interval is cut from the sorted ratios according to the exact Mann-Whitney distribution, and p is
//! exact (Hollander, Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd ed., sections 4.1 to 4.3). Pairing would
//! be better; two runs have nothing to pair.

/// Second set over the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndependentRatio {
    /// Hodges-Lehmann estimate.
    pub ratio: f64,
    /// 95 % interval; `None` if there are too few figures for one.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p-value.
    pub p: f64,
}

const TAIL: f64 = 0.025;

/// Maximum number of figures per side; more are thinned by taking every n-th, so that the exact distribution stays
/// cheap.
const MOST: usize = 60;

impl IndependentRatio {
    /// Returns `None` if a side is empty or has a figure that is not above 0.
    pub fn of(first: &[f64], second: &[f64]) -> Option<IndependentRatio> {
        let (first, second) = (thinned(first), thinned(second));
        let positive = |figures: &[f64]| !figures.is_empty() && figures.iter().all(|x| x.is_finite() && *x > 0.0);
        if !positive(&first) || !positive(&second) {
            return None;
        }
        let mut ratios: Vec<f64> = first.iter().flat_map(|a| second.iter().map(move |b| b / a)).collect();
        ratios.sort_by(f64::total_cmp);
        let below = cumulative(first.len(), second.len());
        Some(IndependentRatio {
            ratio: median(&ratios),
            interval: interval(&ratios, &below),
            p: p_value(&ratios, &below),
        })
    }
}

fn thinned(figures: &[f64]) -> Vec<f64> {
    figures.iter().step_by(figures.len().div_ceil(MOST).max(1)).copied().collect()
}

/// Median of sorted values; the geometric mean of the middle two if their number is even.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] * sorted[middle]).sqrt() }
}

/// Returns `P(U <= u)` for each u of the Mann-Whitney statistic of `m` and `n` figures without ties, if both come from
/// one distribution.
///
/// The largest of all figures belongs to the first side in m of m + n cases, and is then above all n others: p(m, n, u)
/// = m/(m+n) p(m-1, n, u-n) + n/(m+n) p(m, n-1, u).
fn cumulative(m: usize, n: usize) -> Vec<f64> {
    // For each j <= n, the distribution of i and j figures; without any, U is 0.
    let mut of: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for i in 1..=m {
        of[0] = vec![1.0];
        for j in 1..=n {
            let share = i as f64 / (i + j) as f64;
            let mut next = vec![0.0; i * j + 1];
            of[j].iter().enumerate().for_each(|(u, p)| next[u + j] += share * p);
            of[j - 1].iter().enumerate().for_each(|(u, p)| next[u] += (1.0 - share) * p);
            of[j] = next;
        }
    }
    let sum = |sum: &mut f64, p: &f64| {
        *sum += p;
        Some(*sum)
    };
    of[n].iter().scan(0.0, sum).collect()
}

/// Returns the interval from the k-th smallest to the k-th largest ratio, for the largest k with tails of at most
/// [`TAIL`].
fn interval(sorted: &[f64], below: &[f64]) -> Option<(f64, f64)> {
    let k = below.iter().take_while(|p| **p <= TAIL).count();
    (k > 0).then(|| (sorted[k - 1], sorted[sorted.len() - k]))
}

/// Probability of U being this far from its middle. A tie counts half on either side, rounded to the middle.
fn p_value(sorted: &[f64], below: &[f64]) -> f64 {
    let less = sorted.iter().filter(|ratio| **ratio < 1.0).count();
    let more = sorted.iter().filter(|ratio| **ratio > 1.0).count();
    let ties = sorted.len() - less - more;
    (2.0 * below[less.min(more) + ties.div_ceil(2)]).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Enumerates every way to deal out m + n ranks, and counts how often U is at most each value.
    fn counted(m: usize, n: usize) -> Vec<f64> {
        let mut counts = vec![0.0; m * n + 1];
        let deals = (0u32..1 << (m + n)).filter(|deal| deal.count_ones() as usize == m);
        for deal in deals {
            let of_first = |rank: &usize| deal >> rank & 1 == 1;
            let ranks: Vec<usize> = (0..m + n).collect();
            let u: usize = ranks
                .iter()
                .filter(|rank| of_first(rank))
                .map(|rank| (0..*rank).filter(|r| !of_first(r)).count())
                .sum();
            counts[u] += 1.0;
        }
        let total: f64 = counts.iter().sum();
        counts
            .iter()
            .scan(0.0, |sum, count| {
                *sum += count / total;
                Some(*sum)
            })
            .collect()
    }

    #[test]
    fn the_distribution_is_that_of_all_deals() {
        for (m, n) in [(1, 1), (1, 5), (2, 3), (4, 4), (5, 3), (6, 7)] {
            let (exact, all) = (cumulative(m, n), counted(m, n));
            assert!(exact.iter().zip(&all).all(|(a, b)| (a - b).abs() < 1e-12), "{m} {n}: {exact:?} {all:?}");
        }
    }

    #[test]
    fn the_distribution_of_many_is_a_distribution() {
        let below = cumulative(MOST, MOST);
        assert!((below.last().expect("not empty") - 1.0).abs() < 1e-9);
        assert!((below[MOST * MOST / 2] - 0.5).abs() < 0.01, "{}", below[MOST * MOST / 2]);
        assert!(below.windows(2).all(|pair| pair[1] >= pair[0] - 1e-9));
    }

    #[test]
    fn a_textbook_interval() {
        // m = n = 4: P(U <= 0) = 1/70, P(U <= 1) = 2/70 = 0.0286 > 0.025, so k = 1.
        let found = IndependentRatio::of(&[1.0, 2.0, 4.0, 8.0], &[16.0, 32.0, 64.0, 128.0]).expect("positive");
        assert_eq!(found.interval, Some((2.0, 128.0)));
        assert!((found.p - 2.0 / 70.0).abs() < 1e-12);
        assert_eq!(found.ratio, 16.0);
    }

    #[test]
    fn three_against_three_have_no_interval() {
        let found = IndependentRatio::of(&[1.0, 1.1, 0.9], &[2.0, 2.1, 1.9]).expect("positive");
        assert_eq!(found.interval, None);
        assert!((found.p - 0.1).abs() < 1e-12);
    }

    #[test]
    fn equal_figures_show_no_difference() {
        let found = IndependentRatio::of(&[5.0; 8], &[5.0; 8]).expect("positive");
        assert_eq!((found.ratio, found.interval, found.p), (1.0, Some((1.0, 1.0)), 1.0));
    }

    #[test]
    fn figures_without_a_ratio_have_none() {
        for (first, second) in [(vec![], vec![1.0]), (vec![1.0], vec![0.0]), (vec![f64::NAN], vec![1.0])] {
            assert_eq!(IndependentRatio::of(&first, &second), None);
        }
    }

    proptest! {
        #[test]
        fn exchanged_sides_give_the_inverse(
            first in proptest::collection::vec(0.1f64..10.0, 1..30),
            second in proptest::collection::vec(0.1f64..10.0, 1..30),
        ) {
            let (there, back) = (IndependentRatio::of(&first, &second).expect("positive"), IndependentRatio::of(&second, &first).expect("positive"));
            prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
            prop_assert!((there.p - back.p).abs() < 1e-9);
            prop_assert_eq!(there.interval.is_some(), back.interval.is_some());
            if let Some((low, high)) = there.interval {
                prop_assert!(low <= there.ratio && there.ratio <= high);
            }
        }
    }
}
