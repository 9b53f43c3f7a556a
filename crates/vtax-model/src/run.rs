//! A run of a study: its plan, where it ran, and the samples as they landed. Every figure is computed from it.

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
pub use precision::{stopping_figures, stopping_outcome};
pub use progress::RunProgress;
pub(crate) use reading::pairs;
pub use reading::{CpuReading, EndCpuReading, EndReading, RttReading, SampleReading};
pub use source::{SampleSource, SampleTimes};

/// A run of a study, with its samples or with what is held of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run<S = Vec<Sample>> {
    /// The plan, and the machine.
    pub header: RunHeader,
    /// Complete, running or stopped.
    pub state: RunState,
    /// Wall-clock seconds spent in it, summed over its sessions if it was resumed.
    pub wall_seconds: f64,
    /// In the order in which they landed.
    pub samples: S,
    /// Samples that could not be taken.
    pub failures: Vec<Failure>,
}

/// A run as it is held while it is measured: its samples are stored.
pub type RunReadings = Run<Vec<SampleReading>>;

impl RunReadings {
    /// A run that has no sample yet.
    pub fn begun(header: RunHeader) -> RunReadings {
        Run { header, state: RunState::Running, wall_seconds: 0.0, samples: Vec::new(), failures: Vec::new() }
    }

    /// Adds a sample. It takes the place of an earlier failure.
    pub fn land(&mut self, sample: &Sample) {
        self.failures.retain(|failure| failure.turn() != sample.turn());
        self.samples.push(SampleReading::of(sample));
    }

    /// Adds a failure. It takes the place of an earlier one of the same sample.
    pub fn fail(&mut self, failure: Failure) {
        self.failures.retain(|earlier| earlier.turn() != failure.turn());
        self.failures.push(failure);
    }

    fn arm(&self, cell: usize, arm: Arm) -> impl Iterator<Item = &SampleReading> {
        self.samples.iter().filter(move |reading| reading.cell == cell && reading.arm == arm)
    }
}

impl<S> Run<S> {
    /// The same run with its samples in another form.
    pub fn with_samples<T>(self, of: impl FnOnce(S) -> T) -> Run<T> {
        let Run { header, state, wall_seconds, samples, failures } = self;
        Run { header, state, wall_seconds, samples: of(samples), failures }
    }
}

impl<S: SampleSource> Run<S> {
    /// The run in memory.
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
    /// Stopped by the user or by an error, with what was measured kept; can be resumed.
    Stopped,
    /// Every sample of the plan was taken or has failed.
    Complete,
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
    /// Metric that the stopping rule and the goal refer to, in tests that have it. Absent if each test's own is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Goal of the number of rounds, until it is chosen: until then the plan is a short pilot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Goal>,
    /// The machine.
    pub environment: Environment,
    /// Which CPUs the ends were pinned to.
    pub placement: Placement,
    /// Rows that can't run on this machine.
    pub unavailable: Vec<UnavailableRow>,
    /// Path of the packets of each row.
    pub paths: Vec<PathRecord>,
    /// Paths to the disks of each row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskPathRecord>,
    /// Between which ends each row was measured.
    #[serde(default)]
    pub ends: Vec<RowEnds>,
    /// The user's label; may be empty.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub label: ForeignText,
    /// The command line that takes the same samples in the same order, as a shell reads it. Empty in older runs.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub command: ForeignText,
    /// Where its figures are from, if vtax didn't measure them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<ImportedFrom>,
    /// Changes of the study's tuning steps here, while the rows of a step are measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// A step is kept if it surely helps by more than this. Absent if no step is to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Difference>,
}

/// A measurement by another program, read from its files, under conditions unknown to vtax.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedFrom {
    /// The program, with its version if the files tell: `iperf 3.12`.
    pub program: ForeignText,
    /// The files as they were named, one for each sample.
    pub files: Vec<ForeignText>,
    /// True if the time of the run is from the files. Else it is when the first file was last changed.
    pub dated: bool,
}

impl RunHeader {
    /// A run of a study by its own plan, of which nothing else is said.
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

    /// Metric that the stopping rule and the goal refer to in tests of this kind.
    pub fn metric_of(&self, test: TestKind) -> Metric {
        Metric::chosen(self.metric, test).unwrap_or(Metric::of(test))
    }

    /// The plan of an instrument's cells.
    pub fn plan_of(&self, instrument: Instrument) -> &SamplingPlan {
        match (instrument, &self.path_plan) {
            (Instrument::Path, Some(plan)) => plan,
            _ => &self.plan,
        }
    }

    /// The samples of a round in their order, without rows that can't run here and instruments that are done.
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

    /// Rounds of an instrument, at most, if the stopping rule of the instrument that answers ends the run before.
    pub fn rounds_of(&self, instrument: Instrument) -> u32 {
        let rule = self.stopping.as_ref().filter(|_| instrument == self.study.answering());
        rule.map_or(self.plan_of(instrument).samples, |rule| rule.max() as u32)
    }

    /// Rounds of the instrument that has the most of those in the study.
    pub fn rounds(&self) -> u32 {
        let instruments = self.study.cells.iter().map(|cell| cell.instrument);
        instruments.map(|instrument| self.rounds_of(instrument)).max().unwrap_or(0)
    }
}

/// The ends of a row: each pair measured at the same time as the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowEnds {
    /// Row that is measured between these ends.
    pub method: Row,
    /// The MTU that these ends are for; absent if they serve all of the study's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// At least one.
    pub pairs: Vec<PairRecord>,
}

/// Two ends, as they were found.
pub type PairRecord = Ends<EndRecord>;

/// One end, as it was found.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// Its name as the user knows it: `ssh:root@vm1`, `zone bridge-sut`, `host sut`, `local`.
    pub name: ForeignText,
    /// Where its sockets were bound.
    pub address: ForeignText,
    /// The CPUs that its threads were pinned to, in turn; empty means unpinned.
    pub cpus: Vec<u32>,
    /// Its machine, if that isn't the one on which vtax ran.
    pub environment: Option<Environment>,
    /// The virtual machine that it is, if libvirt runs it.
    pub domain: Option<DomainRecord>,
    /// The network namespace that it is, if it is one of this machine that existed before the run.
    pub namespace: Option<NamespaceRecord>,
    /// The ports by which the other end reached it, if not by its address.
    #[serde(default)]
    pub published: Option<PublishedPorts>,
}

/// A row that can't run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableRow {
    /// Row of the study whose cells are not sampled.
    pub method: Row,
    /// Why, and what would mend it.
    #[serde(flatten)]
    pub unsupported: Unsupported,
}

/// The CPUs of each end's measuring threads on this machine; empty means unpinned. Others are in [`EndRecord`].
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
    /// Why that isn't KVM, if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_kvm: Option<ForeignText>,
    /// QEMU's version.
    pub qemu: ForeignText,
}

/// The links between the two ends of a row, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Row whose packets pass these links.
    pub method: Row,
    /// The MTU of the wire when this was read.
    pub mtu: Mtu,
    /// Which kind of NIC the row's guests really have: also where the row leaves it to vtax.
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
    /// Measured values of both ends, joined.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Sample {
    /// The round and the turn in it, which no other sample of the run has.
    pub fn turn(&self) -> (u32, Turn) {
        (self.round, Turn { cell: self.cell, arm: self.arm })
    }
}

impl Failure {
    /// The round and the turn in it of the sample that failed.
    pub fn turn(&self) -> (u32, Turn) {
        (self.round, Turn { cell: self.cell, arm: self.arm })
    }
}

/// A sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Index into the study's cells.
    pub cell: usize,
    /// Which arm of the baseline.
    pub arm: Arm,
    /// From 1.
    pub round: u32,
    /// The error, as the user was told.
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
