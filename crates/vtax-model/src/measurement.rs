//! What one end of a test has seen.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The report of one end (initiator or responder) of one sample.
///
/// Counts cover the measured time only, not the warm-up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// The measured time at this end, in seconds. With several flows, the longest of them.
    pub seconds: f64,
    /// Completed request/response pairs (RR), counted by the initiator.
    pub transactions: u64,
    /// Payload bytes: received, at a receiver; sent, at a sender. RR: both directions.
    pub bytes: u64,
    /// Round-trip times in nanoseconds of every completed transaction (RR, initiator).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Histogram>,
    /// UDP: messages that never arrived. RR: requests without a response in time (initiator);
    /// stream: gaps in the sequence numbers (receiver).
    pub lost: u64,
    /// UDP stream: datagrams that came after one with a higher sequence number (receiver).
    pub reordered: u64,
    /// TCP: segments sent again in the measured time, from TCP_INFO, over all flows.
    pub retransmits: u64,
    /// CPU time of each measuring thread in the measured time.
    pub threads: Vec<ThreadCpu>,
    /// CPU time of the whole machine in the measured time.
    pub machine: MachineCpu,
    /// File transfers: what `time` would have printed, and the checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileReport>,
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
