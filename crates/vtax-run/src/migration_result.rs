//! Migration of a domain as it is stored: a run of one sample, in the form of a row of the study `migration`.

use std::time::{Duration, Instant};

use vtax_domain::Migrated;
use vtax_guest::{
    launch::Launch,
    migration::SuspendTimes,
    qmp::{MigrationInfo, MigrationRam},
};
use vtax_host::inspect;
use vtax_model::{
    cell::{Arm, Cell, CellTest, Instrument, MigrationCell},
    endpoint::Ends,
    foreign::ForeignText,
    guest::{GuestDefaults, GuestSize},
    run::{
        DomainKeeper, DomainRecord, EndRecord, Environment, Failure, Figures, GuestMachine, MigrationFigures,
        Placement, RowEnds, Run, RunHeader, RunState, Sample,
    },
    study::{MigratedDomain, MigrationWay, Row, SamplingPlan, Study, StudyMigrations, StudySubject},
    units::Span,
    workload::Warmup,
};

use crate::{
    stop::{Blamed, Stop},
    study::{compact, now, random_seed},
    suspend_watch::ObservedSuspension,
};

/// Study that the runs of all migrated domains name.
const STUDY: &str = "migrate-domain";

/// Migration of a running domain that begins now.
#[derive(Debug, Clone)]
pub struct MigrationAttempt {
    pub domain: MigratedDomain,
    pub way: MigrationWay,
    pub max_suspend: Span,
    /// Time limit for the memory.
    pub timeout: Span,
    /// QEMU of the domain at its source.
    pub launch: Box<Launch>,
    /// Machine of the target, unless it is this one.
    pub target: Option<Box<Environment>>,
    pub start: AttemptStart,
}

/// Time at which an attempt began.
#[derive(Debug, Clone)]
pub struct AttemptStart {
    at: String,
    begun: Instant,
}

impl AttemptStart {
    pub fn now() -> AttemptStart {
        AttemptStart { at: now(), begun: Instant::now() }
    }
}

impl MigrationAttempt {
    /// Returns the complete run of an attempt that has ended: with its figures, or with the reason why there are none.
    pub fn ended(&self, outcome: Result<MigrationFigures, ForeignText>) -> Result<Run, Stop> {
        let lot = random_seed().or_infrastructure()? as u16;
        let id = format!("{STUDY}-{}-{lot:04x}", compact());
        let environment = inspect::environment(&inspect::SystemRoot::live());
        Ok(self.run(RunHeader { environment, ..RunHeader::plain(id, self.start.at.clone(), self.study()) }, outcome))
    }

    fn run(&self, header: RunHeader, outcome: Result<MigrationFigures, ForeignText>) -> Run {
        let guests =
            GuestMachine { accel: self.launch.accel, no_kvm: None, qemu: self.launch.qemu.version.to_string().into() };
        let header = RunHeader {
            ends: vec![RowEnds { method: self.row(), mtu: None, pairs: vec![self.ends()] }],
            placement: Placement { guests: Some(guests), ..Placement::default() },
            ..header
        };
        let (cell, arm, round, at) = (0, Arm::A, 1, self.start.at.clone());
        let (mut samples, mut failures) = (Vec::new(), Vec::new());
        match outcome {
            Ok(migration) => {
                samples.push(Sample { cell, arm, round, at, figures: Figures::of_migration(migration) });
            }
            Err(error) => failures.push(Failure { cell, arm, round, error, partial: None }),
        }
        let wall_seconds = self.start.begun.elapsed().as_secs_f64();
        Run { header, state: RunState::Complete, wall_seconds, samples, failures }
    }

    fn row(&self) -> Row {
        Row::Migration(self.way)
    }

    /// Returns a study whose only cell is this migration.
    fn study(&self) -> Study {
        let (row, memory) = (self.row(), self.launch.memory);
        let test = CellTest::Migration(MigrationCell { memory, dirty_rate: None });
        let cell = Cell { row, test, variant: 0, instrument: Instrument::System };
        let plan = SamplingPlan { samples: 1, duration: self.timeout, warmup: Warmup::NONE, slices: None, limit: None };
        let title = format!("Migration of {} to {}", self.domain.name, self.domain.target);
        let size = GuestSize { vcpus: self.launch.vcpus, memory, ..GuestSize::default() };
        let (max_suspend, domain) = (self.max_suspend, Some(self.domain.clone()));
        Study {
            subject: StudySubject::Migrations(StudyMigrations { max_suspend, domain }),
            guest: GuestDefaults { size, ..GuestDefaults::default() },
            ..Study::plain(STUDY.parse().expect("a name"), title.into(), vec![row], vec![cell], plan)
        }
    }

    /// Returns the source as the initiator, with the domain as it was there, and the target as the responder.
    fn ends(&self) -> Ends<EndRecord> {
        let end = |name: ForeignText| EndRecord {
            name,
            address: ForeignText::default(),
            cpus: Vec::new(),
            environment: None,
            domain: None,
            namespace: None,
            published: None,
        };
        let source = self.domain.source.as_ref().map_or_else(|| "local".to_owned(), ToString::to_string);
        let target = self.target.as_deref().cloned();
        Ends {
            initiator: EndRecord { domain: Some(self.record()), ..end(source.into()) },
            responder: EndRecord { environment: target, ..end(self.domain.target.clone()) },
        }
    }

    fn record(&self) -> DomainRecord {
        let Launch { accel, machine, vcpus, memory, hugepages, node, .. } = &*self.launch;
        DomainRecord {
            keeper: DomainKeeper::Ldm,
            within: self.domain.source.clone(),
            name: self.domain.name.as_str().into(),
            uuid: ForeignText::default(),
            accel: *accel,
            machine: machine.as_ref().map_or_else(ForeignText::default, |machine| machine.to_string().into()),
            vcpus: *vcpus,
            memory: *memory,
            hugepages: *hugepages,
            nodes: node.map(|node| node.to_string().into()),
            vcpu_pins: Default::default(),
            emulator_pin: None,
            io_pins: Default::default(),
            nic: None,
        }
    }
}

/// Returns the figures of a domain that has moved. None if QEMU's are unknown, because the target was found to own the
/// domain only after the connection had been lost.
pub fn migration_figures(moved: &Migrated, seen: &ObservedSuspension) -> Option<MigrationFigures> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let info: &MigrationInfo = moved.info.as_ref()?;
    let ram = info.ram.as_ref();
    let SuspendTimes { by_qemu, by_events } = moved.suspend;
    let by_clock = seen.by_guest_clock.as_ref().map(|found| found.length_ns.max(0) as f64 / 1e6);
    let silence = seen.by_peer.as_ref().map(|peer| &peer.silence);
    Some(MigrationFigures {
        suspend_ms: by_events.map(ms).or(by_clock),
        suspend_by_qemu_ms: by_qemu.map(ms),
        suspend_by_guest_clock_ms: by_clock,
        guest_clock_error_ms: seen.by_guest_clock.as_ref().map(|found| found.uncertainty_ns as f64 / 1e6),
        silence_ms: silence.map(|silence| ms(silence.length())),
        requests_lost: silence.map(|silence| silence.lost),
        total_s: info.total_time().unwrap_or(moved.total).as_secs_f64(),
        sent_mb: ram.map_or(0, |ram| ram.transferred) as f64 / 1e6,
        passes: ram.map_or(0, |ram| ram.dirty_sync_count),
        dirty_mb_per_s: ram.map_or(0, |ram: &MigrationRam| ram.dirty_rate().0) as f64 / 1e6,
    })
}
