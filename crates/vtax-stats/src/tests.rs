//! Tests of the statistics as a whole: on studies with known true values, and against another implementation.

mod independent;
pub(crate) mod synthetic;
mod trial;

use super::{Confidence, PooledPercentiles};
use crate::histogram::{Histogram, SparseHistogram};

/// Returns 95 % intervals of the merged percentiles of these samples, one per round.
pub(crate) fn percentile_intervals(samples: &[Histogram], percents: &[f64]) -> Option<Vec<(u64, u64)>> {
    let mut merged = Histogram::new();
    samples.iter().for_each(|sample| merged.merge(sample));
    let mut pooled = PooledPercentiles::of(&SparseHistogram::of(&merged), percents);
    (1..).zip(samples).for_each(|(round, sample)| pooled.take(round, &SparseHistogram::of(sample)));
    pooled.intervals(Confidence::P95)
}
