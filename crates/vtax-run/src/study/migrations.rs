//! Migrations of a run: guests of each size, and two hosts of a lab between which they move.
//!
//! Each sample is one migration from one QEMU to another over the lab's wire. The next sample migrates the guest back.

mod moving;
mod watch;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use miette::{Context, miette};
use vtax_guest::{
    launch::{GuestEngine, Launch},
    migration::{
        Arrival, Departure, MigrationCancel, MigrationKey, MigrationLimits, MigrationMethod, MigrationOptions,
    },
    qmp::MigrationRam,
};
use vtax_lab::{Facts, Lab};
use vtax_model::{
    cell::MigrationCell,
    foreign::ForeignText,
    guest::GuestSize,
    method::Unsupported,
    run::{Figures, GuestMachine, MigrationFigures, RunHeader},
    study::{MigrationWay, Row, SamplingPlan, Study, StudyMigrations},
    topology::Name,
    units::ByteSize,
};
use vtax_sys::{cpu::allowed_cpus, netns::NetNs};
use vtax_wire::protocol::MemoryLoad;

use super::{
    arrange::{LabEnd, arrange},
    draft::available,
    ends::lab_name,
    measured_path::MeasuredPath,
    migration_needs::{DRIVER, check_room},
    runner::{MigrationSampler, SampleError, Sampler},
    session::RunSetup,
};
use crate::{
    events::RunEvents,
    interrupt::Interrupt,
    stop::{Blamed, Stop},
};
use moving::{MigrationHost, MovingGuest};

/// Duration of QEMU's dirty rate measurement in seconds.
const DIRTY_RATE_SECONDS: u8 = 1;

/// Guests of a run, and where they move.
pub(super) struct MeasuredMigrations {
    lab: Option<Arc<Lab>>,
    hosts: [MigrationHost; 2],
    engine: GuestEngine,
    study: StudyMigrations,
    /// Launch configurations without the directory, by memory size.
    launches: BTreeMap<ByteSize, Launch>,
    /// Running guests.
    guests: BTreeMap<ByteSize, MovingGuest>,
    /// All CPUs that QEMU's threads may use.
    cpus: Vec<u32>,
    cancel: MigrationCancel,
    events: RunEvents,
    first_sample: Option<Instant>,
}

impl MeasuredMigrations {
    /// Builds the lab. The guests boot when their first sample is due.
    pub(super) fn build(setup: &RunSetup<'_>, header: &RunHeader, facts: &Facts) -> Result<MeasuredMigrations, Stop> {
        let (study, rows) = (&header.study, available(&header.study, &header.unavailable));
        let none = || miette!(code = "defect", "the run {} has no migrations", header.id);
        let migrations = study.migrations().cloned().ok_or_else(none).or_infrastructure()?;
        let engine = engine(study, facts).or_infrastructure()?;
        let sizes: Vec<ByteSize> = study.cells.iter().filter_map(|cell| Some(cell.migration()?.memory)).collect();
        let available = facts.guests.as_ref().map_or(ByteSize(u64::MAX), |guests| guests.memory);
        check_room(&sizes, available).or_input()?;
        let arranged = arrange(study, lab_name(header)?, &rows);
        let (lab, hosts) = setup.with_lab(&arranged.topology, |lab| {
            let ends = arranged.ends.values().flatten().next().ok_or_else(none).or_infrastructure()?;
            let directory = setup.in_world()?.folder(arranged.topology.name.as_str()).join("guests");
            let host = |end: &LabEnd| MigrationHost::of(lab, end, &directory).or_infrastructure();
            Ok([host(&ends.initiator)?, host(&ends.responder)?])
        })?;
        let launch = |memory: &ByteSize| -> Result<(ByteSize, Launch), Stop> {
            let size = GuestSize { memory: *memory, ..study.guest.size.clone() };
            let name: Name = format!("m{}", memory.0 >> 20).parse().or_infrastructure()?;
            Ok((*memory, Launch::new(name, directory_later(), engine.clone(), &size)))
        };
        let launches = sizes.iter().map(launch).collect::<Result<BTreeMap<_, _>, Stop>>()?;
        Ok(MeasuredMigrations {
            lab: Some(lab),
            hosts,
            engine,
            study: migrations,
            launches,
            guests: BTreeMap::new(),
            cpus: allowed_cpus().or_infrastructure()?.iter().collect(),
            cancel: MigrationCancel::default(),
            events: setup.events.clone(),
            first_sample: None,
        })
    }

    /// Returns the machine of the run's guests.
    pub(super) fn guest_machine(&self, no_kvm: Option<String>) -> GuestMachine {
        let qemu = self.engine.qemu.version.to_string().into();
        GuestMachine { accel: self.engine.accel, no_kvm: no_kvm.map(ForeignText::from), qemu }
    }

    /// Returns the guest of this size, booting it if it isn't running.
    fn guest(&mut self, memory: ByteSize) -> Result<MovingGuest, SampleError> {
        if let Some(guest) = self.guests.remove(&memory).filter(MovingGuest::is_alive) {
            return Ok(guest);
        }
        let none = || SampleError::run(miette!(code = "defect", "no guest has {memory}"));
        let launch = self.launches.get(&memory).ok_or_else(none)?;
        MovingGuest::boot(launch, &self.hosts[0], &self.events).map_err(SampleError::run)
    }

    /// Returns QEMU's options for a way. Each migration has its own key.
    fn options(&self, way: MigrationWay, timeout: Duration) -> MigrationOptions {
        let limits =
            MigrationLimits { suspend: self.study.max_suspend.0, time: Some(timeout), ..MigrationLimits::default() };
        let method = MigrationMethod { channels: way.channels, postcopy: way.post_copy, ..MigrationMethod::default() };
        let key = way.tls.then(MigrationKey::random);
        MigrationOptions { key, limits, method, ..MigrationOptions::default() }
    }

    fn measure(&mut self, way: MigrationWay, test: MigrationCell, plan: &SamplingPlan) -> Result<Figures, SampleError> {
        let mut guest = self.guest(test.memory)?;
        let per_second = ByteSize(u64::from(test.dirty_rate.unwrap_or_default()) * 1_000_000);
        guest.load(MemoryLoad { region: test.used(), per_second }).map_err(SampleError::run)?;
        thread::sleep(plan.warmup.most().0);
        let dirty_rate = guest.dirty_rate(DIRTY_RATE_SECONDS).map_err(SampleError::run)?;
        let [source, target] = cpus_of(way, &self.cpus);
        guest.confine(source).map_err(SampleError::run)?;
        let options = self.options(way, plan.duration.0);
        let there = &self.hosts[1 - guest.side()];
        let (guest, migrated) = guest.migrate(there, target, &options, &self.cancel);
        if let Some(guest) = guest {
            self.guests.insert(test.memory, guest);
        }
        let (departure, arrival) = migrated.map_err(|error| SampleError::cell(format!("{error:#}")))?;
        figures(&departure, &arrival, dirty_rate).map_err(SampleError::cell)
    }
}

/// Returns the CPUs for QEMU's threads on each side: different ones at the target, if there are
/// enough.
fn cpus_of(way: MigrationWay, all: &[u32]) -> [Vec<u32>; 2] {
    let cores = way.cores.map_or(all.len(), |cores| usize::from(cores.get()));
    let (source, others) = all.split_at(cores.min(all.len()));
    let target = if others.len() < cores { source } else { &others[..cores] };
    [source.to_vec(), target.to_vec()]
}

fn figures(departure: &Departure, arrival: &Arrival, dirty_rate: ByteSize) -> Result<Figures, &'static str> {
    let suspended = departure.suspension(arrival);
    let by_qemu = suspended.by_qemu.ok_or("QEMU reported no suspend time")?;
    let by_events = suspended.by_events.ok_or("the guest did not run before it migrated, or not afterwards")?;
    let total = departure.info.total_time().ok_or("QEMU reported no total time")?;
    let ram = departure.info.ram.as_ref();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Figures::of_migration(MigrationFigures {
        suspend_ms: Some(ms(by_events)),
        suspend_by_qemu_ms: Some(ms(by_qemu)),
        total_s: total.as_secs_f64(),
        sent_mb: ram.map_or(0, |ram: &MigrationRam| ram.transferred) as f64 / 1e6,
        passes: ram.map_or(0, |ram| ram.dirty_sync_count),
        dirty_mb_per_s: Some(dirty_rate.0 as f64 / 1e6),
        ..MigrationFigures::default()
    }))
}

fn engine(study: &Study, facts: &Facts) -> miette::Result<GuestEngine> {
    let none = || miette!(code = "defect", "nothing is known of guests here");
    let guests = facts.guests.as_ref().ok_or_else(none)?;
    let refused = |unsupported: Unsupported| miette!(code = "baseline-unavailable", "{unsupported}");
    let boot = guests.boot(&study.guest.system, DRIVER).map_err(refused)?;
    guests.qemu.as_ref().map(|qemu| qemu.engine(boot)).map_err(|unsupported| refused(unsupported.clone()))
}

/// Placeholder: each QEMU gets its own directory when it is started.
fn directory_later() -> PathBuf {
    PathBuf::new()
}

impl MigrationSampler for MeasuredMigrations {
    fn sample(&mut self, row: Row, test: MigrationCell, plan: &SamplingPlan) -> Result<Figures, SampleError> {
        let Row::Migration(way) = row else {
            return Err(SampleError::run(miette!(code = "defect", "the row `{row}` does not migrate a guest")));
        };
        self.first_sample.get_or_insert_with(Instant::now);
        self.measure(way, test, plan)
    }
}

impl MeasuredPath for MeasuredMigrations {
    fn sampler(&mut self) -> Sampler<'_> {
        Sampler::Migrations(self)
    }

    fn break_off_on(&self, interrupt: &Interrupt) {
        let cancel = self.cancel.clone();
        interrupt.on_ask(move || cancel.cancel());
    }

    fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    fn has_lab_guests(&self) -> bool {
        true
    }

    /// No step changes settings of a migration.
    fn switch_time(&self) -> Duration {
        Duration::ZERO
    }

    fn down(mut self: Box<Self>) -> miette::Result<()> {
        // The guests end before the lab.
        self.guests.clear();
        self.lab.take().and_then(Arc::into_inner).map_or(Ok(()), Lab::down).context("removing the lab")
    }
}

impl MigrationHost {
    fn of(lab: &Lab, end: &LabEnd, directory: &Path) -> miette::Result<MigrationHost> {
        let none = || miette!(code = "defect", "the lab has no host `{}` on a wire", end.domain());
        let LabEnd::Host { host, wire } = end else { return Err(none()) };
        let endpoint = lab.blueprint().host(host, wire).ok_or_else(none)?;
        let namespace = NetNs::open(&lab.namespace_path(endpoint))?;
        Ok(MigrationHost { directory: directory.to_owned(), name: host.clone(), address: endpoint.address, namespace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> MigrationWay {
        text.parse().expect("a way")
    }

    #[test]
    fn the_target_gets_other_cpus_if_there_are_enough() {
        let of = |text: &str, cpus: &[u32]| cpus_of(way(text), cpus);
        assert_eq!(of("tls", &[0, 3]), [vec![0, 3], vec![0, 3]]);
        assert_eq!(of("tls,cores=1", &[0, 3]), [vec![0], vec![3]]);
        assert_eq!(of("tls,cores=2", &[0, 1, 2]), [vec![0, 1], vec![0, 1]]);
    }
}
