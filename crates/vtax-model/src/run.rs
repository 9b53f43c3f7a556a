//! A run of a study: its plan, its machine, and the samples in the order in which they were stored. Every figure is
//! computed from it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::Display;

use crate::{
    cell::{Arm, Instrument, Turn, round_order},
    disk::DiskIdentity,
    endpoint::{Ends, Pinning},
    foreign::ForeignText,
    guest::Accelerator,
    guest::Flavour,
    measurement::EndReport,
    method::Unsupported,
    metric::Metric,
    nic::NicFacts,
    station::PublishedPorts,
    study::{Row, SamplingPlan, StepRecord, Study},
    units::Mtu,
    workload::TestKind,
};
use vtax_stats::StoppingRule;

mod domain;
mod environment;
mod experience;
mod extend;
mod figures;
mod goal;
mod host_cpu;
mod looks;
mod namespace;
mod others;
mod parallel;
mod placement_note;
mod pod;
mod precision;
mod progress;
mod reading;
mod source;
#[cfg(test)]
pub(crate) mod tests;

pub use domain::{DomainKeeper, DomainNic, DomainRecord};
pub use environment::{EmulatedServer, Environment, IdleFacts, IdleState};
pub use experience::{Experience, Forecast, Resolution, Unreachable};
pub use extend::ExtendError;
pub use figures::{
    BothEnds, CpuFigures, EndCpu, EndDetail, EndLocation, Figures, LoadFigures, MigrationFigures, RttFigures,
    WaitFigures,
};
pub use goal::{Difference, Goal, NoDifference};
pub use host_cpu::{ClockReading, GuestCpu, HostCpu, RelayCpu};
pub use namespace::{ContainerRecord, CpuQuota, NamespaceRecord, ProcessLimits};
pub use others::OtherPrograms;
pub use parallel::{PairFigures, PairReports, Parallel, Skew};
pub use placement_note::PlacementNote;
pub use pod::PodRecord;
pub use precision::{stopping_figures, stopping_outcome};
pub use progress::RunProgress;
pub(crate) use reading::pairs;
pub use reading::{CpuReading, EndCpuReading, EndReading, RttReading, SampleReading};
pub use source::{SampleSource, SampleTimes};

/// A run of a study, with its samples or their in-memory part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run<S = Vec<Sample>> {
    /// The plan, and the machine.
    pub header: RunHeader,
    /// Complete, running or stopped.
    pub state: RunState,
    /// Wall-clock seconds spent in it, summed over its sessions if it was resumed.
    pub wall_seconds: f64,
    /// In the order in which they were stored.
    pub samples: S,
    /// Samples that could not be taken.
    pub failures: Vec<Failure>,
}

/// A run in memory while it is measured: its samples are in the store.
pub type RunReadings = Run<Vec<SampleReading>>;

impl RunReadings {
    /// Returns a run without samples.
    pub fn begun(header: RunHeader) -> RunReadings {
        Run { header, state: RunState::Running, wall_seconds: 0.0, samples: Vec::new(), failures: Vec::new() }
    }

    /// Adds a sample, which replaces an earlier failure.
    pub fn land(&mut self, sample: &Sample) {
        self.failures.retain(|failure| failure.turn() != sample.turn());
        self.samples.push(SampleReading::of(sample));
    }

    /// Adds a failure, which replaces an earlier one of the same sample.
    pub fn fail(&mut self, failure: Failure) {
        self.failures.retain(|earlier| earlier.turn() != failure.turn());
        self.failures.push(failure);
    }

    fn arm(&self, cell: usize, arm: Arm) -> impl Iterator<Item = &SampleReading> {
        self.samples.iter().filter(move |reading| reading.cell == cell && reading.arm == arm)
    }
}

impl<S> Run<S> {
    /// Returns the same run with its samples in another form.
    pub fn with_samples<T>(self, of: impl FnOnce(S) -> T) -> Run<T> {
        let Run { header, state, wall_seconds, samples, failures } = self;
        Run { header, state, wall_seconds, samples: of(samples), failures }
    }
}

impl<S: SampleSource> Run<S> {
    /// Returns the run in memory.
    pub fn readings(&self) -> Result<RunReadings, S::Error> {
        let mut samples = Vec::new();
        self.samples.samples(&mut |sample| samples.push(SampleReading::of(sample)))?;
        let Run { header, state, wall_seconds, failures, .. } = self;
        let (header, failures) = (header.clone(), failures.clone());
        Ok(Run { header, state: *state, wall_seconds: *wall_seconds, samples, failures })
    }
}

/// Completeness of a run, as stored with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RunState {
    /// Running, or killed: `vtax run --resume` resumes it.
    Running,
    /// Stopped by the user or by an error; the samples are kept, and it can be resumed.
    Stopped,
    /// Every sample of the plan was taken or has failed.
    Complete,
}

/// The complete effective plan of a run, fixed before its first sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// Unique: the study's name, the time, and a random part.
    pub id: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// The study, as resolved.
    pub study: Study,
    /// Samples, duration and warm-up of the cells with host settings.
    pub plan: SamplingPlan,
    /// The plan of the cells under controlled conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_plan: Option<SamplingPlan>,
    /// True if this is the short plan of `--quick`.
    pub quick: bool,
    /// The seed of the order of the samples.
    pub seed: u64,
    /// When to stop before or after `plan.samples` rounds, if `--confidence` was given.
    pub stopping: Option<StoppingRule>,
    /// Metric that the stopping rule and the goal refer to, in tests that have it. Absent if it is each test's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Goal of the number of rounds, until it is chosen: until then the plan is a short pilot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Goal>,
    /// The machine.
    pub environment: Environment,
    /// CPU pinning of the endpoints.
    pub placement: Placement,
    /// Rows that can't run on this machine.
    pub unavailable: Vec<UnavailableRow>,
    /// Path of the packets of each row.
    pub paths: Vec<PathRecord>,
    /// Paths to the disks of each row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskPathRecord>,
    /// Endpoints of each row.
    #[serde(default)]
    pub ends: Vec<RowEnds>,
    /// The user's label; may be empty.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub label: ForeignText,
    /// The command line that takes the same samples in the same order, in shell notation. Empty in older runs.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub command: ForeignText,
    /// Origin of the figures, if vtax didn't measure them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<ImportedFrom>,
    /// Changes of the study's tuning steps here, while the rows of a step are measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// A step is kept if its gain certainly exceeds this. Absent if no step is to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Difference>,
}

/// A measurement by another program, read from its files, under conditions unknown to vtax.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedFrom {
    /// The program, with its version if the files report it: `iperf 3.12`.
    pub program: ForeignText,
    /// The files as named by the user, one for each sample.
    pub files: Vec<ForeignText>,
    /// True if the time of the run is from the files. Otherwise it is the modification time of the first file.
    pub dated: bool,
}

impl RunHeader {
    /// Returns a run of a study by its own plan, with defaults for everything else.
    pub fn plain(id: String, started: String, study: Study) -> RunHeader {
        RunHeader {
            id,
            started,
            plan: study.plan,
            path_plan: study.path,
            study,
            quick: false,
            seed: 0,
            stopping: None,
            metric: None,
            unsettled: None,
            environment: Environment::default(),
            placement: Placement::default(),
            unavailable: Vec::new(),
            paths: Vec::new(),
            disks: Vec::new(),
            ends: Vec::new(),
            label: ForeignText::default(),
            command: ForeignText::default(),
            imported: None,
            steps: Vec::new(),
            margin: None,
        }
    }

    /// Caveat for each figure.
    pub fn caveat(&self) -> Option<String> {
        let imported = |from: &ImportedFrom| format!("measured by {}, not by vtax", from.program);
        self.imported.as_ref().map(imported).or(self.environment.caveat().map(str::to_owned))
    }

    /// Returns the metric that the stopping rule and the goal refer to in tests of this kind.
    pub fn metric_of(&self, test: TestKind) -> Metric {
        Metric::chosen(self.metric, test).unwrap_or(Metric::of(test))
    }

    /// Returns the plan of a mode's cells.
    pub fn plan_of(&self, instrument: Instrument) -> &SamplingPlan {
        match (instrument, &self.path_plan) {
            (Instrument::Path, Some(plan)) => plan,
            _ => &self.plan,
        }
    }

    /// Returns the samples of a round in order, without rows that can't run here and modes that are complete.
    pub fn turns(&self, round: u32) -> Vec<Turn> {
        let cells = &self.study.cells;
        let mut turns = round_order(cells, self.study.baseline, self.seed, round);
        turns.retain(|turn| {
            let cell = &cells[turn.cell];
            self.runs_here(cell.row) && round <= self.rounds_of(cell.instrument)
        });
        turns
    }

    /// Returns true if the row can run on this machine.
    pub(crate) fn runs_here(&self, row: Row) -> bool {
        !self.unavailable.iter().any(|unavailable| unavailable.method == row)
    }

    /// Returns the maximum number of rounds of a mode; the stopping rule of the answering mode may end the run earlier.
    pub fn rounds_of(&self, instrument: Instrument) -> u32 {
        let rule = self.stopping.as_ref().filter(|_| instrument == self.study.answering());
        rule.map_or(self.plan_of(instrument).samples, |rule| rule.max() as u32)
    }

    /// Returns the number of rounds of the study's mode that has the most.
    pub fn rounds(&self) -> u32 {
        let instruments = self.study.cells.iter().map(|cell| cell.instrument);
        instruments.map(|instrument| self.rounds_of(instrument)).max().unwrap_or(0)
    }
}

/// Endpoints of a row; all pairs are measured concurrently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowEnds {
    /// Row that is measured between these ends.
    pub method: Row,
    /// MTU that these endpoints are for; absent if they are for all of the study's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// At least one.
    pub pairs: Vec<PairRecord>,
}

/// Two endpoints as found.
pub type PairRecord = Ends<EndRecord>;

/// One endpoint as found.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// Its name for the user: `ssh:root@vm1`, `zone bridge-sut`, `host sut`, `local`.
    pub name: ForeignText,
    /// The address that its sockets were bound to.
    pub address: ForeignText,
    /// The CPUs that its threads were pinned to, in turn; empty means unpinned.
    pub cpus: Vec<u32>,
    /// Its machine, if that isn't the one on which vtax ran.
    pub environment: Option<Environment>,
    /// The virtual machine that it is, if libvirt runs it.
    pub domain: Option<DomainRecord>,
    /// The network namespace that it is, if it is one of this machine that existed before the run.
    pub namespace: Option<NamespaceRecord>,
    /// The pod, with the container that the agent was in.
    #[serde(default)]
    pub pod: Option<PodRecord>,
    /// The ports at which the other endpoint reached it, if not at its own address.
    #[serde(default)]
    pub published: Option<PublishedPorts>,
}

impl EndRecord {
    /// Returns the record of an end of which only the name is known.
    pub fn named(name: impl Into<ForeignText>) -> EndRecord {
        EndRecord {
            name: name.into(),
            address: ForeignText::default(),
            cpus: Vec::new(),
            environment: None,
            domain: None,
            namespace: None,
            pod: None,
            published: None,
        }
    }
}

/// A row that can't run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableRow {
    /// Row of the study whose cells are not sampled.
    pub method: Row,
    /// Reason and remedy.
    #[serde(flatten)]
    pub unsupported: Unsupported,
}

/// CPUs of each endpoint's measuring threads on this machine; empty if unpinned. Others are in [`EndRecord`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// The request: for both endpoints, or for the initiator.
    pub policy: Pinning,
    /// The request for the responder, if different.
    pub responder_policy: Option<Pinning>,
    /// Sends requests or the stream.
    pub initiator: Vec<u32>,
    /// Answers or receives.
    pub responder: Vec<u32>,
    /// The single CPU of both endpoints under controlled conditions, if they share one.
    pub path: Option<u32>,
    /// Accelerator of the run's guests, if it has any.
    pub guests: Option<GuestMachine>,
    /// Unavailable resources of this machine, and placement of vCPUs, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<PlacementNote>,
}

/// Hypervisor of a run's guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMachine {
    /// KVM or TCG.
    pub accel: Accelerator,
    /// Reason why it isn't KVM, if that was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_kvm: Option<ForeignText>,
    /// QEMU's version.
    pub qemu: ForeignText,
}

/// The links between the two endpoints of a row, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Row whose packets pass these links.
    pub method: Row,
    /// MTU of the wire when this was read.
    pub mtu: Mtu,
    /// Actual kind of the row's guests' NIC, even if the row leaves it to vtax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Flavour>,
    /// From the initiator to the responder.
    pub hops: Vec<Hop>,
}

/// The path to a disk of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPathRecord {
    /// Row that is measured on this disk.
    pub method: Row,
    /// The disk as the user named it.
    pub disk: ForeignText,
    /// The program that measured it, with its version.
    pub program: ForeignText,
    /// Its backend.
    pub path: DiskIdentity,
}

/// One link of a path, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The host or zone in whose stack the link is.
    pub domain: ForeignText,
    /// Its name there.
    pub link: ForeignText,
    /// The kernel's kind of link: `veth`, `bridge`, …
    pub kind: ForeignText,
    /// The MTU that the kernel reports.
    pub mtu: u32,
    /// The queueing discipline at its root.
    pub qdisc: ForeignText,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Driver, offloads, rings, interrupts.
    #[serde(default)]
    pub nic: NicFacts,
}

/// One sample of a cell, both endpoints joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Index into the study's cells.
    pub cell: usize,
    /// Arm of the baseline.
    pub arm: Arm,
    /// From 1.
    pub round: u32,
    /// RFC 3339, UTC, when it began.
    pub at: String,
    /// Measured values of both ends, joined.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Sample {
    /// Returns the round and the turn in it, which are unique within the run.
    pub fn turn(&self) -> (u32, Turn) {
        (self.round, Turn { cell: self.cell, arm: self.arm })
    }
}

impl Failure {
    /// Returns the round and the turn of the failed sample.
    pub fn turn(&self) -> (u32, Turn) {
        (self.round, Turn { cell: self.cell, arm: self.arm })
    }
}

/// A sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Index into the study's cells.
    pub cell: usize,
    /// Arm of the baseline.
    pub arm: Arm,
    /// From 1.
    pub round: u32,
    /// The error as reported to the user.
    pub error: ForeignText,
    /// Partial measurements. No figure is computed from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<PartialRecord>>,
}

/// State of the endpoints when a sample was aborted.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartialRecord {
    /// The end that connects.
    pub initiator: Option<EndReport>,
    /// The end that is connected to.
    pub responder: Option<EndReport>,
}
