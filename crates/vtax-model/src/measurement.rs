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

/// The report of one end of one sample. Counts cover the measured time only, not the warm-up.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// When this end's first message went or came, in ns of its machine's clock: the skew of pairs comes from it.
    pub started_ns: u64,
    /// The warm-up before the measured time.
    pub warmup: WarmupReport,
    /// The measured time at this end, in seconds. With several flows, that in which they together
    /// would have done what they did at the sum of their rates.
    pub seconds: f64,
    /// Completed request/response pairs (RR), counted by the initiator.
    pub transactions: u64,
    /// Payload bytes: received, at a receiver; sent, at a sender. Transactions and bidirectional
    /// streams: see `sent_bytes` for the other direction of the latter; RR counts both.
    pub bytes: u64,
    /// Bidirectional streams: payload bytes that this end sent, while `bytes` are what it received.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub sent_bytes: u64,
    /// Times in ns of all transactions (rr, crr, cc; initiator), in the open loop from when the request was *due*.
    pub rtt: Option<Histogram>,
    /// Open loop: the same from the moment at which the request was really sent.
    pub rtt_from_send: Option<Histogram>,
    /// UDP: messages that never arrived. RR: requests without a response in time (initiator);
    /// stream: gaps in the sequence numbers (receiver).
    pub lost: u64,
    /// UDP stream: datagrams that came after one with a higher sequence number (receiver).
    pub reordered: u64,
    /// TCP: segments sent again in the measured time, from TCP_INFO, over all flows.
    pub retransmits: u64,
    /// Packets of the measured sockets in the measured time. Absent where a transaction has its own connection (crr,
    /// cc), where no packets are sent (Unix, vsock), for ICMP, on Linux before 4.2, and in results of older versions.
    pub wire: Option<WireCounts>,
    /// UDP streams: datagrams of the whole flow, warm-up and tail with it, that were sent (sender) or
    /// arrived (receiver); their difference is exactly what was lost on the way or at the socket.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub whole_flow: u64,
    /// UDP: datagrams of the whole flow that this end's socket had no room for (SO_MEMINFO); with
    /// UDP_GRO those that would have come together count as one.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub socket_drops: u64,
    /// crr and cc: connections that ended without having shown the test's token, warm-up included.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub strangers: u64,
    /// TCP streams with MSG_ZEROCOPY: send calls of the whole flow (sender).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub zerocopy_sends: u64,
    /// Number of these calls that the kernel reports as copied anyway. It copies all of them on
    /// loopback, on virtual links, and where the device can't gather; that costs more than a plain copy.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub zerocopy_copied: u64,
    /// CPU time of each measuring thread in the measured time.
    pub threads: Vec<ThreadCpu>,
    /// CPU time of the whole machine in the measured time.
    pub machine: MachineCpu,
    /// File transfers: what `time` would have printed, and the checksum.
    pub file: Option<FileReport>,
    /// One entry an interval, if a series was requested; the first begins with the measured time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
    /// The longest silences of the other end, the longest first, if the test endures an outage (initiator).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silences: Vec<Silence>,
    /// Where the time of this end's messages went, if stages were asked for.
    pub stages: Option<Stages>,
    /// The slices, if the sample was cut into some, in the order in which they were measured. The counts and
    /// times above are their sums; the machine's CPU time is absent, for others were measured between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// The CPU time from the first slice to the last one, if the sample was cut into slices.
    pub session: Option<SessionCpu>,
    /// By how many ns this end ran over the time of a slice, at worst, which disturbed the slice that came next.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub overrun_ns: u64,
    /// Why idle states were not held off although the test asked for it.
    pub idle_not_held: Option<ForeignText>,
    /// Times in ns that the responder really waited before each response, if the test asks for a delay.
    pub waits: Option<Histogram>,
    /// Priority of the measuring threads, the lowest of all; absent in results of older versions.
    pub priority: Option<ThreadPriority>,
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
    /// TCP segments sent again.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub retransmits: u64,
}

/// CPU time of a test that is cut into slices from its beginning to its end: warm-up, slices, and the time between
/// them, in which other rows have their turns. Tells what else took the CPUs in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionCpu {
    /// Its length in seconds.
    pub seconds: f64,
    /// The whole machine.
    pub machine: MachineCpu,
    /// User seconds of this end's measuring threads.
    pub user: f64,
}

/// The warm-up before the measured time.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WarmupReport {
    /// Duration in seconds.
    pub seconds: f64,
    /// True if the figures were steady at its end; absent if that wasn't asked.
    pub steady: Option<bool>,
    /// TCP senders: flows that were still in slow start (BBR: in STARTUP) at its end.
    pub in_slow_start: Option<u32>,
}

/// A part of the measured time at one end, all its flows together.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// When it began, in seconds from the start of the measured time.
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
    /// TCP segments sent again.
    pub retransmits: u64,
    /// TCP: the mean of the flows' congestion windows at its end, in segments.
    pub cwnd: Option<f64>,
    /// CPU seconds of the measuring threads.
    pub cpu: f64,
}

/// Round-trip times of an interval in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IntervalRtt {
    /// Median.
    pub p50: u64,
    /// 90 of 100.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl IntervalRtt {
    /// The percentiles of a histogram.
    pub fn of(histogram: &Histogram) -> IntervalRtt {
        let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| histogram.percentile(percent));
        IntervalRtt { p50, p90, p99, max: histogram.max() }
    }
}

/// Where the time of one end's messages went, each in nanoseconds as a histogram, or as figures of it, by the kernel's time stamps
/// (SO_TIMESTAMPING; timestamping.rst of the kernel's documentation). All differences are between
/// readings of one machine's clock.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stages<T = Histogram> {
    /// From the send call to the qdisc.
    pub send_to_qdisc: Option<T>,
    /// From the qdisc until the driver has it.
    pub qdisc_to_driver: Option<T>,
    /// From the driver until it leaves the NIC (hardware stamps on one clock only).
    pub driver_to_wire: Option<T>,
    /// Initiator: from the driver having the request until the stack has the response: wires and other end.
    pub away: Option<T>,
    /// From the NIC until the stack has the packet (hardware stamps on one clock only).
    pub wire_to_stack: Option<T>,
    /// From the stack having the packet until the receive call has returned: protocol work and waking the program.
    pub stack_to_receive: Option<T>,
    /// Responder: from the receive call's return to the send call.
    pub turnaround: Option<T>,
    /// Messages that lacked a stamp, or whose stamps went backwards because the clock was set: in no histogram.
    pub without: u64,
}

/// CPU seconds of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// In user space.
    pub user: f64,
    /// In the kernel on the thread's behalf.
    pub system: f64,
    /// Spent waiting for the exact moment at which a request was due: a cost of the instrument, not of the path. Neither
    /// `user` nor `system` includes it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub waiting: f64,
    /// The CPU that the thread was pinned to, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// CPU cycles in user space and in the kernel. Absent unless the test counts them, if other programs used the counter at
    /// the same time, and with waiting, whose cycles would be among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
}

/// CPU seconds of a machine, summed over its CPUs.
///
/// `guest` is not contained in `user`: `/proc/stat` counts it in both (proc(5)), here it is
/// taken out once. `steal` is time in which the machine wanted to run and was not let. `user`, `system`,
/// `irq`, `softirq` and `guest` are sampled by the kernel's timer ticks, which miss work that begins and
/// ends between two: they tell of what kind the work was, [`busy`](Self::busy()) how much it was.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineCpu {
    /// CPUs online.
    pub cpus: u32,
    /// User space, niced or not, guests omitted.
    pub user: f64,
    /// Kernel, interrupts omitted.
    pub system: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Soft interrupts: most network processing that no system call pays for.
    pub softirq: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Spent inside guests.
    pub guest: f64,
    /// Idle, waiting for I/O or not.
    pub idle: f64,
    /// Seconds in which a CPU of this machine worked: CPUs times time, less idle and steal. Absent in
    /// results of versions that had ticks only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
    /// `busy` came out below the time of the measuring threads by the scheduler's clock, less what was stolen.
    /// It was raised to that time, which is a lower bound.
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

    /// A machine can't have worked less than its measuring threads did, of whose time a part may be stolen: the
    /// scheduler's clock continues in the meantime, unless the kernel is told (PARAVIRT_TIME_ACCOUNTING). Marked if it
    /// is more than what reading two clocks one after another may make.
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
    /// From the first byte read of the source, the flow being open, until the receiver had written the last.
    pub real: f64,
    /// CPU seconds of this end's process in user space.
    pub user: f64,
    /// CPU seconds of this end's process in the kernel.
    pub sys: f64,
    /// XXH3-64 of the file on this end's disk, taken outside the measured time. 0 if it was not computed.
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
        // Two clocks that were read one after another.
        let slightly = MACHINE.at_least(0.8505);
        assert!(!slightly.raised && slightly.busy() > 0.8);
    }
}
