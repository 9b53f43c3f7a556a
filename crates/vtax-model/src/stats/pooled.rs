//! Percentiles of all transactions of a cell, with an interval that has the sample as its unit.
//!
//! The value comes from the merged counts: averaging the samples' percentiles would be wrong. The
//! interval is a cluster bootstrap: whole samples are drawn with replacement and merged again
//! (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8), so that
//! transactions of one sample, which are alike, don't count as independent. With few samples such
//! an interval is too narrow, as every percentile bootstrap (at n = 11 a 95 % one holds about
//! 90 %); a t interval of the samples' percentiles is worse, because in a tail these are so skewed
//! that it reaches below zero and may not even hold the merged value.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Confidence;
use crate::histogram::Histogram;

/// Enough that the ends of a 95 % interval are the 25th value from either side.
const RESAMPLES: usize = 1_000;

/// Ends of the interval of each of `percents`, in nanoseconds; None with fewer than two samples,
/// or if nothing was recorded.
pub fn percentile_intervals(
    samples: &[&Histogram],
    percents: &[f64],
    confidence: Confidence,
) -> Option<Vec<(u64, u64)>> {
    let counts = Counts::of(samples);
    if samples.len() < 2 || counts.rows.is_empty() {
        return None;
    }
    // The same samples give the same interval.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(samples.iter().map(|sample| sample.count()).sum());
    let mut drawn: Vec<Vec<u64>> = vec![Vec::with_capacity(RESAMPLES); percents.len()];
    let mut merged = Vec::with_capacity(counts.rows.len());
    for _ in 0..RESAMPLES {
        counts.merge(&draw(samples.len(), &mut rng), &mut merged);
        for (values, percent) in drawn.iter_mut().zip(percents) {
            values.push(counts.percentile(&merged, *percent));
        }
    }
    Some(drawn.into_iter().map(|values| middle(values, confidence)).collect())
}

/// How often each sample is in a resample.
fn draw(samples: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<u64> {
    let mut times = vec![0; samples];
    for _ in 0..samples {
        times[rng.random_range(0..samples)] += 1;
    }
    times
}

fn middle(mut values: Vec<u64>, confidence: Confidence) -> (u64, u64) {
    values.sort_unstable();
    let cut = (values.len() as f64 * confidence.tail()).floor() as usize;
    (values[cut], values[values.len() - 1 - cut])
}

/// The counts of every sample in every bucket that any of them uses, in rising order.
struct Counts {
    rows: Vec<(u64, Vec<u64>)>,
}

impl Counts {
    fn of(samples: &[&Histogram]) -> Counts {
        let mut rows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (index, sample) in samples.iter().enumerate() {
            for (value, count) in sample.recorded() {
                rows.entry(value).or_insert_with(|| vec![0; samples.len()])[index] = count;
            }
        }
        Counts { rows: rows.into_iter().collect() }
    }

    /// The cumulative counts of a resample.
    fn merge(&self, times: &[u64], merged: &mut Vec<u64>) {
        merged.clear();
        let mut sum = 0;
        for (_, counts) in &self.rows {
            sum += counts.iter().zip(times).map(|(count, times)| count * times).sum::<u64>();
            merged.push(sum);
        }
    }

    fn percentile(&self, cumulative: &[u64], percent: f64) -> u64 {
        let all = cumulative.last().copied().unwrap_or(0);
        let wanted = ((all as f64 * percent / 100.0).ceil() as u64).max(1);
        let at = cumulative.partition_point(|sum| *sum < wanted).min(self.rows.len() - 1);
        self.rows[at].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    fn intervals(samples: &[Histogram]) -> Option<Vec<(u64, u64)>> {
        let samples: Vec<&Histogram> = samples.iter().collect();
        percentile_intervals(&samples, &[50.0, 99.0], Confidence::P95)
    }

    #[test]
    fn samples_that_are_alike_leave_no_doubt() {
        let alike = vec![sample([1000, 1000, 2000]); 5];
        let (low, high) = intervals(&alike).expect("five samples")[0];
        assert!(low == high && low.abs_diff(1000) <= 1);
    }

    #[test]
    fn the_interval_holds_the_merged_value_and_never_goes_below_the_least() {
        // One sample of eleven has a tail: the case in which a t interval was [-213, 1260].
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
