//! A thread's figures, interval by interval.

use vtax_model::measurement::{Interval, IntervalRtt};
use vtax_stats::histogram::{IntervalHistogram, SparseHistogram};

/// The intervals of one thread.
pub(crate) struct Series {
    length: u64,
    /// Number of intervals in the window.
    planned: usize,
    pub(super) rtt: IntervalHistogram,
    pub(super) bins: Vec<Bin>,
    start: u64,
    before: Totals,
}

/// Counters of a thread since its window was opened, and its CPU time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) transactions: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) retransmits: u64,
    /// The sum of the congestion windows of all flows in segments, and the number of flows.
    pub(crate) windows: (u64, u32),
    /// CPU seconds of the thread.
    pub(crate) cpu: f64,
}

/// One interval of one thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bin {
    seconds: f64,
    totals: Totals,
    pub(super) rtt: SparseHistogram,
}

impl Series {
    /// The series of a window of `duration` that begins at `start`.
    pub(super) fn new(length: u64, duration: u64, start: u64, before: Totals) -> Series {
        let length = length.max(1);
        let planned = usize::try_from(duration.div_ceil(length)).unwrap_or(usize::MAX).max(1);
        Series { length, planned, rtt: IntervalHistogram::new(), bins: vec![], start, before }
    }

    /// Start of the next interval. The last interval lasts until the window is closed, however late that is.
    pub(super) fn turn(&self) -> u64 {
        let bins = self.bins.len();
        if bins + 1 >= self.planned { u64::MAX } else { self.start + (bins as u64 + 1) * self.length }
    }

    /// Ends every interval that is over at `now`. The first of them receives all completed work; the others are empty.
    pub(super) fn turn_over(&mut self, now: u64, totals: Totals, rtt: SparseHistogram) {
        let mut rtt = Some(rtt);
        while now >= self.turn() {
            self.push(self.length, totals, rtt.take().unwrap_or_default());
        }
    }

    /// Ends the last interval.
    pub(super) fn close(&mut self, now: u64, totals: Totals, rtt: SparseHistogram) {
        let begun = self.start + self.bins.len() as u64 * self.length;
        self.push(now.saturating_sub(begun), totals, rtt);
    }

    fn push(&mut self, length: u64, totals: Totals, rtt: SparseHistogram) {
        let before = std::mem::replace(&mut self.before, totals);
        self.bins.push(Bin { seconds: length as f64 / 1e9, totals: totals.since(&before), rtt });
    }

    /// Adds to the last interval work that was due in the window but completed after it closed.
    pub(super) fn add_late(&mut self, totals: Totals, rtt: &SparseHistogram) {
        let Some(last) = self.bins.last_mut() else { return };
        last.totals.transactions += totals.transactions - self.before.transactions;
        last.totals.bytes += totals.bytes - self.before.bytes;
        last.totals.lost += totals.lost.saturating_sub(self.before.lost);
        last.rtt.merge(rtt);
    }
}

/// Merges the series of an end's threads, interval by interval.
pub(super) fn join(length: f64, threads: Vec<Vec<Bin>>) -> Vec<Interval> {
    let mut joined: Vec<Bin> = vec![];
    for thread in threads {
        for (index, bin) in thread.into_iter().enumerate() {
            match joined.get_mut(index) {
                Some(sum) => sum.add(&bin),
                None => joined.push(bin),
            }
        }
    }
    joined.iter().enumerate().map(|(index, bin)| bin.interval(index as f64 * length)).collect()
}

impl Totals {
    fn since(&self, before: &Totals) -> Totals {
        Totals {
            transactions: self.transactions - before.transactions,
            bytes: self.bytes - before.bytes,
            lost: self.lost.saturating_sub(before.lost),
            retransmits: self.retransmits.wrapping_sub(before.retransmits),
            windows: self.windows,
            cpu: self.cpu - before.cpu,
        }
    }

    fn add(&mut self, other: &Totals) {
        self.transactions += other.transactions;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.retransmits += other.retransmits;
        self.windows = (self.windows.0 + other.windows.0, self.windows.1 + other.windows.1);
        self.cpu += other.cpu;
    }
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.seconds = self.seconds.max(other.seconds);
        self.totals.add(&other.totals);
        self.rtt.merge(&other.rtt);
    }

    fn interval(&self, at: f64) -> Interval {
        let Totals { transactions, bytes, lost, retransmits, windows: (segments, flows), cpu } = self.totals;
        let rtt_ns = (!self.rtt.is_empty()).then(|| IntervalRtt {
            p50: self.rtt.percentile(50.0),
            p90: self.rtt.percentile(90.0),
            p99: self.rtt.percentile(99.0),
            max: self.rtt.max(),
        });
        Interval {
            at,
            seconds: self.seconds,
            transactions,
            bytes,
            rtt_ns,
            lost,
            retransmits,
            cwnd: (flows > 0).then(|| segments as f64 / f64::from(flows)),
            cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_stats::histogram::Histogram;

    fn totals(transactions: u64) -> Totals {
        Totals { transactions, bytes: 2 * transactions, ..Totals::default() }
    }

    fn rtt(values: &[u64]) -> SparseHistogram {
        let mut live = IntervalHistogram::new();
        values.iter().for_each(|value| live.record(*value));
        live.close_into(&mut Histogram::new())
    }

    /// Three intervals of 100, the last of which is cut to 50.
    fn series() -> Series {
        Series::new(100, 250, 1_000, Totals::default())
    }

    #[test]
    fn an_interval_without_completions_is_present_and_empty() {
        let mut series = series();
        assert_eq!(series.turn(), 1_100);
        series.turn_over(1_230, totals(5), rtt(&[10; 5]));
        assert_eq!(series.turn(), u64::MAX);
        series.close(1_260, totals(7), rtt(&[20; 2]));
        let counts: Vec<u64> = series.bins.iter().map(|bin| bin.totals.transactions).collect();
        assert_eq!(counts, [5, 0, 2]);
        assert!((series.bins[2].seconds - 60e-9).abs() < 1e-15);
        series.add_late(totals(8), &rtt(&[90]));
        assert_eq!((series.bins[2].totals.transactions, series.bins[2].rtt.max()), (3, 90));
    }

    #[test]
    fn threads_are_merged_before_percentiles_are_computed() {
        let thread = |count, value| {
            let mut series = series();
            series.turn_over(1_100, totals(count), rtt(&vec![value; count as usize]));
            series.bins
        };
        let joined = join(1e-7, vec![thread(99, 10), thread(1, 500), vec![]]);
        assert_eq!(joined.len(), 1);
        let all = joined[0].rtt_ns.unwrap();
        assert_eq!((joined[0].transactions, all.p50, all.p99, all.max), (100, 10, 10, 500));
    }
}
