//! Figures of one sample, both endpoints joined.

mod cpu;
mod end;

pub use cpu::{CpuFigures, EndCpu};
use cpu::{cycles, threads_per_second};
pub use end::{BothEnds, EndDetail, EndLocation, WaitFigures};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{HostCpu, OtherPrograms, Parallel};
use crate::{
    disk::{DiskReport, IoReport},
    endpoint::Ends,
    measurement::{EndReport, FileReport, IntervalRtt, PacketCounts, Slice, ThreadCpu},
    metric::CpuRole,
    workload::{StreamLoad, TestKind, TestSpec},
};
use vtax_stats::histogram::{self, Histogram, SparseHistogram};

/// Figures of a sample. RR counts come from the initiator, those of a stream or a file from the receiver.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Measured time of the counting endpoint.
    pub seconds: f64,
    /// Request/response pairs.
    pub transactions: u64,
    /// Payload bytes: received (stream, file), both directions (RR). Bidirectional: received by both.
    pub bytes: u64,
    /// Round-trip times in nanoseconds; in the open loop from when the request was due.
    pub rtt_ns: Option<RttFigures>,
    /// Open loop: from when it was actually sent, as in a closed loop.
    pub rtt_from_send_ns: Option<RttFigures>,
    /// UDP messages that never arrived; absent if the measuring program doesn't report it.
    pub lost: Option<u64>,
    /// UDP datagrams that were reordered; absent if the measuring program doesn't report it.
    pub reordered: Option<u64>,
    /// TCP segments retransmitted by both endpoints; absent if the measuring program doesn't report
    /// it.
    pub retransmits: Option<u64>,
    /// Its cost.
    pub cpu: CpuFigures,
    /// File transfers: the sender's `time`.
    pub file: Option<FileReport>,
    /// Values known to one endpoint only; of the first pair, if there are several.
    #[serde(default)]
    pub ends: BothEnds,
    /// Concurrent pairs; everything above is of all together.
    pub parallel: Option<Parallel>,
    /// Host cost of the row's guests; absent if it has none.
    pub host_cpu: Option<HostCpu>,
    /// Location of the endpoints; with several pairs, of all of them.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub locations: Ends<EndLocation>,
    /// The slices of a sliced sample. A figure of the sample is then the median of its slices' figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// Concurrent round trips of the study's guarded paths, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<IntervalRtt>,
    /// The load under which it was taken, if any.
    pub load: Option<LoadFigures>,
    /// Figures of the migration, if it is one.
    pub migration: Option<MigrationFigures>,
    /// CPU usage of other programs on each machine since the previous reading; empty if it was not read after this sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherPrograms>,
}

/// Figures of one migration of a guest.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MigrationFigures {
    /// Milliseconds from the stop of the virtual CPUs at the source to their start at the target: by the events of both
    /// QEMUs, or by the guest's clock if the two are on different machines. Absent if neither is known.
    pub suspend_ms: Option<f64>,
    /// The same according to the source's QEMU, in whole milliseconds. For a domain, it ends when the target has loaded
    /// the memory, and so excludes the hand-over.
    pub suspend_by_qemu_ms: Option<f64>,
    /// The same by the guest's clock.
    pub suspend_by_guest_clock_ms: Option<f64>,
    /// The most by which the guest's clock is wrong.
    pub guest_clock_error_ms: Option<f64>,
    /// Milliseconds without an answer of the guest to the source's host, which sent a request each millisecond.
    pub silence_ms: Option<f64>,
    /// Lower bound of it, if the guest had not answered again when the watch ended. Then the time itself is unknown.
    pub silence_at_least_ms: Option<f64>,
    /// Requests in that time that were never answered.
    pub requests_lost: Option<u64>,
    /// Seconds from the order to migrate until the source had nothing left to send.
    pub total_s: f64,
    /// 10^6 bytes that the source sent.
    pub sent_mb: f64,
    /// Passes over the memory.
    pub passes: u64,
    /// Memory that the guest changed per second, in 10^6 bytes, as QEMU measured it: before the migration, where each page
    /// counts once; for a domain, in the last pass. Absent if the migration was too short for QEMU to measure it.
    pub dirty_mb_per_s: Option<f64>,
}

/// Goodput of a load in the measured time, over all its flows, by direction.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LoadFigures {
    /// 10^6 bits per second from the initiators; absent if they don't send.
    pub forward_mbps: Option<f64>,
    /// 10^6 bits per second from the responders; absent if they don't send.
    pub reverse_mbps: Option<f64>,
}

impl LoadFigures {
    /// Joins the reports of the initiator and the responder of each pair.
    pub fn of(load: StreamLoad, pairs: &[(EndReport, EndReport)]) -> LoadFigures {
        let mbps = |received: &EndReport| received.bytes as f64 * 8.0 / received.seconds / 1e6;
        LoadFigures {
            forward_mbps: load.goes_forward().then(|| pairs.iter().map(|(_, responder)| mbps(responder)).sum()),
            reverse_mbps: load.goes_back().then(|| pairs.iter().map(|(initiator, _)| mbps(initiator)).sum()),
        }
    }

    /// Returns true if nothing arrived in one of its directions.
    pub fn is_empty(&self) -> bool {
        // NaN if no time was measured.
        [self.forward_mbps, self.reverse_mbps].into_iter().flatten().any(|mbps| !mbps.is_finite() || mbps <= 0.0)
    }
}

/// Round-trip times of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RttFigures {
    /// From the histogram.
    pub mean: f64,
    /// Inverse of each flow's rate; absent if that isn't the mean: several in flight, or gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_rate: Option<f64>,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
    /// All of them: HdrHistogram V2, base64.
    #[serde(with = "histogram::as_text")]
    pub hdr: SparseHistogram,
}

impl Figures {
    /// Joins the reports of the two endpoints.
    pub fn join(spec: &TestSpec, one_machine: bool, initiator: &EndReport, responder: &EndReport) -> Figures {
        let kind = spec.workload.kind();
        let (counting, _) = kind.counting(initiator, responder);
        let both = kind.is_both_ways();
        // The windows of the two directions differ a little: rates add up, not counts.
        let other = if both && initiator.seconds > 0.0 { initiator.bytes as f64 / initiator.seconds } else { 0.0 };
        Figures {
            seconds: counting.seconds,
            transactions: counting.transactions,
            bytes: counting.bytes.saturating_add((other * counting.seconds).round() as u64),
            rtt_ns: counting
                .rtt
                .as_ref()
                .map(|rtt| RttFigures { by_rate: inverse_rate(spec, counting), ..RttFigures::of(rtt) }),
            rtt_from_send_ns: counting.rtt_from_send.as_ref().map(RttFigures::of),
            lost: Some(counting.lost.saturating_add(if both { initiator.lost } else { 0 })),
            reordered: Some(counting.reordered.saturating_add(if both { initiator.reordered } else { 0 })),
            retransmits: Some(initiator.retransmits.saturating_add(responder.retransmits)),
            cpu: CpuFigures { one_machine, initiator: EndCpu::of(initiator), responder: EndCpu::of(responder) },
            file: initiator.file,
            ends: BothEnds { initiator: EndDetail::of(initiator), responder: EndDetail::of(responder) },
            parallel: None,
            host_cpu: None,
            locations: Ends::default(),
            slices: slices(kind, initiator, responder),
            guarded: Vec::new(),
            load: None,
            migration: None,
            others: Vec::new(),
        }
    }

    /// Returns the figures of a disk sample, all from its single endpoint.
    pub fn of_disk(report: &DiskReport) -> Figures {
        let both = report.both();
        let seconds = both.as_ref().map_or(0.0, |both| both.seconds);
        let thread = ThreadCpu { user: report.cpu.user, system: report.cpu.system, ..ThreadCpu::default() };
        let end = EndCpu { threads: vec![thread], seconds, ..EndCpu::default() };
        let times = |both: &IoReport| RttFigures { mean: both.mean_ns, ..RttFigures::of(&both.times) };
        Figures {
            seconds,
            transactions: both.as_ref().map_or(0, |both| both.ios),
            bytes: both.as_ref().map_or(0, |both| both.bytes),
            rtt_ns: both.as_ref().map(times),
            rtt_from_send_ns: None,
            lost: Some(0),
            reordered: Some(0),
            retransmits: Some(0),
            cpu: CpuFigures { one_machine: true, initiator: end, responder: EndCpu::default() },
            file: None,
            ends: BothEnds::default(),
            parallel: None,
            host_cpu: None,
            locations: Ends::default(),
            slices: Vec::new(),
            guarded: Vec::new(),
            load: None,
            migration: None,
            others: Vec::new(),
        }
    }

    /// Returns a sample that consists of one migration, which has no other figures.
    pub fn of_migration(migration: MigrationFigures) -> Figures {
        let nothing = Figures::of_disk(&DiskReport::default());
        Figures {
            seconds: migration.total_s,
            transactions: 1,
            bytes: (migration.sent_mb * 1e6) as u64,
            migration: Some(migration),
            ..nothing
        }
    }

    /// Returns one figure of a migration; NaN if the sample isn't one.
    pub(crate) fn migrated(&self, figure: impl Fn(&MigrationFigures) -> Option<f64>) -> f64 {
        self.migration.as_ref().and_then(figure).unwrap_or(f64::NAN)
    }

    /// Returns true if anything was transferred.
    pub fn is_empty(&self, kind: TestKind) -> bool {
        match kind.is_transactions() {
            true => self.transactions == 0,
            false => self.bytes == 0,
        }
    }

    /// Returns the packets on the wire in `seconds`: those sent by both endpoints, so each packet
    /// is counted once.
    pub fn packets(&self) -> Option<u64> {
        Some(self.sent()?.packets)
    }

    /// Returns the bytes of these packets with the headers of IP and of TCP or UDP; see [`PacketCounts::bytes`].
    pub fn wire_bytes(&self) -> Option<u64> {
        self.sent()?.bytes
    }

    /// Returns the packets sent by both endpoints. Their windows differ a little, so their rates are added.
    fn sent(&self) -> Option<PacketCounts> {
        let of = |end: &EndDetail, cpu: &EndCpu| {
            let factor = if cpu.seconds > 0.0 { self.seconds / cpu.seconds } else { 0.0 };
            Some(end.wire?.sent.scaled(factor))
        };
        let responder = of(&self.ends.responder, &self.cpu.responder)?;
        Some(of(&self.ends.initiator, &self.cpu.initiator)?.plus(responder))
    }

    /// Returns the ns of both endpoints' measuring threads' CPU per packet on the wire; NaN if the packets aren't
    /// known.
    pub fn threads_ns_per_packet(&self) -> f64 {
        self.per_packet(self.threads_cpu())
    }

    /// Returns the ns of the hosts' CPU per packet on the wire.
    pub fn host_ns_per_packet(&self) -> f64 {
        self.per_packet(self.host_cpus() * self.seconds)
    }

    fn per_packet(&self, cpu: f64) -> f64 {
        self.over_packets(cpu * 1e9)
    }

    fn over_packets(&self, cost: f64) -> f64 {
        self.packets().filter(|packets| *packets > 0).map_or(f64::NAN, |packets| cost / packets as f64)
    }

    /// Returns the CPU cycles of both endpoints' measuring threads per transaction; NaN unless all of them counted.
    pub fn cycles_per_transaction(&self) -> f64 {
        self.cycles() / self.transactions as f64
    }

    /// Returns the CPU cycles of both endpoints' measuring threads per 1,024 bytes of payload.
    pub fn cycles_per_kb(&self) -> f64 {
        self.cycles() / (self.bytes as f64 / 1024.0)
    }

    /// Returns the CPU cycles of both endpoints' measuring threads per packet on the wire.
    pub fn cycles_per_packet(&self) -> f64 {
        self.over_packets(self.cycles())
    }

    fn cycles(&self) -> f64 {
        let of = |end: &EndCpu| match cycles(end) {
            Some(cycles) if end.seconds > 0.0 => cycles / end.seconds,
            _ => f64::NAN,
        };
        self.seconds * (of(&self.cpu.initiator) + of(&self.cpu.responder))
    }

    /// Transactions per second.
    pub fn rate(&self) -> f64 {
        self.typical(|slice| slice.transactions as f64 / slice.seconds, self.transactions as f64 / self.seconds)
    }

    /// Returns the goodput of the load from the initiators in 10^6 bits per second; NaN without
    /// one.
    pub(crate) fn load_forward_mbps(&self) -> f64 {
        self.load.and_then(|load| load.forward_mbps).unwrap_or(f64::NAN)
    }

    /// Returns the same from the responders.
    pub(crate) fn load_reverse_mbps(&self) -> f64 {
        self.load.and_then(|load| load.reverse_mbps).unwrap_or(f64::NAN)
    }

    /// Returns the median of the slices' figures, else the figure of a sample in one piece.
    fn typical(&self, of_slice: impl Fn(&Slice) -> f64, whole: f64) -> f64 {
        let mut values: Vec<f64> = self.slices.iter().map(of_slice).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        match values.len() {
            0 => whole,
            n if n % 2 == 1 => values[n / 2],
            n => values[n / 2 - 1].midpoint(values[n / 2]),
        }
    }

    /// Returns the mean round-trip time in µs: the inverse of the rate if that is the mean, as in netperf and
    /// sparc-t7-1, else from the histogram. If the times were not stored, transactions were consecutive. NaN for a test
    /// without transactions.
    pub fn rtt_us(&self) -> f64 {
        let counted = if self.transactions > 0 { self.seconds * 1e6 / self.transactions as f64 } else { f64::NAN };
        let whole = self.rtt_ns.as_ref().map_or(counted, |rtt| rtt.by_rate.unwrap_or(rtt.mean) / 1e3);
        self.typical(|slice| slice.seconds * 1e6 / slice.transactions as f64, whole)
    }

    /// Returns the mean µs that the responder actually waited before a response. None if the test requests no delay.
    pub fn waited_us(&self) -> Option<f64> {
        Some(self.ends.responder.waits?.mean / 1e3)
    }

    /// Returns the payload in 10^6 bits per second, at the counting endpoint.
    pub fn goodput_mbps(&self) -> f64 {
        let mbps = |bytes: u64, seconds: f64| bytes as f64 * 8.0 / seconds / 1e6;
        self.typical(|slice| mbps(slice.bytes, slice.seconds), mbps(self.bytes, self.seconds))
    }

    /// Returns the scheduler's account of both endpoints' measuring threads, without the kernel's work for them
    /// elsewhere.
    fn threads_cpu(&self) -> f64 {
        self.seconds * (threads_per_second(&self.cpu.initiator) + threads_per_second(&self.cpu.responder))
    }

    /// Returns the CPUs that the hosts spent on both endpoints: measuring threads on a host; for guests their vCPUs,
    /// vhost, iothreads, storage daemons and the rest of QEMU; and programs that carry the traffic of zones. Not
    /// included are interrupts served in the time of other programs, and anything else that other programs did. NaN if
    /// the host of a guest wasn't observed.
    fn host_cpus(&self) -> f64 {
        let Ends { initiator, responder } = &self.locations;
        let locations = [(initiator, &self.cpu.initiator), (responder, &self.cpu.responder)];
        let of_end = |(location, end): (&EndLocation, &EndCpu)| match location {
            EndLocation::Host | EndLocation::Relayed => threads_per_second(end),
            EndLocation::Guest => 0.0,
            EndLocation::Unknown => f64::NAN,
        };
        let is_observed = |location: &EndLocation| matches!(location, EndLocation::Guest | EndLocation::Relayed);
        let others = match &self.host_cpu {
            Some(host) => host.spent() / host.seconds,
            None if locations.iter().any(|(location, _)| is_observed(location)) => f64::NAN,
            None => 0.0,
        };
        locations.map(of_end).into_iter().sum::<f64>() + others
    }

    /// Returns the µs of the hosts' CPU per transaction.
    pub fn host_us_per_transaction(&self) -> f64 {
        self.host_cpus() * 1e6 / self.rate()
    }

    /// Returns the µs of the hosts' CPU per 1,024 bytes of payload.
    pub fn host_us_per_kb(&self) -> f64 {
        // 10^6 bits are 125,000 bytes.
        self.host_cpus() * 1e6 / (self.goodput_mbps() * 125_000.0 / 1024.0)
    }

    /// Returns the µs of a part of the hosts' CPU per transaction. NaN if the host of a guest wasn't observed.
    pub(crate) fn host_part_us_per_transaction(&self, role: CpuRole) -> f64 {
        self.host_part(role) * 1e6 / self.rate()
    }

    /// Returns the ns of a part of the hosts' CPU per 1,024 bytes of payload.
    pub(crate) fn host_part_ns_per_kb(&self, role: CpuRole) -> f64 {
        self.host_part(role) * 1e9 / (self.goodput_mbps() * 125_000.0 / 1024.0)
    }

    fn host_part(&self, role: CpuRole) -> f64 {
        self.host_cpu.as_ref().and_then(|host| Some(role.seconds(host)? / host.seconds)).unwrap_or(f64::NAN)
    }

    /// Returns the µs of both endpoints' measuring threads' CPU per transaction.
    pub fn threads_us_per_transaction(&self) -> f64 {
        let us = |cpu: f64, transactions: u64| cpu * 1e6 / transactions as f64;
        self.typical(|slice| us(slice.cpu, slice.transactions), us(self.threads_cpu(), self.transactions))
    }

    /// Returns the µs of both endpoints' measuring threads' CPU per 1,024 bytes of payload.
    pub fn threads_us_per_kb(&self) -> f64 {
        let us = |cpu: f64, bytes: u64| cpu * 1e6 / (bytes as f64 / 1024.0);
        self.typical(|slice| us(slice.cpu, slice.bytes), us(self.threads_cpu(), self.bytes))
    }

    /// Returns the seconds of CPU for which both endpoints' machines were busy, per second of the
    /// sample.
    ///
    /// This includes everything that ran on them, like netperf's service demand: the only way to
    /// catch work that isn't charged to any measuring thread.
    pub fn busy_cpus(&self) -> f64 {
        let per_second = |end: &EndCpu| if end.seconds > 0.0 { end.machine.busy() / end.seconds } else { 0.0 };
        match self.cpu.one_machine {
            true => per_second(&self.cpu.initiator),
            false => per_second(&self.cpu.initiator) + per_second(&self.cpu.responder),
        }
    }

    /// Returns the µs of CPU per transaction (netperf's service demand of a request/response test).
    pub fn cpu_us_per_transaction(&self) -> f64 {
        self.busy_cpus() * 1e6 / self.rate()
    }

    /// Returns the µs of CPU per 1,024 bytes of payload (netperf's service demand of a stream).
    pub fn cpu_us_per_kb(&self) -> f64 {
        self.busy_cpus() * self.seconds * 1e6 / (self.bytes as f64 / 1024.0)
    }
}

/// Slices are matched by their order. The other endpoint's usage is scaled to the counts of the counting one.
fn slices(kind: TestKind, initiator: &EndReport, responder: &EndReport) -> Vec<Slice> {
    let transactions = kind.is_transactions();
    let (counting, other) = if transactions { (initiator, responder) } else { (responder, initiator) };
    let join = |(counted, other): (&Slice, &Slice)| {
        let scale = if transactions || other.bytes == 0 { 1.0 } else { counted.bytes as f64 / other.bytes as f64 };
        Slice {
            seconds: counted.seconds,
            transactions: counted.transactions,
            bytes: counted.bytes,
            // An agent may send anything, and JSON has no infinity.
            cpu: (counted.cpu + other.cpu * scale).clamp(f64::MIN, f64::MAX),
            lost: counted.lost,
            retransmits: counted.retransmits.saturating_add(other.retransmits),
        }
    };
    counting.slices.iter().zip(&other.slices).map(join).collect()
}

/// Returns the ns between the transactions of one flow, if that is their mean time.
fn inverse_rate(spec: &TestSpec, report: &EndReport) -> Option<f64> {
    let flows = f64::from(spec.streams);
    spec.rate_is_inverse().then(|| report.seconds * 1e9 * flows / report.transactions as f64)
}

impl RttFigures {
    pub(crate) fn of(histogram: &Histogram) -> RttFigures {
        RttFigures {
            mean: histogram.mean_ns(),
            by_rate: None,
            p50: histogram.percentile(50.0),
            p99: histogram.percentile(99.0),
            p999: histogram.percentile(99.9),
            max: histogram.max(),
            hdr: SparseHistogram::of(histogram),
        }
    }
}
