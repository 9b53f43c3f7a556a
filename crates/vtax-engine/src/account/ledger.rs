//! Counters of a thread.

use vtax_model::{
    measurement::{EndReport, Slice, ThreadCpu, WireCounts},
    workload::{TestSpec, WorkloadSizes},
};
use vtax_stats::histogram::Histogram;

use super::{
    meter::Reading,
    packets::UdpWork,
    series::{Series, Totals},
    warming::Watch,
};

#[derive(Default)]
pub(crate) struct ThreadCounts {
    pub(super) unit: Counted,
    /// Time of the thread's first message; 0 before.
    pub(super) begun: u64,
    /// Start of the thread's window; 0 before it is open.
    pub(super) start: u64,
    pub(super) closes: u64,
    pub(super) opened: Option<Reading>,
    pub(super) closed: Option<Reading>,
    /// Number of flows that have opened their window, and the slot of the first.
    pub(super) openers: (u32, usize),
    pub(super) counts: Vec<Count>,
    pub(super) done: u64,
    /// This thread's part of the end's report, without times and costs.
    pub(crate) report: EndReport,
    pub(super) in_slow_start: Option<u32>,
    pub(super) series: Option<Series>,
    /// End of the current interval of the series; `u64::MAX` without a series.
    pub(super) turn: u64,
    pub(super) watch: Option<Watch>,
    /// True if the responder has performed its instructed stall.
    pub(super) stalled: bool,
    pub(super) cost: Cost,
}

/// Cost of the completed slices to the thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) cpu: ThreadCpu,
    pub(super) retransmits: u64,
    /// TCP's packets, if known for all slices.
    pub(super) packets: Option<WireCounts>,
    /// Messages lost until the last slice ended; the next slice's own losses are the difference.
    pub(super) lost: u64,
}

/// TCP's counts of a thread between two readings.
#[derive(Debug, Clone, Copy)]
pub(super) struct TcpCost {
    pub(super) retransmits: u64,
    pub(super) packets: Option<WireCounts>,
}

/// Work of a flow in its part of the window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(super) start: u64,
    /// End of the last counted unit.
    pub(super) last: u64,
    /// Number of units, see [`Counted`].
    pub(super) done: u64,
    pub(super) way: Sender,
}

/// The direction of a flow's bytes, as seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sender {
    #[default]
    Here,
    There,
}

/// Unit of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Counted {
    /// Transactions of a given number of bytes, with a histogram of their times (initiator).
    Transactions(u64),
    /// The same, but the other end knows the times (responder).
    Answers(u64),
    #[default]
    Bytes,
    /// Bytes, in flows of both directions.
    BytesBothWays,
}

impl Counted {
    pub(crate) fn of(spec: &TestSpec, initiates: bool) -> Counted {
        match spec.workload.sizes() {
            WorkloadSizes::Exchange { request, response } => Counted::transactions(request.0 + response.0, initiates),
            WorkloadSizes::Nothing => Counted::transactions(0, initiates),
            WorkloadSizes::Messages(_) if spec.workload.kind().is_both_ways() => Counted::BytesBothWays,
            WorkloadSizes::Messages(_) | WorkloadSizes::File(_) => Counted::Bytes,
        }
    }

    fn transactions(bytes: u64, initiates: bool) -> Counted {
        if initiates { Counted::Transactions(bytes) } else { Counted::Answers(bytes) }
    }
}

impl ThreadCounts {
    pub(crate) fn new(unit: Counted, flows: usize, open_loop: bool) -> ThreadCounts {
        let times = matches!(unit, Counted::Transactions(_));
        let rtt_from_send = (times && open_loop).then(Histogram::new);
        ThreadCounts {
            unit,
            closes: u64::MAX,
            turn: u64::MAX,
            counts: vec![Count::default(); flows],
            report: EndReport { rtt: times.then(Histogram::new), rtt_from_send, ..EndReport::default() },
            ..ThreadCounts::default()
        }
    }

    /// Start of a flow's time if it opens its window at `now`, after other flows of its thread. If the thread's window
    /// is over by then, the flow was stuck during all of it, and that time counts as the flow's.
    pub(super) fn begins(&self, now: u64) -> u64 {
        if now >= self.closes { self.start } else { now }
    }

    /// Converts the counts since the window was opened into a slice, and leaves the thread without a window.
    pub(super) fn end_slice(&mut self, slot: usize, cpu: f64, used: ThreadCpu, tcp: TcpCost) {
        let count = &mut self.counts[slot];
        let (done, seconds) = (std::mem::take(&mut count.done), super::seconds(count.start, count.last));
        let (transactions, bytes) = match self.unit {
            Counted::Transactions(each) | Counted::Answers(each) => (done, done * each),
            Counted::Bytes | Counted::BytesBothWays => (0, done),
        };
        let TcpCost { retransmits, packets } = tcp;
        let lost = self.report.lost - std::mem::replace(&mut self.cost.lost, self.report.lost);
        self.report.slices.push(Slice { seconds, transactions, bytes, cpu, lost, retransmits });
        self.cost.cpu.user += used.user;
        self.cost.cpu.system += used.system;
        self.cost.cpu.waiting += used.waiting;
        self.cost.cpu.cpu = used.cpu;
        self.cost.cpu.cycles = match self.report.slices.len() {
            1 => used.cycles,
            _ => self.cost.cpu.cycles.zip(used.cycles).map(|(sum, slice)| sum + slice),
        };
        self.cost.retransmits += retransmits;
        self.cost.packets = match self.report.slices.len() {
            1 => packets,
            _ => self.cost.packets.zip(packets).map(|(sum, slice)| sum.plus(slice)),
        };
        (self.opened, self.closed, self.openers) = (None, None, (0, 0));
    }

    /// Counts `units` of a flow, the last of which ended at `now`.
    #[inline]
    pub(super) fn add(&mut self, slot: usize, units: u64, now: u64) {
        let count = &mut self.counts[slot];
        count.done += units;
        count.last = now;
        self.done += units;
    }

    #[inline]
    pub(super) fn record(&mut self, rtt: u64) {
        match (&mut self.series, &mut self.report.rtt) {
            (Some(series), _) => series.rtt.record(rtt),
            (None, Some(histogram)) => histogram.record(rtt),
            (None, None) => {}
        }
    }

    /// Restarts a flow's window, discarding its earlier work.
    pub(super) fn restart(&mut self, slot: usize, now: u64) {
        let count = &mut self.counts[slot];
        self.done -= count.done;
        *count = Count { start: now, last: now, done: 0, way: count.way };
    }

    /// Transactions and bytes so far, as the series counts them.
    pub(super) fn totals(&self) -> Totals {
        let (transactions, bytes) = match self.unit {
            Counted::Transactions(each) => (self.done, self.done * each),
            Counted::Answers(each) => (0, self.done * each),
            Counted::Bytes => (0, self.done),
            Counted::BytesBothWays => (0, self.sum(Sender::Here)),
        };
        Totals { transactions, bytes, lost: self.report.lost, ..Totals::default() }
    }

    pub(super) fn sum(&self, way: Sender) -> u64 {
        self.counts.iter().filter(|count| count.way == way).map(|count| count.done).sum()
    }

    /// Adds the values of the series' current interval to the whole histogram.
    pub(super) fn gather(&mut self) {
        let totals = self.totals();
        if let (Some(series), Some(rtt)) = (&mut self.series, &mut self.report.rtt) {
            let late = series.rtt.close_into(rtt);
            series.add_late(totals, &late);
        }
    }

    /// The thread's counts, from which the datagrams of UDP flows follow.
    pub(super) fn udp_work(&self) -> UdpWork {
        let sends = |count: &Count| count.way == Sender::There;
        let sent = match self.unit {
            Counted::BytesBothWays => self.sum(Sender::There),
            Counted::Bytes if self.counts.iter().any(sends) => self.done,
            _ => 0,
        };
        UdpWork { unit: self.unit, done: self.done.saturating_sub(sent), sent, lost: self.report.lost }
    }

    /// This thread's part of the report, without times and costs.
    pub(super) fn counted(&mut self) -> EndReport {
        let totals = self.totals();
        let sent_bytes = if self.unit == Counted::BytesBothWays { self.sum(Sender::There) } else { 0 };
        let Totals { transactions, bytes, .. } = totals;
        let report = std::mem::take(&mut self.report);
        EndReport { started_ns: self.begun, transactions, bytes, sent_bytes, ..report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_was_stuck_through_its_window_has_that_time() {
        let window = ThreadCounts { start: 100, closes: 200, ..ThreadCounts::new(Counted::Bytes, 2, false) };
        assert_eq!([100, 150, 199].map(|now| window.begins(now)), [100, 150, 199]);
        assert_eq!([200, 5_000].map(|now| window.begins(now)), [100, 100]);
    }
}
