//! The round-trip times of a sample, as a histogram that can be stored and merged.
//!
//! A sample holds millions of transactions, and a percentile of percentiles means nothing, so the result keeps the
//! whole distribution: 1 ns to 60 s in buckets of three significant digits ([HdrHistogram](http://hdrhistogram.org)).
//! The histograms of a cell's samples add up to the cell's histogram exactly.
//!
//! **Text form.** [`Histogram::to_base64`] writes what the HdrHistogram libraries of Java, C and Python read: base64 of
//! the "V2 compressed" container, a zlib stream (RFC 1950) around the V2 encoding. The stream is made of *stored*
//! blocks (RFC 1951, 3.2.4): the V2 encoding is compact already (deflating a sample's 3 kB saves 6 %).
//! [`Histogram::from_base64`] reads what these libraries write, too, whose streams are really deflated, so that a
//! result that another tool has touched can be imported. It inflates into a buffer of the size of the fullest histogram
//! and no further, so that a kilobyte can't become a gigabyte, and refuses another range and every length that doesn't
//! add up.
//!
//! **Intervals.** A series of percentiles needs a histogram for each interval of 100 ms and each
//! thread: [`IntervalHistogram`] is recorded into, and closing the interval adds it to the total
//! and leaves a [`SparseHistogram`] of the counters that were used.

mod interval;
mod text;

use std::{fmt, ops::RangeInclusive};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use interval::{IntervalHistogram, SparseHistogram};
use text::MAX_BASE64;

/// Round-trip times in nanoseconds, 1 ns to 60 s, to three significant digits: 27,648 counters, 216 KiB.
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

/// Why a text is not a histogram of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum HistogramError {
    #[error("the histogram's text has {length} characters, the fullest has {MAX_BASE64}: it was not written by vtax")]
    #[diagnostic(code("damaged-histogram"))]
    TooLong { length: usize },
    #[error("the histogram's text is not base64: {why}; export the result again")]
    #[diagnostic(code("damaged-histogram"))]
    NotBase64 { why: String },
    #[error("the histogram's {part} is wrong: the text is damaged or was not written by vtax; export the result again")]
    #[diagnostic(code("damaged-histogram"))]
    Damaged { part: &'static str },
    #[error(
        "the histogram covers {low} to {high} with {digits} significant digits; vtax reads {LOWEST_NS} to {HIGHEST_NS} with {DIGITS}"
    )]
    #[diagnostic(code("foreign-histogram"))]
    OtherRange { low: u64, high: u64, digits: u32 },
    #[error(
        "the histogram unpacks into more than any can hold: the text is damaged or hostile; export the result again"
    )]
    #[diagnostic(code("damaged-histogram"))]
    Inflated,
    #[error(
        "counter {index} of an interval's histogram is out of order, out of range or zero: the list is damaged; export the result again"
    )]
    #[diagnostic(code("damaged-histogram"))]
    Counter { index: u32 },
    #[error("the histogram claims more than {MAX_COUNT} transactions: the text is damaged; export the result again")]
    #[diagnostic(code("damaged-histogram"))]
    TooManyCounts,
}

const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// Counters per octave above the first: half of the 2048 sub-buckets that three digits need.
const HALF: usize = 1024;
/// Octaves that reach from 2048 to beyond 60 s, and the two halves of the first.
const COUNTERS: usize = 27 * HALF;

/// 2^40: a day of eight streams at a million transactions a second each; sums are far from an overflow.
const MAX_COUNT: u64 = 1 << 40;

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let empty = hdrhistogram::Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS);
        Self(empty.expect("1 <= low, 2 * low <= high and digits <= 5 hold for the constants"))
    }

    /// Adds one round trip. Never allocates or fails. More than 60 s is kept as 60 s; see [`Histogram::saturated`].
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.min(HIGHEST_NS));
    }

    /// Adds as many round trips, which another tool has counted.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns.min(HIGHEST_NS), count);
    }

    /// Adds all that `other` holds: the same as recording its values here.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all our histograms have one range");
    }

    /// Adds an interval's values.
    pub fn merge_sparse(&mut self, interval: &SparseHistogram) {
        interval.counters().for_each(|(index, count)| self.add_known(index, count));
    }

    /// Recorded values.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// No value was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Values in the last bucket, from 0.1 % below 60 s on: they may have been longer than the histogram can tell.
    pub fn saturated(&self) -> u64 {
        self.0.count_at(HIGHEST_NS)
    }

    /// Mean in nanoseconds, each value taken as the middle of its bucket (within 0.05 %); 0 if empty.
    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    /// Lower edge of the first bucket used, in nanoseconds; 0 if empty.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// Upper edge of the last bucket used, in nanoseconds: within 0.1 % above the longest; 0 if empty.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The value in nanoseconds that `percent` of the values don't exceed (the upper edge of its
    /// bucket). `percent` is taken into 0..=100, NaN asks for the shortest; 0 if empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_quantile(quantile(percent))
    }

    /// Every value that was recorded (the upper edge of its bucket) and how often, in rising order.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = counter_of(self.min())..=counter_of(self.max().min(HIGHEST_NS));
        let counters = used.map(|index| (upper_edge(index), self.0.count_at(value_at(index))));
        counters.filter(|(_, count)| *count > 0)
    }

    /// The text form described at the module.
    pub fn to_base64(&self) -> String {
        text::write(self)
    }

    /// Reads the text form. Safe on hostile text: it takes memory for the text, for the fullest
    /// histogram's encoding (243 KiB) and for the counters, and never panics.
    pub fn from_base64(text: &str) -> Result<Self, HistogramError> {
        text::read(text).map(|used| used.whole())
    }

    /// Forgets everything but its memory, which costs a test more than what it counts there.
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

/// Without its thousands of counters.
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

/// A sparse histogram in a result: in the text form of a whole one.
pub mod as_text {
    use super::*;

    /// Writes what [`Histogram::to_base64`] does.
    pub fn serialize<S: Serializer>(histogram: &SparseHistogram, serializer: S) -> Result<S::Ok, S::Error> {
        histogram.whole().serialize(serializer)
    }

    /// Reads what [`Histogram::from_base64`] does.
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

/// A share a few roundings below the one asked for: 99.9 / 100 · 1000 in binary is a little over 999.
fn quantile(percent: f64) -> f64 {
    (percent / 100.0).clamp(0.0, 1.0) * (1.0 - 4.0 * f64::EPSILON)
}

/// How many of `count` values a percentile reaches over; at least the first.
pub(crate) fn rank(percent: f64, count: u64) -> u64 {
    ((quantile(percent) * count as f64).ceil() as u64).max(1)
}

/// Lowest value of a counter: below 2048 each value has its own, then 1024 counters share each octave.
fn value_at(index: usize) -> u64 {
    let octave = (index / HALF).saturating_sub(1);
    ((index - octave * HALF) as u64) << octave
}

/// All values that share a counter with this one.
pub(crate) fn bucket_of(ns: u64) -> RangeInclusive<u64> {
    let index = counter_of(ns.min(HIGHEST_NS));
    value_at(index)..=upper_edge(index)
}

/// The counter of a value within the range.
#[inline]
fn counter_of(ns: u64) -> usize {
    let octave = (u64::BITS - 11).saturating_sub((ns | 2047).leading_zeros());
    octave as usize * HALF + (ns >> octave) as usize
}

/// Highest value of a counter.
fn upper_edge(index: usize) -> u64 {
    value_at(index + 1) - 1
}

#[cfg(test)]
mod tests;
