//! Histogram of a sample's round-trip times, for storage and merging.
//!
//! A sample holds millions of transactions, and a percentile of percentiles is meaningless. So the result stores the
//! whole distribution: 1 ns to 60 s in buckets of three significant digits ([HdrHistogram](http://hdrhistogram.org)).
//! The histograms of a cell's samples add up exactly to the cell's histogram.
//!
//! **Text form.** [`Histogram::to_base64`] writes the format of the HdrHistogram libraries of Java, C and Python:
//! base64 of the "V2 compressed" container, a zlib stream (RFC 1950) around the V2 encoding. The stream consists of
//! *stored* blocks (RFC 1951, 3.2.4), because the V2 encoding is already compact: deflating a sample's 3 kB saves 6 %.
//! [`Histogram::from_base64`] also reads the output of these libraries, whose streams are deflated, so that a result
//! processed by another tool can be imported. It inflates into a buffer with the size of the fullest histogram, so that
//! a kilobyte can't become a gigabyte, and refuses any other range and every inconsistent length.
//!
//! **Intervals.** A series of percentiles requires a histogram for each interval of 100 ms and each thread: a thread
//! records into an [`IntervalHistogram`], and closing the interval adds it to the total and returns a
//! [`SparseHistogram`] of the counters that were used.

mod interval;
mod text;

use std::{fmt, ops::RangeInclusive};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use interval::{IntervalHistogram, SparseHistogram};
use text::MAX_BASE64;

/// Round-trip times in nanoseconds, 1 ns to 60 s, to three significant digits: 27,648 counters, 216 KiB.
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

/// Reason why a text is not a histogram of vtax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum HistogramError {
    #[error("the histogram's text has {length} characters, the maximum is {MAX_BASE64}: it was not written by vtax")]
    #[diagnostic(code("damaged-histogram"))]
    TooLong { length: usize },
    #[error("the histogram's text is not base64: {why}; export the result again")]
    #[diagnostic(code("damaged-histogram"))]
    NotBase64 { why: String },
    #[error("invalid {part} of the histogram: the text is damaged or was not written by vtax; export the result again")]
    #[diagnostic(code("damaged-histogram"))]
    Damaged { part: &'static str },
    #[error(
        "the histogram covers {low} to {high} with {digits} significant digits; vtax supports {LOWEST_NS} to {HIGHEST_NS} with {DIGITS}"
    )]
    #[diagnostic(code("foreign-histogram"))]
    OtherRange { low: u64, high: u64, digits: u32 },
    #[error(
        "the histogram unpacks to more than the maximum size: the text is damaged or hostile; export the result again"
    )]
    #[diagnostic(code("damaged-histogram"))]
    Inflated,
    #[error(
        "counter {index} of an interval's histogram is out of order, out of range or zero: the list is damaged; export the result again"
    )]
    #[diagnostic(code("damaged-histogram"))]
    Counter { index: u32 },
    #[error("the histogram contains more than {MAX_COUNT} transactions: the text is damaged; export the result again")]
    #[diagnostic(code("damaged-histogram"))]
    TooManyCounts,
}

const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// Counters per octave above the first: half of the 2048 sub-buckets that three digits need.
const HALF: usize = 1024;
/// Octaves that extend from 2048 to beyond 60 s, and the two halves of the first.
const COUNTERS: usize = 27 * HALF;

/// 2^40: a day of eight streams at a million transactions/s each; sums are far from an overflow.
const MAX_COUNT: u64 = 1 << 40;

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        let empty = hdrhistogram::Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS);
        Self(empty.expect("1 <= low, 2 * low <= high and digits <= 5 hold for the constants"))
    }

    /// Adds one round trip. Never allocates or fails. More than 60 s counts as 60 s; see [`Histogram::saturated`].
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.min(HIGHEST_NS));
    }

    /// Adds a number of equal round trips that another tool has counted.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns.min(HIGHEST_NS), count);
    }

    /// Adds the contents of `other`, as if its values were recorded here.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all our histograms have one range");
    }

    /// Adds an interval's values.
    pub fn merge_sparse(&mut self, interval: &SparseHistogram) {
        interval.counters().for_each(|(index, count)| self.add_known(index, count));
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns `true` if no value was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of values in the last bucket, from 0.1 % below 60 s: they may exceed the histogram's range.
    pub fn saturated(&self) -> u64 {
        self.0.count_at(HIGHEST_NS)
    }

    /// Returns the mean in nanoseconds, each value taken as the middle of its bucket (within 0.05 %); 0 if empty.
    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    /// Returns the lower edge of the first bucket used, in nanoseconds; 0 if empty.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// Returns the upper edge of the last bucket used, in nanoseconds: within 0.1 % above the longest; 0 if empty.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Returns the value in nanoseconds that `percent` of the values don't exceed (the upper edge of its bucket).
    /// `percent` is clamped to 0..=100, NaN returns the shortest; 0 if empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_quantile(quantile(percent))
    }

    /// Returns every recorded value (the upper edge of its bucket) and its count, in ascending order.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = counter_of(self.min())..=counter_of(self.max().min(HIGHEST_NS));
        let counters = used.map(|index| (upper_edge(index), self.0.count_at(value_at(index))));
        counters.filter(|(_, count)| *count > 0)
    }

    /// Returns the text form described in the module.
    pub fn to_base64(&self) -> String {
        text::write(self)
    }

    /// Reads the text form. Safe for hostile text: it allocates memory for the text, for the fullest histogram's
    /// encoding (243 KiB) and for the counters, and never panics.
    pub fn from_base64(text: &str) -> Result<Self, HistogramError> {
        text::read(text).map(|used| used.whole())
    }

    /// Clears everything except its memory, whose allocation would take a test longer than counting.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    fn add_known(&mut self, index: usize, count: u64) {
        if count > 0 {
            self.0.saturating_record_n(value_at(index), count);
        }
    }
}

/// Omits the thousands of counters.
impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = (self.min(), self.percentile(50.0), self.max());
        f.debug_struct("Histogram").field("count", &self.count()).field("min_median_max", &figures).finish()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Sparse histograms in a result, in the text form of a whole one.
pub mod as_text {
    use super::*;

    /// Writes like [`Histogram::to_base64`].
    pub fn serialize<S: Serializer>(histogram: &SparseHistogram, serializer: S) -> Result<S::Ok, S::Error> {
        histogram.whole().serialize(serializer)
    }

    /// Reads like [`Histogram::from_base64`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SparseHistogram, D::Error> {
        let text = String::deserialize(deserializer)?;
        text::read(&text).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_base64())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_base64(&text).map_err(serde::de::Error::custom)
    }
}

/// Returns a share that is lower by a few roundings: 99.9 / 100 · 1000 in binary is a little over 999.
fn quantile(percent: f64) -> f64 {
    (percent / 100.0).clamp(0.0, 1.0) * (1.0 - 4.0 * f64::EPSILON)
}

/// Returns the number of values, out of `count`, that a percentile covers; at least 1.
pub(crate) fn rank(percent: f64, count: u64) -> u64 {
    ((quantile(percent) * count as f64).ceil() as u64).max(1)
}

/// Returns the lowest value of a counter: below 2048 each value has its own, then 1024 counters share each octave.
fn value_at(index: usize) -> u64 {
    let octave = (index / HALF).saturating_sub(1);
    ((index - octave * HALF) as u64) << octave
}

/// Returns all values that share a counter with this one.
pub(crate) fn bucket_of(ns: u64) -> RangeInclusive<u64> {
    let index = counter_of(ns.min(HIGHEST_NS));
    value_at(index)..=upper_edge(index)
}

/// Returns the counter of a value within the range.
#[inline]
fn counter_of(ns: u64) -> usize {
    let octave = (u64::BITS - 11).saturating_sub((ns | 2047).leading_zeros());
    octave as usize * HALF + (ns >> octave) as usize
}

/// Returns the highest value of a counter.
fn upper_edge(index: usize) -> u64 {
    value_at(index + 1) - 1
}

#[cfg(test)]
mod tests;
