//! Histogram of an interval: recorded like a whole one, and closed at a cost proportional to its use.

use serde::{Deserialize, Serialize};

use super::{COUNTERS, HIGHEST_NS, Histogram, HistogramError, MAX_COUNT, counter_of, rank, text, upper_edge, value_at};

/// Histogram in which a thread records one interval after another, with the range and resolution of [`Histogram`]:
/// 216 KiB.
#[derive(Clone, Debug)]
pub struct IntervalHistogram {
    counts: Box<[u64]>,
    /// All counters outside these two, inclusive, are zero.
    lowest: usize,
    highest: usize,
}

/// Nonzero counters of one interval, with their numbers and counts, in ascending order: 16 bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u64)>")]
pub struct SparseHistogram(pub(super) Vec<(u32, u64)>);

impl IntervalHistogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; COUNTERS].into_boxed_slice(), lowest: COUNTERS, highest: 0 }
    }

    /// Adds one round trip, like [`Histogram::record`]. Never allocates or fails.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let index = counter_of(ns.min(HIGHEST_NS));
        self.counts[index] += 1;
        self.lowest = self.lowest.min(index);
        self.highest = self.highest.max(index);
    }

    /// Ends the interval, adds its values to `total` and returns them. The next interval begins.
    ///
    /// Takes some tens of microseconds: it walks from the fastest transaction's counter to the slowest's.
    pub fn close_into(&mut self, total: &mut Histogram) -> SparseHistogram {
        let interval = self.take();
        total.merge_sparse(&interval);
        interval
    }

    /// Adds the contents of `other`.
    pub fn add(&mut self, other: &SparseHistogram) {
        let (Some((lowest, _)), Some((highest, _))) = (other.0.first(), other.0.last()) else { return };
        self.lowest = self.lowest.min(*lowest as usize);
        self.highest = self.highest.max(*highest as usize);
        other.counters().for_each(|(index, count)| self.counts[index] += count);
    }

    /// Ends the interval and returns its values. The next interval begins.
    pub fn take(&mut self) -> SparseHistogram {
        let range = self.lowest..(self.highest + 1).max(self.lowest);
        (self.lowest, self.highest) = (COUNTERS, 0);
        let used = range.filter_map(|index| match std::mem::take(&mut self.counts[index]) {
            0 => None,
            count => Some((index as u32, count)),
        });
        SparseHistogram(used.collect())
    }
}

impl Default for IntervalHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl SparseHistogram {
    /// Returns the nonzero counters of a whole histogram.
    pub fn of(whole: &Histogram) -> Self {
        let used = whole.recorded().map(|(value, count)| (counter_of(value.min(HIGHEST_NS)) as u32, count));
        Self(used.collect())
    }

    /// Returns the same counts as a whole histogram.
    pub fn whole(&self) -> Histogram {
        let mut whole = Histogram::new();
        whole.merge_sparse(self);
        whole
    }

    /// Returns the V2 encoding of the text form, without base64 and container.
    pub fn to_bytes(&self) -> Vec<u8> {
        text::encode(&self.whole())
    }

    /// Parses the output of [`to_bytes`](Self::to_bytes), as safely as [`Histogram::from_base64`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HistogramError> {
        text::decode(bytes)
    }

    /// Returns the number of values in buckets whose upper edge is at most `edge`.
    pub(crate) fn count_up_to(&self, edge: u64) -> u64 {
        let end = self.0.partition_point(|(index, _)| upper_edge(*index as usize) <= edge);
        self.0[..end].iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Returns `true` if no value was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value in nanoseconds that `percent` of the values don't exceed, like [`Histogram::percentile`]; 0 if
    /// empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = rank(percent, self.count());
        let mut sum = 0;
        let reaches = |(_, count): &&(u32, u64)| {
            sum += count;
            sum >= wanted
        };
        let found = self.0.iter().find(reaches).or(self.0.last());
        let edge = if percent <= 0.0 { value_at } else { upper_edge };
        found.map_or(0, |(index, _)| edge(*index as usize))
    }

    /// Returns several percentiles, ascending and above 0, each as [`percentile`](Self::percentile) does, in one pass.
    pub fn percentiles<const N: usize>(&self, percents: [f64; N]) -> [u64; N] {
        let cumulative = self.cumulative();
        let count = self.count();
        let mut at = 0;
        percents.map(|percent| {
            let wanted = rank(percent, count);
            while cumulative.get(at + 1).is_some() && cumulative[at].1 < wanted {
                at += 1;
            }
            cumulative.get(at).map_or(0, |(edge, _)| *edge)
        })
    }

    /// Returns the upper edge of the last bucket used, in nanoseconds; 0 if empty.
    pub fn max(&self) -> u64 {
        self.0.last().map_or(0, |(index, _)| upper_edge(*index as usize))
    }

    /// Adds the contents of `other`, e.g. the same interval of another thread.
    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let Some((index, count)) = next_of(&mut left, &mut right) {
            merged.push((index, count));
        }
        self.0 = merged;
    }

    /// Returns the upper edge of each bucket used and the number of values in buckets up to it, in ascending order.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut sum = 0;
        let up_to = |(index, count): (usize, u64)| {
            sum += count;
            (upper_edge(index), sum)
        };
        self.counters().map(up_to).collect()
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().map(|(index, count)| (*index as usize, *count))
    }
}

type Counters<'a> = std::iter::Peekable<std::slice::Iter<'a, (u32, u64)>>;

/// Returns the next counter in either list, with the counts of both.
fn next_of(left: &mut Counters<'_>, right: &mut Counters<'_>) -> Option<(u32, u64)> {
    let index = left.peek().into_iter().chain(right.peek()).map(|(index, _)| *index).min()?;
    let count = |list: &mut Counters<'_>| list.next_if(|(other, _)| *other == index).map_or(0, |(_, count)| *count);
    Some((index, count(left) + count(right)))
}

impl TryFrom<Vec<(u32, u64)>> for SparseHistogram {
    type Error = HistogramError;

    fn try_from(used: Vec<(u32, u64)>) -> Result<Self, HistogramError> {
        let mut from = 0;
        let mut left = MAX_COUNT;
        for &(index, count) in &used {
            if index < from || index as usize >= COUNTERS || count == 0 {
                return Err(HistogramError::Counter { index });
            }
            left = left.checked_sub(count).ok_or(HistogramError::TooManyCounts)?;
            from = index + 1;
        }
        Ok(Self(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sparse_histogram_is_the_whole_one() {
        let mut whole = Histogram::new();
        for ns in [1, 2, 2047, 2048, 65_000, 65_000, 1_000_000_007, u64::MAX] {
            whole.record(ns);
        }
        assert_eq!(SparseHistogram::of(&whole).whole(), whole);
        assert!(SparseHistogram::of(&Histogram::new()).is_empty());
    }

    fn interval(values: &[u64]) -> SparseHistogram {
        let mut live = IntervalHistogram::new();
        values.iter().for_each(|value| live.record(*value));
        live.take()
    }

    fn whole(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    fn any_time() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    #[test]
    fn an_interval_begins_where_the_last_one_ended() {
        let (mut live, mut total) = (IntervalHistogram::new(), Histogram::new());
        [70_000, 50_000, 60_000].into_iter().for_each(|ns| live.record(ns));
        let first = live.close_into(&mut total);
        assert_eq!((first.count(), first.percentile(50.0), first.max()), (3, 60_031, 70_015));
        live.record(20_000);
        let second = live.close_into(&mut total);
        assert_eq!((second.count(), second.max()), (1, 20_015));
        assert_eq!(live.close_into(&mut total), SparseHistogram::default());
        assert_eq!(total, whole(&[70_000, 50_000, 60_000, 20_000]));
    }

    #[test]
    fn an_empty_interval_has_no_figures() {
        let empty = SparseHistogram::default();
        assert!(empty.is_empty());
        assert_eq!((empty.count(), empty.percentile(99.0), empty.max()), (0, 0, 0));
        assert_eq!(empty.percentiles([1.0, 99.0]), [0, 0]);
    }

    #[test]
    fn lists_that_no_interval_leaves_are_refused() {
        let read = |used: &[(u32, u64)]| SparseHistogram::try_from(used.to_vec());
        let last = COUNTERS as u32 - 1;
        assert!(read(&[(0, 1), (last, MAX_COUNT - 1)]).is_ok());
        for used in [&[(5, 1), (5, 1)][..], &[(5, 1), (4, 1)], &[(5, 0)], &[(last + 1, 1)], &[(u32::MAX, 1)]] {
            assert!(matches!(read(used), Err(HistogramError::Counter { .. })), "{used:?}");
        }
        assert_eq!(read(&[(1, MAX_COUNT), (2, 1)]), Err(HistogramError::TooManyCounts));
        assert_eq!(read(&[(1, u64::MAX), (2, u64::MAX)]), Err(HistogramError::TooManyCounts));
        assert!(serde_json::from_str::<SparseHistogram>("[[7,0]]").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn figures_are_those_of_the_whole_histogram(
            values in prop::collection::vec(any_time(), 1..200),
            percent in 0.1..=100.0f64,
        ) {
            let (interval, whole) = (interval(&values), whole(&values));
            prop_assert_eq!(interval.count(), whole.count());
            prop_assert_eq!(interval.max(), whole.max());
            for percent in [percent, 0.0, 50.0, 90.0, 99.0, 99.9] {
                prop_assert_eq!(interval.percentile(percent), whole.percentile(percent), "p{}", percent);
            }
            let ascending = [0.01, 1.0, 50.0, percent.max(50.0), 100.0];
            prop_assert_eq!(interval.percentiles(ascending), ascending.map(|percent| interval.percentile(percent)));
        }

        #[test]
        fn merged_intervals_are_one_interval(
            left in prop::collection::vec(any_time(), 0..100),
            right in prop::collection::vec(any_time(), 0..100),
        ) {
            let mut merged = interval(&left);
            merged.merge(&interval(&right));
            prop_assert_eq!(&merged, &interval(&[left, right].concat()));
            let json = serde_json::to_string(&merged).unwrap();
            prop_assert_eq!(serde_json::from_str::<SparseHistogram>(&json).unwrap(), merged);
        }
    }

    /// Intervals of two threads of an agent.
    #[test]
    fn fuzz_intervals() {
        let seed = "[[[7,1],[2000,3]],[[8,5]]]";
        vtax_fuzz::fuzz("intervals", &[seed], |bytes| {
            let [mut one, other]: [SparseHistogram; 2] = serde_json::from_slice(bytes).ok()?;
            let sum = one.count().checked_add(other.count());
            let _ = (one.percentile(50.0), one.whole());
            one.merge(&other);
            assert!(one.percentile(99.0) <= one.max());
            assert!(sum.is_none_or(|sum| sum == one.count()));
            Some(())
        });
    }
}
