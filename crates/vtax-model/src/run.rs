//! A run of a study: its effective plan, where it ran, and the samples as they landed.
//!
//! This is what the store keeps. Every figure of a report is computed from it, so that a
//! better analysis can be applied to an old run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    cell::Arm,
    histogram::Histogram,
    measurement::{EndReport, FileReport, MachineCpu, ThreadCpu},
    method::Unsupported,
    stats::StoppingRule,
    study::{Row, SamplingPlan, Study},
    units::Mtu,
    workload::TestKind,
};

/// A run of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was to be done, and where.
    pub header: RunHeader,
    /// How far it came.
    pub state: RunState,
    /// Wall-clock seconds spent in it, summed over its sessions if it was resumed.
    pub wall_seconds: f64,
    /// In the order in which they landed.
    pub samples: Vec<Sample>,
    /// Samples that could not be taken.
    pub failures: Vec<Failure>,
}

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Under way, or killed: `vtax run --resume` goes on.
    Running,
    /// Stopped by the user or by an error, with what was measured kept; can be resumed.
    Stopped,
    /// Every sample of the plan was taken or has failed.
    Complete,
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RunState::Running => "running",
            RunState::Stopped => "stopped",
            RunState::Complete => "complete",
        })
    }
}

/// The whole effective plan of a run, fixed before its first sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// Unique: the study's name, the time, and a random part.
    pub id: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// The study, as resolved.
    pub study: Study,
    /// Samples, duration and warm-up in force.
    pub plan: SamplingPlan,
    /// Whether this is the short plan of `--quick`.
    pub quick: bool,
    /// Of the order of the samples.
    pub seed: u64,
    /// When to stop before or after `plan.samples` rounds, if `--confidence` was given.
    pub stopping: Option<StoppingRule>,
    /// The machine.
    pub environment: Environment,
    /// Which CPUs the ends were pinned to.
    pub placement: Placement,
    /// Rows that can't run on this machine.
    pub unavailable: Vec<UnavailableRow>,
    /// What the packets of each row went through.
    pub paths: Vec<PathRecord>,
}

/// A row that can't run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableRow {
    /// The row.
    pub method: Row,
    /// Why, and what would mend it.
    #[serde(flatten)]
    pub unsupported: Unsupported,
}

/// The machine on which a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The version of vtax.
    pub vtax: String,
    /// The machine's name.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// Model of the CPUs.
    pub cpu_model: String,
    /// CPUs that vtax may use.
    pub cpus: u32,
    /// NUMA nodes.
    pub numa_nodes: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's clock, as `tsc`.
    pub clocksource: String,
    /// The frequency governor, or `none`.
    pub governor: String,
    /// The deepest idle state's exit latency in µs, if the kernel tells.
    pub deepest_idle_us: Option<u32>,
    /// Simultaneous multithreading: `on`, `off`, `notsupported`.
    pub smt: String,
    /// The hypervisor under this machine, or `none`.
    pub hypervisor: String,
    /// CPU vulnerabilities' mitigations, name and state.
    pub mitigations: Vec<(String, String)>,
    /// TCP congestion control.
    pub congestion_control: String,
    /// `root` or `user namespace`.
    pub privilege: String,
}

/// Which CPUs the measuring threads of each end were pinned to; empty means unpinned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Placement {
    /// Sends requests or the stream.
    pub initiator: Vec<u32>,
    /// Answers or receives.
    pub responder: Vec<u32>,
}

/// The links between the two ends of a row, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// The row.
    pub method: Row,
    /// The MTU of the wire when this was read.
    pub mtu: Mtu,
    /// From the initiator to the responder.
    pub hops: Vec<Hop>,
}

/// One link of a path, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The host or zone in whose stack the link is.
    pub domain: String,
    /// Its name there.
    pub link: String,
    /// The kernel's kind of link: `veth`, `bridge`, …
    pub kind: String,
    /// As read back.
    pub mtu: u32,
    /// The queueing discipline at its root.
    pub qdisc: String,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
}

/// One timed run of one cell, both ends joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Index into the study's cells.
    pub cell: usize,
    /// Which arm of the baseline.
    pub arm: Arm,
    /// From 1.
    pub round: u32,
    /// RFC 3339, UTC, when it began.
    pub at: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Index into the study's cells.
    pub cell: usize,
    /// Which arm of the baseline.
    pub arm: Arm,
    /// From 1.
    pub round: u32,
    /// The error, as the user was told.
    pub error: String,
}

/// What a sample measured. RR counts come from the initiator, those of a stream or a file from
/// the receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The measured time of the end that counted.
    pub seconds: f64,
    /// Request/response pairs.
    pub transactions: u64,
    /// Payload bytes: received (stream, file), both directions (RR).
    pub bytes: u64,
    /// Round-trip times in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<RttFigures>,
    /// UDP messages that never arrived.
    pub lost: u64,
    /// UDP datagrams that were overtaken.
    pub reordered: u64,
    /// TCP segments sent again, both ends.
    pub retransmits: u64,
    /// What it cost.
    pub cpu: CpuFigures,
    /// File transfers: the sender's `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileReport>,
}

/// Round-trip times of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RttFigures {
    /// From the histogram; the inverse of the rate is `seconds / transactions`.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99 of 100 were at most this.
    pub p99: u64,
    /// 999 of 1,000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// All of them: HdrHistogram V2, base64.
    pub hdr: Histogram,
}

/// CPU seconds of a sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuFigures {
    /// Whether both ends were on one machine, whose CPU time then must not be added up twice.
    pub one_machine: bool,
    /// The end that sends requests or the stream.
    pub initiator: EndCpu,
    /// The end that answers or receives.
    pub responder: EndCpu,
}

/// CPU seconds at one end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndCpu {
    /// Each measuring thread.
    pub threads: Vec<ThreadCpu>,
    /// The whole machine in this end's measured time.
    pub machine: MachineCpu,
    /// That time in seconds.
    pub seconds: f64,
}

impl EndCpu {
    fn of(report: &EndReport) -> EndCpu {
        EndCpu { threads: report.threads.clone(), machine: report.machine, seconds: report.seconds }
    }
}

impl Figures {
    /// Joins what the two ends saw.
    pub fn join(kind: TestKind, one_machine: bool, initiator: &EndReport, responder: &EndReport) -> Figures {
        let counting = match kind {
            TestKind::Rr => initiator,
            TestKind::Stream | TestKind::File => responder,
        };
        Figures {
            seconds: counting.seconds,
            transactions: counting.transactions,
            bytes: counting.bytes,
            rtt_ns: counting.rtt.as_ref().map(RttFigures::of),
            lost: counting.lost,
            reordered: counting.reordered,
            retransmits: initiator.retransmits + responder.retransmits,
            cpu: CpuFigures { one_machine, initiator: EndCpu::of(initiator), responder: EndCpu::of(responder) },
            file: initiator.file,
        }
    }

    /// Transactions per second.
    pub fn rate(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }

    /// The mean round-trip time in µs as the inverse of the rate, as netperf and sparc-t7-1 have it.
    pub fn rtt_us(&self) -> f64 {
        self.seconds * 1e6 / self.transactions as f64
    }

    /// Payload in 10^6 bits per second, at the end that counted.
    pub fn goodput_mbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds / 1e6
    }

    /// Seconds of CPU that the machines of both ends were busy, per second of the sample.
    ///
    /// Everything that ran on them is in it: that is what netperf's service demand counts, and
    /// the only way to catch the work that no measuring thread is charged for.
    pub fn busy_cpus(&self) -> f64 {
        let per_second = |end: &EndCpu| if end.seconds > 0.0 { end.machine.busy() / end.seconds } else { 0.0 };
        match self.cpu.one_machine {
            true => per_second(&self.cpu.initiator),
            false => per_second(&self.cpu.initiator) + per_second(&self.cpu.responder),
        }
    }

    /// µs of CPU for one transaction (netperf's service demand of a request/response test).
    pub fn cpu_us_per_transaction(&self) -> f64 {
        self.busy_cpus() * 1e6 / self.rate()
    }

    /// µs of CPU for 1,024 bytes of payload (netperf's service demand of a stream).
    pub fn cpu_us_per_kb(&self) -> f64 {
        self.busy_cpus() * self.seconds * 1e6 / (self.bytes as f64 / 1024.0)
    }
}

impl RttFigures {
    fn of(histogram: &Histogram) -> RttFigures {
        RttFigures {
            mean: histogram.mean_ns(),
            p50: histogram.percentile(50.0),
            p99: histogram.percentile(99.0),
            p999: histogram.percentile(99.9),
            max: histogram.max(),
            hdr: histogram.clone(),
        }
    }
}
