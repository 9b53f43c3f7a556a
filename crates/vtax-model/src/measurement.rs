//! What one end of a test has seen.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The report of one end (initiator or responder) of one sample.
///
/// Counts cover the measured time only, not the warm-up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// When this end's first message of the test went or came, in nanoseconds of its machine's
    /// monotonic clock: what the skew of a start in parallel is computed from.
    pub started_ns: u64,
    /// What went before the measured time.
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
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_bytes: u64,
    /// Round-trip times in nanoseconds of every completed transaction (rr, crr, cc; initiator). In
    /// the open loop from the moment at which the request was *due*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Histogram>,
    /// Open loop: the same from the moment at which the request was really sent, which is what a
    /// closed loop would have told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_from_send: Option<Histogram>,
    /// UDP: messages that never arrived. RR: requests without a response in time (initiator);
    /// stream: gaps in the sequence numbers (receiver).
    pub lost: u64,
    /// UDP stream: datagrams that came after one with a higher sequence number (receiver).
    pub reordered: u64,
    /// TCP: segments sent again in the measured time, from TCP_INFO, over all flows.
    pub retransmits: u64,
    /// UDP streams: datagrams of the whole flow, warm-up and tail with it, that were sent (sender) or
    /// arrived (receiver); their difference is exactly what was lost on the way or at the socket.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub whole_flow: u64,
    /// UDP: datagrams of the whole flow that this end's socket had no room for (SO_MEMINFO); with
    /// UDP_GRO those that would have come together count as one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub socket_drops: u64,
    /// crr and cc: connections to the responder's port, warm-up with them, that ended without having
    /// shown the test's token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strangers: u64,
    /// TCP streams with MSG_ZEROCOPY: send calls of the whole flow (sender).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zerocopy_sends: u64,
    /// Of these, the calls whose bytes the kernel copied after all, of which it has told: all of
    /// them on loopback and on virtual links, and where the device can't gather. Such a figure is
    /// that of a copy, and dearer than one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zerocopy_copied: u64,
    /// CPU time of each measuring thread in the measured time.
    pub threads: Vec<ThreadCpu>,
    /// CPU time of the whole machine in the measured time.
    pub machine: MachineCpu,
    /// File transfers: what `time` would have printed, and the checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileReport>,
    /// One entry an interval, if a series was asked for; the first begins with the measured time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
    /// Where the time of this end's messages went, if stages were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
    /// The slices, if the sample was cut into some, in the order in which they were measured. The counts and
    /// times above are their sums; the machine's CPU time is absent, for others were measured between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// By how many nanoseconds this end ran over the time that it had for a slice, at worst: what it did then
    /// disturbed the slice that came next.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overrun_ns: u64,
    /// Why idle states were not held off although the test asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_not_held: Option<String>,
}

/// What an end did in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Slice {
    /// The measured time.
    pub seconds: f64,
    /// Transactions that ended in it.
    #[serde(skip_serializing_if = "is_zero")]
    pub transactions: u64,
    /// Payload bytes, as the report's.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// CPU seconds of the measuring threads, by the scheduler's exact clock.
    pub cpu: f64,
    /// UDP messages lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// TCP segments sent again.
    #[serde(skip_serializing_if = "is_zero")]
    pub retransmits: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What went before the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WarmupReport {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether the figures were steady at its end; absent if that wasn't asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
    /// TCP senders: flows that were still in slow start (BBR: in STARTUP) at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_slow_start: Option<u32>,
}

/// A part of the measured time at one end, all its flows together.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<IntervalRtt>,
    /// UDP messages lost.
    pub lost: u64,
    /// TCP segments sent again.
    pub retransmits: u64,
    /// TCP: the mean of the flows' congestion windows at its end, in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// Where the time of one end's messages went, each in nanoseconds, by the kernel's time stamps
/// (SO_TIMESTAMPING; timestamping.rst of the kernel's documentation). All differences are between
/// readings of one machine's clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stages {
    /// From the send call to the qdisc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_to_qdisc: Option<Histogram>,
    /// From the qdisc until the driver has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdisc_to_driver: Option<Histogram>,
    /// From the driver until it leaves the NIC (hardware stamps on one clock only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_to_wire: Option<Histogram>,
    /// Initiator: from the driver having the request until the response has arrived in the stack:
    /// the wires, and the whole other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away: Option<Histogram>,
    /// From the NIC until the stack has the packet (hardware stamps on one clock only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire_to_stack: Option<Histogram>,
    /// From the stack having the packet until the receive call has returned: protocol work and
    /// waking the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_to_receive: Option<Histogram>,
    /// Responder: from the receive call's return to the send call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turnaround: Option<Histogram>,
    /// Messages that lacked a stamp, and those whose stamps went backwards because the clock was
    /// set: they are in no histogram.
    pub without: u64,
}

/// CPU seconds of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// In user space.
    pub user: f64,
    /// In the kernel on the thread's behalf.
    pub system: f64,
    /// The CPU that the thread was pinned to, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// CPU seconds of a machine, summed over its CPUs.
///
/// `guest` is not contained in `user`: `/proc/stat` counts it in both (proc(5)), here it is
/// taken out once. `steal` is time in which the machine wanted to run and was not let.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineCpu {
    /// CPUs online.
    pub cpus: u32,
    /// User space, niced or not, guests left out.
    pub user: f64,
    /// Kernel, interrupts left out.
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
}

impl MachineCpu {
    /// Seconds in which a CPU of this machine worked: all but idle and steal.
    pub fn busy(&self) -> f64 {
        self.user + self.system + self.irq + self.softirq + self.guest
    }
}

/// A file transfer as `time` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FileReport {
    /// From the first byte read of the source, the flow being open, until the receiver had written
    /// the last.
    pub real: f64,
    /// CPU seconds of this end's process in user space.
    pub user: f64,
    /// CPU seconds of this end's process in the kernel.
    pub sys: f64,
    /// XXH3-64 of the file on this end's disk, taken outside the measured time.
    pub checksum: u64,
}
