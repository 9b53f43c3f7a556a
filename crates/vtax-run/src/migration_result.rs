//! Stored result of a domain's migration: a run with one sample, in the form of a row of the study `migration`.

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

/// Name of the study in the runs of all domain migrations.
const STUDY: &str = "migrate-domain";

/// Attempt to migrate a running domain.
#[derive(Debug, Clone)]
pub struct MigrationAttempt {
    pub domain: MigratedDomain,
    pub way: MigrationWay,
    pub max_suspend: Span,
    /// Time limit until the switchover, without the time to copy disks.
    pub timeout: Span,
    /// Launch configuration of the QEMU at the source.
    pub launch: Box<Launch>,
    /// Target's machine, unless it is this one.
    pub target: Option<Box<Environment>>,
    pub start: AttemptStart,
}

/// Start time of an attempt.
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
    /// Returns the complete run of an attempt that has ended, with its figures or with the reason for its failure.
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

    /// Returns the source as the initiator, with a record of the domain there, and the target as the responder.
    fn ends(&self) -> Ends<EndRecord> {
        let source = self.domain.source.as_ref().map_or_else(|| "local".to_owned(), ToString::to_string);
        let target = self.target.as_deref().cloned();
        Ends {
            initiator: EndRecord { domain: Some(self.record()), ..EndRecord::named(source) },
            responder: EndRecord { environment: target, ..EndRecord::named(self.domain.target.clone()) },
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

/// Returns the figures of a completed migration. None if QEMU's figures are unknown because the connection was lost
/// before the target reported that it has the domain.
pub fn migration_figures(moved: &Migrated, seen: &ObservedSuspension) -> Option<MigrationFigures> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let info: &MigrationInfo = moved.info.as_ref()?;
    let ram = info.ram.as_ref();
    let SuspendTimes { by_qemu, by_events } = moved.suspend;
    let by_clock = seen.by_guest_clock.as_ref().map(|found| found.length_ns.max(0) as f64 / 1e6);
    let silence = seen.by_peer.as_ref().map(|peer| &peer.silence);
    let silent = |unended: bool| Some(ms(silence.filter(|silence| silence.unended == unended)?.length()));
    Some(MigrationFigures {
        suspend_ms: by_events.map(ms).or(by_clock),
        suspend_by_qemu_ms: by_qemu.map(ms),
        suspend_by_guest_clock_ms: by_clock,
        guest_clock_error_ms: seen.by_guest_clock.as_ref().map(|found| found.uncertainty_ns as f64 / 1e6),
        silence_ms: silent(false),
        silence_at_least_ms: silent(true),
        requests_lost: silence.map(|silence| silence.lost),
        total_s: info.total_time().unwrap_or(moved.total).as_secs_f64(),
        sent_mb: ram.map_or(0, |ram| ram.transferred) as f64 / 1e6,
        passes: ram.map_or(0, |ram| ram.dirty_sync_count),
        // QEMU measures it after a second at the earliest. Until then, it is zero.
        dirty_mb_per_s: ram.map(MigrationRam::dirty_rate).filter(|rate| rate.0 > 0).map(|rate| rate.0 as f64 / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use vtax_guest::launch::{Boot, GuestEngine, QemuProgram, Version};
    use vtax_model::{
        analysis::analyse,
        guest::Accelerator,
        measurement::Silence,
        metric::SampleFigure,
        suspension::Suspension,
        units::{BitRate, ByteSize},
    };

    use super::*;
    use crate::suspend_watch::PeerSilence;

    fn attempt() -> MigrationAttempt {
        let version = Version { major: 10, minor: 0 };
        let qemu = QemuProgram { path: "qemu".into(), version, sandbox: true, q35: None, qboot: None };
        let boot = Boot::Kernel { kernel: "/kernel".into(), initramfs: "/initramfs".into(), append: Vec::new() };
        let engine = GuestEngine { qemu, accel: Accelerator::Kvm, boot };
        let size = GuestSize { vcpus: 2, memory: ByteSize(1 << 30), ..GuestSize::default() };
        let launch = Launch::new("mars".parse().expect("a name"), "/mars".into(), engine, &size);
        MigrationAttempt {
            domain: MigratedDomain {
                name: "mars".parse().expect("a name"),
                source: None,
                target: "ssh:hostb".into(),
                bandwidth: Some("1G".parse::<BitRate>().expect("a rate")),
                auto_converge: true,
                copy_disks: false,
            },
            way: "tls".parse().expect("a way"),
            max_suspend: Span::from_millis(300),
            timeout: Span::from_millis(600_000),
            launch: Box::new(launch),
            target: Some(Box::new(Environment { hostname: "hostb".into(), cpus: 4, ..Environment::default() })),
            start: AttemptStart::now(),
        }
    }

    fn moved(by_events: Option<u64>) -> Migrated {
        let info = r#"{"status":"completed","total-time":3400,"downtime":51,
            "ram":{"transferred":560000000,"dirty-sync-count":4,"dirty-pages-rate":21000,"page-size":4096}}"#;
        let ms = |time| Some(Duration::from_millis(time));
        let suspend = SuspendTimes { by_qemu: ms(51), by_events: by_events.and_then(ms) };
        let info = Some(serde_json::from_str(info).expect("as QEMU writes it"));
        Migrated { suspend, info, total: Duration::from_millis(3_900) }
    }

    fn seen() -> ObservedSuspension {
        let silence = Silence { from_ns: 1_000_000, to_ns: 85_000_000, lost: 81, ..Silence::default() };
        ObservedSuspension {
            by_guest_clock: Some(Suspension { length_ns: 62_300_000, uncertainty_ns: 800_000 }),
            by_peer: Some(PeerSilence { address: "192.0.2.7".parse().expect("an address"), silence }),
        }
    }

    #[test]
    fn the_suspend_time_is_that_of_the_best_clock() {
        let figures = migration_figures(&moved(Some(64)), &seen()).expect("QEMU has reported");
        let expected = MigrationFigures {
            suspend_ms: Some(64.0),
            suspend_by_qemu_ms: Some(51.0),
            suspend_by_guest_clock_ms: Some(62.3),
            guest_clock_error_ms: Some(0.8),
            silence_ms: Some(84.0),
            silence_at_least_ms: None,
            requests_lost: Some(81),
            total_s: 3.4,
            sent_mb: 560.0,
            passes: 4,
            dirty_mb_per_s: Some(86.016),
        };
        assert_eq!(figures, expected);
        // Two machines have no common clock except the domain's.
        let suspend = |seen| migration_figures(&moved(None), seen).expect("QEMU has reported").suspend_ms;
        assert_eq!((suspend(&seen()), suspend(&ObservedSuspension::default())), (Some(62.3), None));
        assert_eq!(migration_figures(&Migrated { info: None, ..moved(None) }, &seen()), None);
        let mut short = moved(None);
        short.info.iter_mut().filter_map(|info| info.ram.as_mut()).for_each(|ram| ram.dirty_pages_rate = 0);
        assert_eq!(migration_figures(&short, &seen()).expect("QEMU has reported").dirty_mb_per_s, None);
        let mut unended = seen();
        unended.by_peer.iter_mut().for_each(|peer| peer.silence.unended = true);
        let figures = migration_figures(&moved(None), &unended).expect("QEMU has reported");
        assert_eq!((figures.silence_ms, figures.silence_at_least_ms), (None, Some(84.0)));
    }

    #[test]
    fn a_stored_migration_has_its_hosts_and_its_figures() {
        let figures = migration_figures(&moved(None), &ObservedSuspension::default()).expect("QEMU has reported");
        let attempt = attempt();
        let run = attempt.ended(Ok(figures)).expect("the kernel has random numbers");
        let text = serde_json::to_string(&run).expect("JSON");
        assert_eq!(serde_json::from_str::<Run>(&text).expect("the same"), run);
        let Ok(document) = analyse(&run);
        let summary = document.cells[0].summary.as_ref().expect("it has a sample");
        let mean = |figure| summary.estimate(figure).map(|estimate| estimate.mean);
        assert_eq!((mean(SampleFigure::Suspend), mean(SampleFigure::SuspendByQemu)), (None, Some(51.0)));
        let pair = &document.cells[0].ends.as_ref().expect("two hosts").pairs[0];
        assert_eq!((pair.initiator.name.raw(), pair.responder.name.raw()), ("local", "ssh:hostb"));
        let domain = pair.initiator.domain.as_ref().expect("a domain");
        assert_eq!((domain.vcpus, domain.memory), (2, ByteSize(1 << 30)));
        assert_eq!(pair.responder.environment.as_ref().map(|machine| machine.cpus), Some(4));
        assert!(run.readings().expect("in memory").extended(2).is_err(), "the domain is elsewhere");

        let failed = attempt.ended(Err("the wire was cut".into())).expect("the kernel has random numbers");
        assert_eq!((failed.state, failed.samples.len(), failed.failures.len()), (RunState::Complete, 0, 1));
        assert!(failed.header.resembles(&run.header) && failed.header.id != run.header.id);
        let mut other = attempt.clone();
        other.domain.target = "ssh:hostc".into();
        let other = other.ended(Err("it was cut".into())).expect("the kernel has random numbers");
        assert!(!other.header.resembles(&run.header), "another host");
    }
}
