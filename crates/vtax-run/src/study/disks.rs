//! The disks of a run: inspected, written once, then measured by fio.

mod by_agent;
mod elsewhere;
mod guest;
mod request;

use std::{
    collections::BTreeMap,
    fs::File,
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use miette::{Context, IntoDiagnostic, miette};
use vtax_disk::{
    job::FioJob,
    path::identify,
    prepare::{BlocksWritten, PrepareError, prepare},
    run::{FioError, FioProgram},
    target::{self, DiskTarget, TargetError},
};
use vtax_lab::{Lab, LiveHolding, World, run_files};
use vtax_model::{
    cell::{Cell, CellTest, DiskCell},
    disk::{DiskDevice, DiskIdentity, DiskPlace, DiskReport, DiskTest},
    endpoint::Ends,
    foreign::ForeignText,
    run::{DiskPathRecord, EndLocation, Figures, GuestMachine, RunHeader},
    study::{DiskRow, Row, StudyDisks},
    topology::Name,
    units::ByteSize,
};
use vtax_sys::deadline::ProgramCancel;

use super::{
    arrange::arrange,
    draft::available,
    ends::{
        ZoneOfDisks, lab_name,
        observe::{Observed, ObservedRow, UntoldTimes, observing},
    },
    measured_path::MeasuredPath,
    runner::{DiskSampler, SampleError, Sampler},
    session::RunSetup,
};
use crate::{
    events::RunEvents,
    interrupt::Interrupt,
    stop::{Blamed, Coded, Stop, and_then},
};
use by_agent::{AgentFio, MeasuredGuest, RowInside};
use elsewhere::RowPlace;
pub use request::DiskRequest;

/// The disks of one row.
struct RowTargets {
    row: Row,
    /// Names given by the user.
    names: Vec<DiskPlace>,
    place: RowPlace,
    /// Disks on this machine, except a domain's own.
    targets: Vec<DiskTarget>,
    /// The guest that measures them, and their names in it; none if this machine measures them.
    inside: Option<RowInside>,
    /// The zone in which this machine measures them, if any.
    zone: Option<ZoneOfDisks>,
}

/// The disks of a run.
pub(super) struct MeasuredDisks {
    rows: Vec<RowTargets>,
    fio: FioProgram,
    cancel: ProgramCancel,
    /// Files to create for the run, with their required sizes.
    wanted: BTreeMap<PathBuf, ByteSize>,
    /// These files, once created.
    made: Option<LiveHolding>,
    /// The block devices, held open so that they can't be mounted while they are measured.
    held: Vec<File>,
    first_sample: Option<Instant>,
    /// Seed of the order of the I/Os.
    seed: u64,
    /// The lab that was built for the run.
    lab: Option<Arc<Lab>>,
}

impl MeasuredDisks {
    /// Inspects all disks. Nothing is written, and disks that can't be measured are refused.
    pub(super) fn look(disks: &StudyDisks, header: &RunHeader, goes_on: bool) -> Result<MeasuredDisks, Stop> {
        let cancel = ProgramCancel::new().coded("kernel", || "making an eventfd").or_infrastructure()?;
        let fio = FioProgram::user().ended_by(cancel.clone());
        // A resumed run has already written to them.
        let destroy = disks.destroy_data || goes_on;
        let mut found = MeasuredDisks {
            rows: Vec::new(),
            fio,
            cancel,
            wanted: BTreeMap::new(),
            made: None,
            held: Vec::new(),
            first_sample: None,
            seed: header.seed,
            lab: None,
        };
        for row in available(&header.study, &header.unavailable) {
            let names = disks.of(row).0.clone();
            let (mut targets, inside, zone) = Default::default();
            let place = RowPlace::of(row, &names, destroy).or_input()?;
            let Some(paths) = place.paths() else {
                found.rows.push(RowTargets { row, names, place, targets, inside, zone });
                continue;
            };
            let paths: Vec<PathBuf> = paths.iter().map(absolute).collect::<Result<_, _>>().or_input()?;
            for test in tests(header, row) {
                let used = used(&paths, &test);
                targets.extend(target::check(used, &test, destroy).or_input()?.into_iter().skip(targets.len()));
                FioJob::new(test, used, false, header.seed).or_input()?;
                for path in paths_of(&targets).into_iter().take(used.len()).filter(|path| !path.exists()) {
                    let size = found.wanted.entry(path).or_insert(ByteSize(0));
                    *size = test.used().max(*size);
                }
            }
            found.rows.push(RowTargets { row, names, place, targets, inside, zone });
        }
        if found.rows.iter().any(|row| !row.targets.is_empty()) {
            found.fio.version().or_infrastructure()?;
        }
        found.held = found.hold().or_input()?;
        Ok(found)
    }

    /// Opens the block devices exclusively, so that nobody mounts them. A device that a guest gets with its controller
    /// can't be held: the controller leaves its driver.
    fn hold(&self) -> Result<Vec<File>, TargetError> {
        let here: BTreeMap<&PathBuf, &DiskTarget> = self
            .rows
            .iter()
            .filter(|row| !matches!(row.row, Row::Disk(DiskRow::Guest(attach)) if attach.device == DiskDevice::AssignedNvme))
            .flat_map(|row| row.targets.iter().map(|target| (&target.path, target)))
            .collect();
        here.into_values().filter_map(|target| target.hold().transpose()).collect()
    }

    /// Creates missing files. They are removed with this value, or, after a kill, by `vtax lab clean`.
    pub(super) fn make_files(&mut self, world: &World, header: &RunHeader) -> Result<(), Stop> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let files = self.wanted.iter().map(|(path, size)| (path.clone(), *size));
        self.made = Some(run_files::make(world, &files_name(header)?, &header.id, files).or_infrastructure()?);
        Ok(())
    }

    /// Writes all blocks to be read, because disks return blocks that were never written without reading anything.
    pub(super) fn prepare(&self, header: &RunHeader, events: &RunEvents) -> Result<(), Stop> {
        let mut written: Vec<(Vec<DiskPlace>, ByteSize, bool)> = Vec::new();
        for row in &self.rows {
            for test in tests(header, row.row) {
                let each = test.used();
                let key = (used(&row.names, &test).to_vec(), each, test.direct);
                // A test that verifies writes the blocks itself.
                if test.verify || written.contains(&key) {
                    continue;
                }
                written.push(key);
                if let Some(inside) = &row.inside {
                    events.tell(format_args!("{}: writing the first {each} of each disk", row.row));
                    inside.fill(test, self.seed)?;
                    continue;
                }
                let paths = used(&paths_of(&row.targets), &test).to_vec();
                events.tell(format_args!("{}: checking that the first {each} of each disk are written", row.row));
                match prepare(&self.fio, test, &paths, self.seed).map_err(blame_preparing)? {
                    BlocksWritten::Before => {}
                    BlocksWritten::Now => events.tell(format_args!("{}: written now", row.row)),
                    BlocksWritten::NotKept => events.tell(format_args!(
                        "note: {}: reads as zeros after writing: this disk stores no data, like null_blk; it can be \
                         measured but not verified",
                        row.row
                    )),
                }
            }
        }
        Ok(())
    }

    pub(super) fn records(&self, header: &RunHeader) -> Result<Vec<DiskPathRecord>, Stop> {
        let mut records = Vec::new();
        for RowTargets { row, names, targets, inside, zone, .. } in &self.rows {
            if let Some((program, seen)) = inside.as_ref().and_then(|inside| inside.seen.as_ref()) {
                records.extend(names.iter().zip(seen).map(|(name, path)| DiskPathRecord {
                    method: *row,
                    disk: name.to_string().into(),
                    program: program.clone(),
                    path: path.clone(),
                }));
                continue;
            }
            let program = self.fio.version().or_infrastructure()?;
            let direct = tests(header, *row).all(|test| test.direct);
            for (name, target) in names.iter().zip(targets) {
                let path = identify(target, direct)
                    .into_diagnostic()
                    .with_context(|| format!("looking at the path to {name}"))
                    .or_infrastructure()?;
                let path = DiskIdentity { user: zone.as_ref().map(|zone| zone.disk_user()), ..path };
                let (disk, program) = (name.to_string().into(), program.clone());
                records.push(DiskPathRecord { method: *row, disk, program, path });
            }
        }
        Ok(records)
    }

    /// Lets Ctrl-C end fio from now on, here and in guests.
    pub(super) fn end_on(&self, interrupt: &Interrupt) {
        let cancel = self.cancel.clone();
        let guests: Vec<_> = self.guests().map(|guest| Arc::downgrade(guest.agent())).collect();
        interrupt.on_ask(move || {
            cancel.cancel();
            // An agent that can't be reached is dead, which the sample notices by itself.
            guests.iter().filter_map(Weak::upgrade).for_each(|agent| drop(agent.link.cancel_all()));
        });
    }

    fn guests(&self) -> impl Iterator<Item = &AgentFio> {
        self.rows.iter().filter_map(|row| row.inside.as_ref()).map(|inside| &inside.fio)
    }

    /// Builds the lab of the rows that measure in guests. The disks exist, and their blocks are
    /// written.
    pub(super) fn build(&mut self, setup: &RunSetup<'_>, header: &RunHeader) -> Result<(), Stop> {
        let rows = available(&header.study, &header.unavailable);
        let mut arranged = arrange(&header.study, lab_name(header)?, &rows);
        if arranged.disks.is_empty() {
            return Ok(());
        }
        let folder = guest::lent()?;
        // Assigning a device to a guest first checks that nobody holds it, including this run. It is taken again below;
        // if someone else was faster, that is refused.
        self.held.clear();
        arranged.topology.guests.iter_mut().for_each(|guest| guest.lent = Some(folder.clone()));
        let (lab, inside) = setup.with_lab(&arranged.topology, |lab| {
            let mut guests: BTreeMap<Name, AgentFio> = BTreeMap::new();
            let mut inside: BTreeMap<Row, RowInside> = BTreeMap::new();
            for (row, ports) in &arranged.disks {
                let fio = match guests.get(&ports.guest) {
                    Some(fio) => fio.clone(),
                    None => guest::connect(lab, &ports.guest, setup.events)?,
                };
                let (paths, served) = guest::disks(fio.agent(), lab, ports)?;
                inside.insert(*row, RowInside { fio: fio.clone(), paths, seen: None, served: Some(served) });
                guests.insert(ports.guest.clone(), fio);
            }
            Ok(inside)
        })?;
        self.lab = Some(lab);
        for row in &mut self.rows {
            row.inside = inside.get(&row.row).cloned();
        }
        self.held = self.hold().or_infrastructure()?;
        Ok(())
    }

    /// Returns the files that were created for the run.
    pub(super) fn made(&self) -> Vec<PathBuf> {
        self.wanted.keys().cloned().collect()
    }

    /// Returns the machine of the run's guests, if it has guests.
    pub(super) fn guest_machine(&self, no_kvm: Option<String>) -> Option<GuestMachine> {
        let domain = self.guests().find_map(|fio| match fio.guest() {
            MeasuredGuest::Domain { domain, .. } => Some(domain.machine()),
            MeasuredGuest::Lab(_) => None,
        });
        if domain.is_some() {
            return domain;
        }
        let launch = &self.lab.as_ref()?.guests().first()?.launch;
        let qemu = launch.qemu.version.to_string().into();
        Some(GuestMachine { accel: launch.accel, no_kvm: no_kvm.map(ForeignText::from), qemu })
    }

    fn measure(&self, row: Row, test: DiskTest) -> Result<Figures, SampleError> {
        let of_row = |known: &&RowTargets| known.row == row;
        let row = self
            .rows
            .iter()
            .find(of_row)
            .ok_or_else(|| SampleError::run(miette!(code = "defect", "no disks for the row `{row}`")))?;
        let paths = row.inside.as_ref().map_or_else(|| paths_of(&row.targets), |inside| inside.paths.clone());
        let job = FioJob::new(test, used(&paths, &test), false, self.seed);
        let job = job.map_err(|error| SampleError::cell(error.to_string()))?;
        let times = job.timed().map(|_| UntoldTimes { warmup: test.ramp.0, measured: test.duration.0 });
        let served = row.inside.as_ref().and_then(|inside| inside.served.as_ref());
        let served = ObservedRow::of_guest(served.map(Observed::of_disks));
        let (report, host_cpu) = observing(&served, times, || match &row.inside {
            Some(RowInside { fio, .. }) => fio.run(&job).map_err(|error| fio.blame(self.lab.as_deref(), error)),
            None => self.run_here(row, &job)?.map_err(|error| match error {
                // It may still be active when the next sample begins.
                error @ FioError::Stuck { .. } => SampleError::run(error),
                error => SampleError::cell(error.to_string()),
            }),
        });
        let location = if row.inside.is_some() { EndLocation::Guest } else { EndLocation::Host };
        // There is no responder, and so no CPU time of one.
        let locations = Ends { initiator: location, responder: EndLocation::Host };
        Ok(Figures { host_cpu, locations, ..Figures::of_disk(&report?) })
    }

    /// The outer error is the zone's, which may no longer exist.
    fn run_here(&self, row: &RowTargets, job: &FioJob) -> Result<Result<DiskReport, FioError>, SampleError> {
        let fio = &self.fio;
        match &row.zone {
            Some(zone) => zone.run(|| fio.run(job)).map_err(SampleError::run),
            None => Ok(fio.run(job)),
        }
    }
}

/// Name under which the files of a run are registered, in addition to the run's lab.
pub(super) fn files_name(header: &RunHeader) -> Result<Name, Stop> {
    format!("{}-files", lab_name(header)?).parse().or_infrastructure()
}

/// Returns the tests of a row, with their times.
fn tests(header: &RunHeader, row: Row) -> impl Iterator<Item = DiskTest> {
    let of_disk = move |cell: &Cell| match cell.test {
        CellTest::Disk(disk) if cell.row == row => Some(DiskCell::spec(&disk, header.plan_of(cell.instrument))),
        _ => None,
    };
    header.study.cells.iter().filter_map(of_disk)
}

fn absolute(path: &PathBuf) -> miette::Result<PathBuf> {
    std::path::absolute(path).coded("disk-unusable", || format!("finding {}", path.display()))
}

/// Returns the disks of a row that a test uses.
fn used<'a, T>(paths: &'a [T], test: &DiskTest) -> &'a [T] {
    &paths[..paths.len().min(test.targets.get() as usize)]
}

fn paths_of(targets: &[DiskTarget]) -> Vec<PathBuf> {
    targets.iter().map(|target| target.path.clone()).collect()
}

/// A failing disk is not a mistake in the command line.
fn blame_preparing(error: PrepareError) -> Stop {
    match error {
        PrepareError::Job(_) => Stop::input(error),
        PrepareError::Fio(_) | PrepareError::Unreadable { .. } => Stop::infrastructure(error),
    }
}

impl DiskSampler for MeasuredDisks {
    fn sample(&mut self, row: Row, test: DiskTest) -> Result<Figures, SampleError> {
        self.first_sample.get_or_insert_with(Instant::now);
        self.measure(row, test)
    }
}

impl MeasuredPath for MeasuredDisks {
    fn sampler(&mut self) -> Sampler<'_> {
        Sampler::Disks(self)
    }

    fn break_off_on(&self, interrupt: &Interrupt) {
        self.end_on(interrupt);
    }

    fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    fn has_lab_guests(&self) -> bool {
        self.lab.is_some()
    }

    /// No step changes settings of a disk's path.
    fn switch_time(&self) -> Duration {
        Duration::ZERO
    }

    fn down(mut self: Box<Self>) -> miette::Result<()> {
        // The agents end before the lab.
        self.rows.clear();
        let lab = self.lab.take().and_then(Arc::into_inner).map_or(Ok(()), Lab::down).context("removing the lab");
        let files = self.made.take().map_or(Ok(()), LiveHolding::down).context("removing the files of the run");
        [lab.err(), files.err()].into_iter().flatten().reduce(and_then).map_or(Ok(()), Err)
    }
}
