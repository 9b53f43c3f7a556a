//! Report of one endpoint of a test.

mod silence;
mod wire;

pub use silence::{ECHO_LEAST, ECHO_LOST_AFTER, EchoWatch, SILENCES_KEPT, Silence, SilenceLog};
pub use wire::{PacketCounts, WireCounts};

use std::fmt;

use crate::foreign::ForeignText;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use vtax_stats::histogram::Histogram;

/// The report of one endpoint of one sample. Counts cover the measured time only, not the warm-up.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// Time of this endpoint's first message, sent or received, in ns of its machine's clock; the skew of pairs is
    /// computed from it.
    pub started_ns: u64,
    /// The warm-up before the measured time.
    pub warmup: WarmupReport,
    /// The measured time at this endpoint, in seconds. With several flows, the time in which they
    /// together would have done their work at the sum of their rates.
    pub seconds: f64,
    /// Completed request/response pairs (RR), counted by the initiator.
    pub transactions: u64,
    /// Payload bytes: received, at a receiver; sent, at a sender. RR counts both directions; for
    /// the other direction of bidirectional streams, see `sent_bytes`.
    pub bytes: u64,
    /// Bidirectional streams: payload bytes that this endpoint sent; `bytes` are those that it
    /// received.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub sent_bytes: u64,
    /// Times in ns of all transactions (rr, crr, cc; initiator), in the open loop from when the request was *due*.
    pub rtt: Option<Histogram>,
    /// Open loop: the same, from when the request was actually sent.
    pub rtt_from_send: Option<Histogram>,
    /// UDP: messages that never arrived. RR: requests without a response in time (initiator);
    /// stream: gaps in the sequence numbers (receiver).
    pub lost: u64,
    /// UDP stream: datagrams that arrived after one with a higher sequence number (receiver).
    pub reordered: u64,
    /// TCP: segments retransmitted in the measured time, from TCP_INFO, over all flows.
    pub retransmits: u64,
    /// Packets of the measured sockets in the measured time. Absent if a transaction has its own connection (crr, cc),
    /// if no packets are sent (Unix, vsock), for ICMP, on Linux before 4.2, and in results of older versions.
    pub wire: Option<WireCounts>,
    /// UDP streams: datagrams of the whole flow, including warm-up and tail, that were sent (sender) or arrived
    /// (receiver); their difference is exactly what was lost on the way or at the socket.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub whole_flow: u64,
    /// UDP: datagrams of the whole flow that this endpoint's socket had no room for (SO_MEMINFO);
    /// with UDP_GRO, those that would have been delivered together count as one.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub socket_drops: u64,
    /// crr and cc: connections that ended without presenting the test's token, including the
    /// warm-up.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub strangers: u64,
    /// TCP streams with MSG_ZEROCOPY: send calls of the whole flow (sender).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub zerocopy_sends: u64,
    /// Number of these calls that the kernel reports as copied anyway. It copies all of them on loopback, on virtual
    /// links, and if the device doesn't support gathering; that costs more than a plain copy.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub zerocopy_copied: u64,
    /// CPU time of each measuring thread in the measured time.
    pub threads: Vec<ThreadCpu>,
    /// CPU time of the whole machine in the measured time.
    pub machine: MachineCpu,
    /// File transfers: the output of `time`, and the checksum.
    pub file: Option<FileReport>,
    /// One entry per interval, if a series was requested; the first begins with the measured time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
    /// The longest silences of the other endpoint, the longest first, if the test tolerates an outage (initiator).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silences: Vec<Silence>,
    /// Breakdown of the time of this endpoint's messages, if stages were requested.
    pub stages: Option<Stages>,
    /// The slices of a sliced sample, in the order in which they were measured. The counts and times above are their
    /// sums; the machine's CPU time is absent, because others were measured in between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// The CPU time from the first slice to the last one, if the sample was cut into slices.
    pub session: Option<SessionCpu>,
    /// Maximum overrun of a slice at this endpoint in ns, which disturbed the next slice.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub overrun_ns: u64,
    /// Reason why idle states were not disabled although the test requested it.
    pub idle_not_held: Option<ForeignText>,
    /// Times in ns that the responder actually waited before each response, if the test requests a delay.
    pub waits: Option<Histogram>,
    /// Priority of the measuring threads, the lowest of all; absent in results of older versions.
    pub priority: Option<ThreadPriority>,
    /// Stops of the measuring process by a CPU quota; absent without a quota.
    pub throttling: Option<QuotaStops>,
}

/// Stops of the processes of a cgroup by its CPU quota during a sample (`cpu.stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuotaStops {
    /// Periods of the quota in which they ran.
    pub periods: u64,
    /// Number of these in which they used up the quota and were stopped.
    pub throttled: u64,
    /// Time for which they were stopped, the sum over all CPUs, in nanoseconds.
    pub stopped_ns: u64,
}

impl QuotaStops {
    /// Returns the counts since an earlier reading.
    #[must_use]
    pub fn since(self, before: QuotaStops) -> QuotaStops {
        QuotaStops {
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            stopped_ns: self.stopped_ns.saturating_sub(before.stopped_ns),
        }
    }

    /// Returns the sum of two samples.
    #[must_use]
    pub fn plus(self, other: QuotaStops) -> QuotaStops {
        QuotaStops {
            periods: self.periods.saturating_add(other.periods),
            throttled: self.throttled.saturating_add(other.throttled),
            stopped_ns: self.stopped_ns.saturating_add(other.stopped_ns),
        }
    }
}

/// Scheduling priority of measuring threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadPriority {
    /// They share their CPUs with all other programs.
    Normal,
    /// They run before all programs without real-time priority; sched(7).
    RealTime,
}

impl ThreadPriority {
    /// Returns the lower one of two threads.
    pub fn lower(one: Option<ThreadPriority>, other: Option<ThreadPriority>) -> Option<ThreadPriority> {
        one.into_iter().chain(other).min()
    }
}

impl fmt::Display for ThreadPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThreadPriority::Normal => "normal priority",
            ThreadPriority::RealTime => "real-time priority",
        })
    }
}

/// Work of an endpoint in a slice; in [`Figures`](crate::run::Figures), of both endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Slice {
    /// The measured time.
    pub seconds: f64,
    /// Transactions that ended in it.
    pub transactions: u64,
    /// Payload bytes, as the report's.
    pub bytes: u64,
    /// CPU seconds of the measuring threads, by the scheduler's exact clock, without their waiting for exact moments.
    pub cpu: f64,
    /// UDP messages lost.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub lost: u64,
    /// TCP segments retransmitted.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub retransmits: u64,
}

/// CPU time of a sliced test from its beginning to its end: warm-up, slices, and the time between them, in which other
/// rows have their turns. Shows what else used the CPUs in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionCpu {
    /// Its length in seconds.
    pub seconds: f64,
    /// The whole machine.
    pub machine: MachineCpu,
    /// User seconds of this endpoint's measuring threads.
    pub user: f64,
}

/// The warm-up before the measured time.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WarmupReport {
    /// Duration in seconds.
    pub seconds: f64,
    /// True if the figures were steady at its end; absent if that wasn't requested.
    pub steady: Option<bool>,
    /// TCP senders: flows that were still in slow start (BBR: in STARTUP) at its end.
    pub in_slow_start: Option<u32>,
}

/// A part of the measured time at one endpoint, all its flows together.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Its beginning, in seconds from the start of the measured time.
    pub at: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// Transactions that ended in it.
    pub transactions: u64,
    /// Payload bytes, as the report's.
    pub bytes: u64,
    /// Their round-trip times, from the merged counts of all flows.
    pub rtt_ns: Option<IntervalRtt>,
    /// UDP messages lost.
    pub lost: u64,
    /// TCP segments retransmitted.
    pub retransmits: u64,
    /// TCP: mean congestion window of the flows at its end, in segments.
    pub cwnd: Option<f64>,
    /// CPU seconds of the measuring threads.
    pub cpu: f64,
}

/// Round-trip times of an interval in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IntervalRtt {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

impl IntervalRtt {
    /// The percentiles of a histogram.
    pub fn of(histogram: &Histogram) -> IntervalRtt {
        let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| histogram.percentile(percent));
        IntervalRtt { p50, p90, p99, max: histogram.max() }
    }
}

/// Breakdown of the time of one endpoint's messages, each stage in nanoseconds as a histogram, or as figures of it, by
/// the kernel's timestamps (SO_TIMESTAMPING; timestamping.rst of the kernel's documentation). All differences are
/// between readings of one machine's clock.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stages<T = Histogram> {
    /// From the send call to the qdisc.
    pub send_to_qdisc: Option<T>,
    /// From the qdisc until the driver has it.
    pub qdisc_to_driver: Option<T>,
    /// From the driver until it leaves the NIC (only hardware timestamps on one clock).
    pub driver_to_wire: Option<T>,
    /// Initiator: from when the driver has the request until the stack has the response: wires and the other endpoint.
    pub away: Option<T>,
    /// From the NIC until the stack has the packet (only hardware timestamps on one clock).
    pub wire_to_stack: Option<T>,
    /// From when the stack has the packet until the receive call has returned: protocol work and waking the program.
    pub stack_to_receive: Option<T>,
    /// Responder: from the receive call's return to the send call.
    pub turnaround: Option<T>,
    /// Messages that lacked a timestamp, or whose timestamps went backwards because the clock was set: in no histogram.
    pub without: u64,
}

/// CPU seconds of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// In user space.
    pub user: f64,
    /// In the kernel on the thread's behalf.
    pub system: f64,
    /// Spent waiting for the exact moment at which a request was due: a cost of measuring, not of the path. Neither
    /// `user` nor `system` includes it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub waiting: f64,
    /// The CPU that the thread was pinned to, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// CPU cycles in user space and in the kernel. Absent unless the test counts them, if other programs used the
    /// counter at the same time, and with waiting, whose cycles would be included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
}

/// CPU seconds of a machine, summed over its CPUs.
///
/// `guest` is not contained in `user`: `/proc/stat` counts it in both (proc(5)), here it is subtracted once. `steal` is
/// time in which the machine wanted to run but couldn't. `user`, `system`, `irq`, `softirq` and `guest` are sampled by
/// the kernel's timer ticks, which miss work that begins and ends between two: they show the kind of work, and
/// [`busy`](Self::busy()) its amount.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineCpu {
    /// CPUs online.
    pub cpus: u32,
    /// User space, niced or not, without guests.
    pub user: f64,
    /// Kernel, without interrupts.
    pub system: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Soft interrupts: most network processing that isn't charged to a system call.
    pub softirq: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Spent inside guests.
    pub guest: f64,
    /// Idle, waiting for I/O or not.
    pub idle: f64,
    /// Seconds in which a CPU of this machine worked: CPUs times time, less idle and steal. Absent in results of
    /// versions that had ticks only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
    /// `busy` was below the time of the measuring threads by the scheduler's clock, less steal time. It was raised to
    /// that time, which is a lower bound.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub raised: bool,
}

impl MachineCpu {
    /// Seconds in which a CPU of this machine worked; 8 to 41 % too low if [`is_by_ticks`](Self::is_by_ticks).
    pub fn busy(&self) -> f64 {
        self.busy.unwrap_or(self.user + self.system + self.irq + self.softirq + self.guest)
    }

    /// Returns true if an older version recorded this.
    pub fn is_by_ticks(&self) -> bool {
        self.busy.is_none()
    }

    /// Raises the busy time to that of the measuring threads. A machine can't have worked less than its measuring
    /// threads did, part of whose time may be stolen: the scheduler's clock continues then, unless the kernel is
    /// informed (PARAVIRT_TIME_ACCOUNTING). Marked if the difference exceeds that of reading two clocks in sequence.
    pub fn at_least(self, threads: f64) -> MachineCpu {
        const SLACK: f64 = 0.001;
        let least = threads - self.steal;
        match self.busy {
            Some(busy) if busy < least => {
                MachineCpu { busy: Some(least), raised: least - busy > SLACK + threads * 0.01, ..self }
            }
            _ => self,
        }
    }
}

/// A file transfer as `time` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FileReport {
    /// From the first byte read of the source, with the flow already open, until the receiver had written the last.
    pub real: f64,
    /// CPU seconds of this end's process in user space.
    pub user: f64,
    /// CPU seconds of this end's process in the kernel.
    pub sys: f64,
    /// XXH3-64 of the file on this endpoint's disk, computed outside the measured time. 0 if it was not computed.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub checksum: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: MachineCpu = MachineCpu {
        cpus: 2,
        user: 0.1,
        system: 0.3,
        irq: 0.0,
        softirq: 0.1,
        steal: 0.05,
        guest: 0.0,
        idle: 1.1,
        busy: Some(0.8),
        raised: false,
    };

    #[test]
    fn ticks_tell_how_much_a_machine_worked_in_old_results_only() {
        assert_eq!((MACHINE.busy(), MACHINE.is_by_ticks()), (0.8, false));
        let old: MachineCpu = serde_json::from_str(r#"{"cpus":2,"user":0.1,"system":0.3,"softirq":0.1}"#).unwrap();
        assert!((old.busy() - 0.5).abs() < 1e-9 && old.is_by_ticks());
    }

    #[test]
    fn a_machine_has_worked_no_less_than_its_threads() {
        assert_eq!(MACHINE.at_least(0.84), MACHINE, "some of the threads' time was stolen");
        let raised = MACHINE.at_least(1.05);
        assert_eq!((raised.busy, raised.raised), (Some(1.0), true));
        // Two clocks that were read in sequence.
        let slightly = MACHINE.at_least(0.8505);
        assert!(!slightly.raised && slightly.busy() > 0.8);
    }
}
