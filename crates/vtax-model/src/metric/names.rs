//! Names of the metrics and of the units of costs.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Role of a part of the hosts' CPU time: what it was spent on. All but the last two add up to the time spent on the
/// guests of a row and on the programs that carry its traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray)]
pub enum CpuRole {
    /// Instructions of guests with endpoints; under TCG their emulation.
    #[serde(rename = "host_cpu_guest")]
    Guest,
    /// Instructions of guests that serve switches, e.g. service domains.
    #[serde(rename = "host_cpu_service")]
    Service,
    /// Workers of vhost.
    #[serde(rename = "host_cpu_vhost")]
    Vhost,
    /// Threads of QEMU that serve only disks.
    #[serde(rename = "host_cpu_iothread")]
    Iothread,
    /// Storage daemons.
    #[serde(rename = "host_cpu_daemon")]
    Daemon,
    /// Rest of QEMU.
    #[serde(rename = "host_cpu_qemu")]
    Qemu,
    /// Programs that carry the traffic of zones.
    #[serde(rename = "host_cpu_relay")]
    Relay,
    /// The host's kernel on behalf of the guests, a share of the other roles except the guests' own instructions.
    #[serde(rename = "host_cpu_kernel")]
    Kernel,
    /// Hardware and software interrupts of the whole machine, which overlap with the other roles.
    #[serde(rename = "host_cpu_interrupts")]
    Interrupts,
}

impl CpuRole {
    pub(crate) const COUNT: usize = CpuRole::VARIANTS.len();

    /// All of them.
    pub const ALL: [CpuRole; CpuRole::COUNT] = *CpuRole::VARIANTS.as_array().expect("as many");
}

/// Metric of a comparison. The table of [`metric`](super) has everything else about each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Mean time of a transaction: lower is better.
    Rtt,
    /// Mean time of an I/O of a disk: lower is better.
    Response,
    /// Goodput: higher is better.
    Goodput,
    /// Bytes that a disk reads and writes per second: higher is better.
    Throughput,
    /// Elapsed time of a file transfer: lower is better.
    Real,
    /// Execution time of both endpoints' measuring threads, per transaction or KB: lower is better.
    Cpu,
    /// Median time of a sample's transactions: lower is better.
    P50,
    /// 99th percentile of the times of a sample's transactions: lower is better.
    P99,
    /// 99.9th percentile of the times of a sample's transactions: lower is better.
    P999,
    /// CPU time of the hosts for both endpoints: measuring threads there, and guests with everything that serves them.
    /// Lower is better.
    #[serde(rename = "host_cpu")]
    HostCpu,
    /// Time for which a guest that migrates is suspended: lower is better.
    Suspend,
    /// Time of a whole migration: lower is better.
    Migrate,
    /// Part of the hosts' CPU time that was spent in one role: lower is better.
    #[serde(untagged)]
    Part(CpuRole),
}

/// Unit in which a table shows the cost of a row above the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CostUnit {
    /// µs per transaction.
    #[serde(rename = "us")]
    Microseconds,
    /// ms per migration.
    #[serde(rename = "ms")]
    Milliseconds,
    /// ns per 1,024 bytes of payload.
    #[serde(rename = "ns-per-kb")]
    NanosecondsPerKb,
    /// Seconds per file.
    #[serde(rename = "s")]
    Seconds,
}
