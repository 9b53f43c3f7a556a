//! The names of the metrics and of the units of costs, for what only has to distinguishes them.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Metric of a comparison. The table of [`metric`](super) has everything else about each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Mean time of a transaction: lower is better.
    Rtt,
    /// Mean time of an I/O of a disk: lower is better.
    Response,
    /// Goodput: higher is better.
    Goodput,
    /// Bytes that a disk reads and writes in a second: higher is better.
    Throughput,
    /// Elapsed time of a file transfer: lower is better.
    Real,
    /// Execution time of the measuring threads of both ends, for a transaction or a KB: lower is better.
    Cpu,
    /// Median time of a sample's transactions: lower is better.
    P50,
    /// 99th percentile of the times of a sample's transactions: lower is better.
    P99,
    /// 99.9th percentile of the times of a sample's transactions: lower is better.
    P999,
    /// CPU time of the hosts for both ends: measuring threads there, and guests with all that serves them. Lower is
    /// better.
    #[serde(rename = "host_cpu")]
    HostCpu,
    /// Time for which a guest that migrates is suspended: lower is better.
    Suspend,
    /// Time of a whole migration: lower is better.
    Migrate,
}

/// Unit in which a table shows the cost of a row above the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CostUnit {
    /// µs for a transaction.
    #[serde(rename = "us")]
    Microseconds,
    /// ms for a migration.
    #[serde(rename = "ms")]
    Milliseconds,
    /// ns for 1,024 bytes of payload.
    #[serde(rename = "ns-per-kb")]
    NanosecondsPerKb,
    /// Seconds for a file.
    #[serde(rename = "s")]
    Seconds,
}
