//! The result document for scripts, by the JSON Schema `docs/vtax.result.v1.schema.json`; a test compares them.

mod disturbance;
mod ends;
mod estimates;
mod host_cpu;
mod shift;
mod tax;
mod unit_estimate;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use disturbance::Disturbance;
pub use ends::{CpuAtEnds, EndStages, PairSummary, ParallelSummary, StageFigures, StagesSummary, WarmupSummary};
pub use estimates::FigureEstimates;
pub use host_cpu::{GuestClock, HostCpuSummary};
pub use shift::QuantileShift;
pub use tax::{Delta, FloorRecord, TaxRecord};
pub use unit_estimate::UnitEstimate;

use crate::{
    address_family::AddressFamily,
    cell::{Cell, Instrument},
    endpoint::Ends,
    foreign::ForeignText,
    guest::Flavour,
    measurement::{QuotaStops, ThreadPriority},
    metric::{Metric, SampleFigure},
    published::PublishedFigure,
    run::{
        DiskPathRecord, EndReading, Environment, Failure, ImportedFrom, PathRecord, Placement, RowEnds, RunState,
        SampleReading,
    },
    study::{Row, SamplingPlan, StepRecord},
};
use vtax_stats::StoppingRule;

/// The schema's name and version.
pub const SCHEMA: &str = "vtax.result/v1";

/// A run with its figures. For tables it has the in-memory part of its samples; when written, it has the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultDocument<S = Vec<SampleReading>> {
    /// Name and version of the schema: [`SCHEMA`].
    pub schema: String,
    pub study: String,
    /// The study's title.
    pub title: ForeignText,
    /// The study's question, as worded in its file.
    pub question: ForeignText,
    /// The user's label of the run; may be empty.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub label: ForeignText,
    /// ID of the run.
    pub id: String,
    /// Complete, running or stopped.
    pub state: RunState,
    /// RFC 3339, UTC.
    pub started: String,
    /// Caveat for every figure; none for a real machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caveat: Option<ForeignText>,
    /// Wall-clock seconds.
    pub wall_seconds: f64,
    /// True if the method is used at both endpoints.
    pub both: bool,
    /// The row that the others are compared with.
    pub baseline: Row,
    /// Its sampling plan.
    pub plan: PlanRecord,
    /// The machine.
    pub environment: Environment,
    /// Placement of the endpoints.
    pub placement: Placement,
    /// The command line that repeats the run, as a shell reads it. Empty for runs of an older vtax.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub command: ForeignText,
    /// Origin of the figures, if vtax didn't measure them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<ImportedFrom>,
    /// The paths to the disks, if disks were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskPathRecord>,
    /// Changes in effect while the rows named after steps were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// Other activity there.
    pub disturbance: Disturbance,
    /// True if an older vtax derived CPU figures from the kernel's timer ticks only: they are 8 to 41 % too low.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub cpu_by_ticks: bool,
    /// Number of samples whose machine seemed to work less than its measuring threads, whose time then counts, as a
    /// bound.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub cpu_raised: u64,
    /// The baseline compared with itself, one entry for each block of the matrix and metric.
    pub noise_floor: Vec<FloorRecord>,
    /// The guests' clocks, if there are guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guest_clocks: Vec<GuestClock>,
    /// Every cell, including those that could not run.
    pub cells: Vec<CellRecord<S>>,
    /// Samples that could not be taken.
    pub failures: Vec<Failure>,
}

/// Returns e.g. `before tuning: TCP RR, local to local`.
pub fn labelled(label: &str, title: &str) -> String {
    if label.is_empty() { title.to_owned() } else { format!("{label}: {title}") }
}

impl<S> ResultDocument<S> {
    /// Returns the user's label and the study's title, for the top of a report.
    pub fn heading(&self) -> String {
        labelled(&self.label.to_string(), &self.title.to_string())
    }

    /// Returns true if `vtax run --resume` continues the run. Pods that a run has created are removed when it ends.
    pub fn is_resumable(&self) -> bool {
        !matches!(self.baseline, Row::Pods(_))
    }

    /// The same document with the samples of each cell in another form. `of` gets the cell's index and its samples.
    pub fn with_samples<T>(self, mut of: impl FnMut(usize, S) -> T) -> ResultDocument<T> {
        let cells = self.cells.into_iter().enumerate();
        ResultDocument {
            schema: self.schema,
            study: self.study,
            title: self.title,
            question: self.question,
            label: self.label,
            id: self.id,
            state: self.state,
            started: self.started,
            caveat: self.caveat,
            wall_seconds: self.wall_seconds,
            both: self.both,
            baseline: self.baseline,
            plan: self.plan,
            environment: self.environment,
            placement: self.placement,
            command: self.command,
            imported: self.imported,
            disks: self.disks,
            steps: self.steps,
            disturbance: self.disturbance,
            cpu_by_ticks: self.cpu_by_ticks,
            cpu_raised: self.cpu_raised,
            noise_floor: self.noise_floor,
            guest_clocks: self.guest_clocks,
            cells: cells.map(|(index, record)| record.with_samples(|samples| of(index, samples))).collect(),
            failures: self.failures,
        }
    }
}

impl<S> CellRecord<S> {
    pub(crate) fn with_samples<T>(self, of: impl FnOnce(S) -> T) -> CellRecord<T> {
        CellRecord {
            cell: self.cell,
            backend: self.backend,
            status: self.status,
            path: self.path,
            ends: self.ends,
            samples: of(self.samples),
            summary: self.summary,
            tax: self.tax,
            taxes: self.taxes,
            shifts: self.shifts,
            published: self.published,
            published_on: self.published_on,
        }
    }
}

impl ResultDocument {
    /// The measurement modes used, the answering one first; controlled conditions in documents without it.
    pub fn instruments(&self) -> Vec<Instrument> {
        let mut all = self.plan.answer.into_iter().chain(Instrument::ALL).collect::<Vec<_>>();
        let measured = |instrument: &Instrument| self.cells.iter().any(|record| record.cell.instrument == *instrument);
        all.retain(measured);
        let first = all.first().copied();
        all.sort_by_key(|instrument| Some(*instrument) != first);
        all.dedup();
        all
    }
}

/// The sampling plan in force.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Samples, duration and warm-up.
    #[serde(flatten)]
    pub sampling: SamplingPlan,
    /// The plan of the cells under controlled conditions.
    pub path: Option<SamplingPlan>,
    /// The measurement mode that answers the study's question. Absent in documents of older versions.
    pub answer: Option<Instrument>,
    /// True if `--quick` shortened it.
    pub quick: bool,
    /// Number of complete rounds.
    pub rounds: u32,
    /// The seed of the order of the samples.
    pub seed: u64,
    /// netperf's rule, if it was in force.
    pub stopping: Option<StoppingRule>,
    /// Metric that the stopping rule refers to, in tests that have it. Absent if it is each test's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
}

impl PlanRecord {
    /// Returns the number of rounds of the mode that has the most.
    pub fn longest(&self) -> u32 {
        self.sampling.samples.max(self.path.map_or(0, |path| path.samples))
    }
}

/// One cell of the matrix with its results.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRecord<S = Vec<SampleReading>> {
    /// Method, MTU, transport, test and sizes, streams.
    #[serde(flatten)]
    pub cell: Cell,
    /// Kind of the guests' NIC, if the row has guests: by the row, else as created.
    pub backend: Option<Flavour>,
    /// Status, with the reason if it has no figures.
    #[serde(flatten)]
    pub status: CellStatus,
    /// Path of its packets.
    pub path: Option<PathRecord>,
    /// Endpoints of the row.
    pub ends: Option<RowEnds>,
    /// In the order in which they were stored; the baseline has two per round.
    pub samples: S,
    /// Summary of the samples.
    pub summary: Option<SummaryRecord>,
    /// Comparison with the baseline, by the metric that the test is judged by; the baseline itself has none.
    pub tax: Option<TaxRecord>,
    /// Comparison with the baseline by each metric; `tax` is the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taxes: Vec<TaxRecord>,
    /// Differences of percentiles from the baseline's, ascending by percentile. Empty for the baseline, without the
    /// times of transactions, and in documents of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shifts: Vec<QuantileShift>,
    /// The published figure, if the source has only one: µs (RR) or Mb/s (stream).
    pub published: Option<f64>,
    /// The published figures, if the source has several machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_on: Vec<PublishedFigure>,
}

impl CellRecord {
    /// Returns the family of the addresses of its endpoints, if they have addresses.
    pub fn address_family(&self) -> Option<AddressFamily> {
        let address = self.ends.as_ref()?.pairs.first()?.initiator.address.raw();
        // A link-local address is followed by the link's name.
        address.split('%').next()?.parse().ok().map(AddressFamily::of)
    }

    /// Returns the priority of the threads that measured it, the lowest of all samples and ends.
    pub fn priority(&self) -> Option<ThreadPriority> {
        let ends = self.samples.iter().flat_map(|sample| [&sample.ends.initiator, &sample.ends.responder]);
        ends.filter_map(|end| end.priority).min()
    }

    /// Returns how often a CPU quota stopped each endpoint in all samples; absent without a quota.
    pub fn throttling(&self) -> Ends<Option<QuotaStops>> {
        let sum = |end: fn(&SampleReading) -> &EndReading| {
            self.samples.iter().filter_map(|sample| end(sample).throttling).reduce(QuotaStops::plus)
        };
        Ends { initiator: sum(|sample| &sample.ends.initiator), responder: sum(|sample| &sample.ends.responder) }
    }

    /// Returns true if the row cannot run on this machine.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.status, CellStatus::Unavailable { .. })
    }

    /// Returns the comparison with the baseline by this metric. Documents of versions without `taxes` have one.
    pub fn tax_of(&self, of: Metric) -> Option<&TaxRecord> {
        self.taxes.iter().chain(&self.tax).find(|tax| tax.of == of)
    }
}

/// Availability of a cell's figures, with the reason if there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum CellStatus {
    /// At least one sample of it succeeded.
    Measured,
    /// It can't run on this machine.
    Unavailable {
        /// The reason.
        why: String,
        /// Steps that make the row available here.
        remedy: String,
    },
    /// Every sample of it failed.
    Failed {
        /// The last error.
        why: ForeignText,
    },
    /// The run ended before its first sample.
    Missing,
}

/// An estimate over samples with its 95 % interval.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean over samples.
    pub mean: f64,
    /// Median over samples.
    pub median: f64,
    /// Lower end of the interval of the mean; absent with fewer than two samples.
    pub low: Option<f64>,
    /// Upper end of the interval of the mean.
    pub high: Option<f64>,
    /// Samples.
    pub n: usize,
}

/// A percentile of all transactions of a cell, with the interval of the samples' percentiles.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// From the merged histogram.
    pub value: f64,
    /// Lower end of the 95 % interval over samples; absent with fewer than two samples.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// A cell's figures over its samples.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryRecord {
    /// Every figure of the test that has its own name here: the rate of transactions, the goodput of bytes, and their
    /// CPU time.
    #[serde(flatten)]
    pub figures: FigureEstimates,
    /// RR.
    pub rtt_us: Option<RttSummary>,
    /// Disks: response times of random I/Os.
    pub response_us: Option<RttSummary>,
    /// Open loop: the same, from when each request was actually sent, not from when it was due.
    pub rtt_from_send_us: Option<RttSummary>,
    /// CPU time of each endpoint's measuring threads; absent if none was reported.
    pub cpu_us_at_ends: Option<CpuAtEnds>,
    /// File: the sender's elapsed seconds.
    pub file: Option<FileSummary>,
    /// UDP messages lost, over all samples; absent if another program measured that doesn't report
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// UDP messages lost, as a share of those sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_share: Option<f64>,
    /// UDP datagrams reordered, over all samples; absent if another program measured that doesn't report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered: Option<u64>,
    /// TCP segments retransmitted, over all samples; absent if another program measured that doesn't report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Packets on the wire, over all samples: those sent by both endpoints' measured sockets. Absent if the kernel
    /// doesn't count them per socket, or if another program measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of these packets with the headers of IP and of TCP or UDP, without Ethernet's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_bytes: Option<u64>,
    /// UDP datagrams of the whole flows, including warm-up, that a socket had no room for, over all samples; absent if
    /// another program measured that doesn't report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_drops: Option<u64>,
    /// crr and cc: connections to the responder's port that ended without presenting the test's token.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub strangers: u64,
    /// Warm-up before the measured times.
    pub warmup: Option<WarmupSummary>,
    /// Round-trip breakdown.
    pub stages: Option<StagesSummary>,
    /// Concurrent pairs; the other figures are of all together.
    pub parallel: Option<ParallelSummary>,
    /// Host cost of guests.
    pub host_cpu: Option<HostCpuSummary>,
}

impl SummaryRecord {
    /// Returns the estimate of a figure, wherever it is stored.
    pub fn estimate(&self, figure: SampleFigure) -> Option<Estimate> {
        match figure {
            SampleFigure::Rtt => self.time_us().map(|time| time.mean),
            SampleFigure::Real => self.file.as_ref().map(|file| file.real),
            figure => self.figures.get(figure),
        }
    }

    /// Returns the first of these that is known, with its unit.
    pub fn estimate_of(&self, figures: impl IntoIterator<Item = SampleFigure>) -> Option<UnitEstimate> {
        figures.into_iter().find_map(|figure| Some(UnitEstimate::new(self.estimate(figure)?, figure.unit())))
    }

    /// Returns the time of a transaction, whether that is a round trip or an I/O.
    pub fn time_us(&self) -> Option<&RttSummary> {
        self.rtt_us.as_ref().or(self.response_us.as_ref())
    }

    /// Percentiles of its transactions' times, if recorded.
    pub fn times(&self) -> Option<&RttTimes> {
        self.time_us()?.times.as_ref()
    }
}

/// Round-trip times of a cell, in µs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RttSummary {
    /// Over samples: the inverse of each flow's rate if that is the mean, else from the histogram.
    pub mean: Estimate,
    /// True if the mean is the inverse of the rate.
    #[serde(default)]
    pub by_rate: bool,
    /// Absent if the times were not stored.
    #[serde(flatten)]
    pub times: Option<RttTimes>,
    /// Further percentiles, ascending. Empty if the times were not stored, and in documents of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<DistributionPoint>,
}

/// A percentile of the times of all transactions of a cell, with the number of transactions above it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DistributionPoint {
    /// E.g. 99.9.
    pub percent: f64,
    /// Time in µs, from the merged histogram.
    pub us: f64,
    /// Transactions that took longer, at least ten.
    pub above: u64,
}

/// Percentiles of the times of all transactions of a cell, in µs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RttTimes {
    /// Median transaction.
    pub p50: Percentile,
    /// 99th percentile.
    pub p99: Percentile,
    /// 99.9th percentile.
    pub p999: Percentile,
    /// Maximum.
    pub max: f64,
}

/// Times of a file transfer as printed by `time`, in seconds, over samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSummary {
    /// Elapsed.
    pub real: Estimate,
    /// CPU in user space.
    pub user: Estimate,
    /// CPU in the kernel.
    pub sys: Estimate,
}
