//! Percentiles of all transactions of a cell, with intervals over samples.
//!
//! The value comes from the merged counts, because the mean of the samples' percentiles would be wrong. The interval is
//! Woodruff's ("Confidence intervals for medians and other position measures", Journal of the American Statistical
//! Association 47, 1952): the share of transactions not above the merged percentile differs from sample to sample, so
//! the share has an interval `p ± t(1 - α/2, n - 1) · s`, and the merged percentiles of its two ends are the interval.
//! The unit is the whole sample, so that transactions of one sample, which are correlated, aren't treated as
//! independent. The error of the share is that of a ratio of sums over clusters (Cochran, "Sampling Techniques", 3rd
//! edition, 1977, section 6.3), since no two samples have the same number of transactions.
//!
//! Few samples contain most of a tail, so the shares are skewed, and t alone is too narrow on the side of the missing
//! ones. That side is extended by the skewness term of t's expansion, `g · s · (2 t² + 1) / 6n` (Hall, "On the removal
//! of skewness by transformation", Journal of the Royal Statistical Society B 54(1), 1992), and the other is unchanged.
//!
//! **Coverage** (`tests/trial.rs`): at 5 to 30 samples that differ in level by 5 % and in the weight of their tail by
//! two thirds of it, with and without drift between rounds, a 95 % interval of p50, p99 or p99.9 covers the true value
//! in 93.5 % of draws or more. Where the tail's weight varies by 130 % of itself (most samples lack it, a few consist
//! of it), p99 is covered in 91 to 93 %: no interval can include values that weren't sampled. For comparison, a
//! percentile bootstrap over samples has a coverage of 84 % at five samples and 90 % at eleven even if they are normal.
//! A t interval of the samples' own percentiles concerns another figure, and may not even contain the merged value.
//!
//! If the share's interval reaches one, no larger value was recorded that could be its bound, so the largest recorded
//! one is used.

use std::collections::BTreeMap;

use super::{Confidence, student};
use crate::histogram::{SparseHistogram, bucket_of, rank};

/// Percentiles of all transactions of a cell, and each round's deviation from them.
///
/// Each sample is passed twice, first merged with all others and then alone, so that even of thousands of samples none
/// must be kept. Samples of the same round belong together (see [`super::Summary::of_rounds`]).
#[derive(Clone, Debug)]
pub struct PooledPercentiles {
    /// Upper edge of a bucket and the number of all transactions that are not above it, in ascending order.
    cumulative: Vec<(u64, u64)>,
    percentiles: Vec<Percentile>,
    rounds: BTreeMap<u32, Shares>,
}

#[derive(Clone, Copy, Debug)]
struct Percentile {
    percent: f64,
    /// Merged percentile.
    value: u64,
    /// Number of transactions that are not above it.
    below: u64,
}

/// Transactions of a round.
#[derive(Clone, Debug)]
struct Shares {
    total: u64,
    /// Number of them that are not above each percentile.
    below: Vec<u64>,
}

impl PooledPercentiles {
    /// Creates the percentiles; `merged` holds the transactions of all samples.
    pub fn of(merged: &SparseHistogram, percents: &[f64]) -> Self {
        let cumulative = merged.cumulative();
        let percentile = |percent: &f64| {
            let (value, below) = reached(&cumulative, *percent);
            Percentile { percent: *percent, value, below }
        };
        let percentiles = percents.iter().map(percentile).collect();
        Self { percentiles, cumulative, rounds: BTreeMap::new() }
    }

    /// Adds a single sample, or a part of one.
    pub fn take(&mut self, round: u32, sample: &SparseHistogram) {
        let none = || Shares { total: 0, below: vec![0; self.percentiles.len()] };
        let shares = self.rounds.entry(round).or_insert_with(none);
        shares.total += sample.count();
        for (below, percentile) in shares.below.iter_mut().zip(&self.percentiles) {
            *below += sample.count_up_to(percentile.value);
        }
    }

    /// Returns the merged percentiles, in nanoseconds.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        self.percentiles.iter().map(|percentile| percentile.value)
    }

    /// Returns the bounds of the interval of each percentile, in nanoseconds: the lower edge of the first bucket and
    /// the upper edge of the last. `None` with fewer than two nonempty rounds.
    pub fn intervals(&self, confidence: Confidence) -> Option<Vec<(u64, u64)>> {
        let rounds: Vec<&Shares> = self.rounds.values().filter(|shares| shares.total > 0).collect();
        let quantile = match rounds.len() {
            0 | 1 => return None,
            rounds => student::quantile(1.0 - confidence.tail(), rounds - 1),
        };
        let interval = |(index, Percentile { percent, below, .. }): (usize, &Percentile)| {
            let share = *below as f64 / self.all();
            // Deviation of each round's share from the overall share, weighted by the round's size.
            let residual = |shares: &&Shares| {
                let off = shares.below[index] as f64 - share * shares.total as f64;
                off * rounds.len() as f64 / self.all()
            };
            let (below, above) = margins(&rounds.iter().map(residual).collect::<Vec<_>>(), quantile);
            let ends = [percent - 100.0 * below, percent + 100.0 * above];
            let [(low, _), (high, _)] = ends.map(|percent| reached(&self.cumulative, percent));
            (*bucket_of(low).start(), high)
        };
        Some(self.percentiles.iter().enumerate().map(interval).collect())
    }

    fn all(&self) -> f64 {
        self.cumulative.last().map_or(0, |(_, sum)| *sum) as f64
    }
}

/// Returns the merged percentile and the number of transactions that are not above it.
fn reached(cumulative: &[(u64, u64)], percent: f64) -> (u64, u64) {
    let Some((_, all)) = cumulative.last() else { return (0, 0) };
    let wanted = rank(percent, *all);
    let at = cumulative.partition_point(|(_, sum)| *sum < wanted);
    cumulative[at.min(cumulative.len() - 1)]
}

/// Returns the margins below and above the percentile's share, given t.
fn margins(residuals: &[f64], quantile: f64) -> (f64, f64) {
    let n = residuals.len() as f64;
    let sum = |power: i32| residuals.iter().map(|residual| residual.powi(power)).sum::<f64>();
    let sd = (sum(2) / (n - 1.0)).sqrt();
    let margin = quantile * sd / n.sqrt();
    // Two samples have no skewness, and equal ones no meaningful one.
    let skewness = if n > 2.0 && sd > 0.0 { n / ((n - 1.0) * (n - 2.0)) * sum(3) / sd.powi(3) } else { 0.0 };
    let skewed = skewness * sd * (2.0 * quantile * quantile + 1.0) / (6.0 * n);
    (margin + skewed.max(0.0), margin + (-skewed).max(0.0))
}

#[cfg(test)]
mod tests {
    use crate::{histogram::Histogram, tests::percentile_intervals};

    fn sample(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    fn intervals(samples: &[Histogram]) -> Option<Vec<(u64, u64)>> {
        percentile_intervals(samples, &[50.0, 99.0])
    }

    #[test]
    fn samples_that_are_alike_leave_no_doubt() {
        let alike = vec![sample([1000, 1000, 2000]); 5];
        let (low, high) = intervals(&alike).expect("five samples")[0];
        assert!(low == high && low.abs_diff(1000) <= 1);
    }

    #[test]
    fn the_interval_holds_the_merged_value_and_never_goes_below_the_least() {
        // One sample of eleven has a tail. A t interval was [-213, 1260] in this case.
        let mut samples: Vec<Histogram> = (0..10).map(|n| sample((0..200).map(|i| 80_000 + 10 * n + i))).collect();
        samples.push(sample((0..200).map(|i| if i % 5 == 0 { 7_000_000 } else { 81_000 })));
        let mut merged = Histogram::new();
        samples.iter().for_each(|sample| merged.merge(sample));
        for ((low, high), percent) in intervals(&samples).expect("eleven samples").into_iter().zip([50.0, 99.0]) {
            let value = merged.percentile(percent);
            assert!(low <= value && value <= high && low >= 80_000, "p{percent}: {value} in [{low}, {high}]");
        }
    }

    #[test]
    fn one_sample_or_no_value_has_no_interval() {
        assert_eq!(intervals(&[sample([1])]), None);
        assert_eq!(intervals(&[sample([]), sample([])]), None);
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let samples: Vec<Histogram> = (1..8).map(|n| sample((0..50).map(|i| n * 1000 + i * i))).collect();
        assert_eq!(intervals(&samples), intervals(&samples));
    }
}
