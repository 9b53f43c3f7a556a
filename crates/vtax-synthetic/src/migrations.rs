//! Synthetic study of live migration, of guests of two sizes that change their memory at three rates; and the stored migration of a
//! domain.

use vtax_model::{
    cell::{Cell, CellTest, Instrument, MigrationCell},
    foreign::ForeignText,
    guest::Accelerator,
    run::{
        DomainKeeper, DomainRecord, EndRecord, Environment, Figures, MigrationFigures, PairRecord, Placement, RowEnds,
        Run,
    },
    study::{MigratedDomain, MigrationWay, Row, SamplingPlan, Study, StudyMigrations, StudySubject},
    units::{ByteSize, Span},
    workload::Warmup,
};

use super::{study, where_missing};

/// Returns a complete run with some of the built-in study's rows and cells.
pub fn migrations() -> Run {
    let mut study = study("migration");
    let is_kept = |row: &Row| match row {
        Row::Migration(way) => way.cores.is_none_or(|cores| cores.get() == 1),
        _ => false,
    };
    study.rows.retain(is_kept);
    study.cells.retain(|cell| {
        let is_small = cell
            .migration()
            .is_some_and(|test| test.memory.0 <= 1 << 30 && test.dirty_rate.is_some_and(|rate| rate <= 100));
        is_kept(&cell.row) && is_small
    });
    let mut run = where_missing(study, Vec::new());
    run.header.placement = Placement::default();
    run
}

/// Returns the stored migration of a domain to another machine.
pub fn domain_migration() -> Run {
    let way = MigrationWay { tls: true, channels: None, post_copy: false, cores: None };
    let (row, memory) = (Row::Migration(way), ByteSize(1 << 30));
    let test = CellTest::Migration(MigrationCell { memory, dirty_rate: None });
    let cell = Cell { row, test, variant: 0, instrument: Instrument::System };
    let plan = SamplingPlan {
        samples: 1,
        duration: Span::from_millis(600_000),
        warmup: Warmup::NONE,
        slices: None,
        limit: None,
    };
    let name = || "mars".parse().expect("a name");
    let domain = MigratedDomain {
        name: name(),
        source: None,
        target: "ssh:root@hostb".into(),
        bandwidth: Some("10G".parse().expect("a rate")),
        auto_converge: false,
        copy_disks: false,
    };
    let id = "migrate-domain".parse().expect("a name");
    let title = "Migration of mars to ssh:root@hostb".into();
    let domain = StudyMigrations { domain: Some(domain), ..StudyMigrations::default() };
    let subject = StudySubject::Migrations(domain);
    let study = Study { subject, ..Study::plain(id, title, vec![row], vec![cell], plan) };
    let mut run = where_missing(study, Vec::new());
    run.header.placement = Placement::default();
    run.header.command = ForeignText::default();
    run.header.ends = vec![RowEnds { method: row, mtu: None, pairs: vec![hosts(memory)] }];
    run.samples.truncate(1);
    run.samples[0].figures = Figures::of_migration(MigrationFigures {
        suspend_ms: Some(62.3),
        suspend_by_qemu_ms: Some(51.0),
        suspend_by_guest_clock_ms: Some(62.3),
        guest_clock_error_ms: Some(0.8),
        silence_ms: Some(84.4),
        silence_at_least_ms: None,
        requests_lost: Some(81),
        total_s: 3.4,
        sent_mb: 560.0,
        passes: 4,
        dirty_mb_per_s: Some(86.0),
    });
    run
}

/// Returns both hosts, with the domain as it was at the source.
fn hosts(memory: ByteSize) -> PairRecord {
    let domain = DomainRecord {
        keeper: DomainKeeper::Ldm,
        within: None,
        name: "mars".into(),
        uuid: ForeignText::default(),
        accel: Accelerator::Kvm,
        machine: "pc-q35-10.0".into(),
        vcpus: 2,
        memory,
        hugepages: false,
        nodes: None,
        vcpu_pins: Default::default(),
        emulator_pin: None,
        io_pins: Default::default(),
        nic: None,
    };
    let machine = Environment { hostname: "hostb".into(), cpus: 4, ..super::environment() };
    PairRecord {
        initiator: EndRecord { domain: Some(domain), ..EndRecord::named("local") },
        responder: EndRecord { environment: Some(machine), ..EndRecord::named("ssh:root@hostb") },
    }
}

/// Returns the figures of one migration.
pub(crate) fn figures(test: &MigrationCell, row: Row, jitter: f64) -> Figures {
    let way = match row {
        Row::Migration(way) => way,
        _ => MigrationWay { tls: false, channels: None, post_copy: false, cores: None },
    };
    let mb_per_s = match way {
        MigrationWay { tls: false, .. } => 900.0,
        MigrationWay { channels: Some(_), .. } => 700.0,
        MigrationWay { cores: Some(_), .. } => 180.0,
        _ => 320.0,
    };
    let (used, rate) = (test.used().0 as f64 / 1e6, test.dirty_rate.unwrap_or_default());
    let dirty = f64::from(rate);
    let total = used / mb_per_s * (1.0 + dirty / mb_per_s) * jitter;
    let suspended = if way.post_copy { 9.0 } else { 20.0 + 180.0 * dirty / mb_per_s } * jitter;
    Figures::of_migration(MigrationFigures {
        suspend_ms: Some(suspended),
        suspend_by_qemu_ms: Some(suspended.floor()),
        total_s: total,
        sent_mb: used + dirty * total,
        passes: 2 + u64::from(rate > 0),
        dirty_mb_per_s: Some(dirty * 0.97),
        ..MigrationFigures::default()
    })
}
