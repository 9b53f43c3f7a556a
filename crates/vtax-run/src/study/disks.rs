//! The disks of a run: looked at, written once, then measured by fio.

mod guest;
mod request;

use std::{
    collections::BTreeMap,
    fs::File,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Instant,
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
    disk::{DiskDevice, DiskPlace, DiskTest},
    foreign::ForeignText,
    run::{DiskPathRecord, Figures, GuestMachine, RunHeader},
    study::{DiskRow, Row, SamplingPlan, StudyDisks},
    topology::Name,
    units::ByteSize,
};
use vtax_sys::deadline::ProgramCancel;

use super::{
    arrange::{RowPorts, arrange},
    draft::available,
    ends::{
        lab_name,
        observe::{Observed, ServedDisks, UntoldTimes, observing},
    },
    measured_path::MeasuredPath,
    runner::{SampleError, Sampler},
    session::RunSetup,
};
use crate::{
    events::RunEvents,
    interrupt::Interrupt,
    labs,
    stop::{Blamed, Coded, Stop, and_then},
};
use guest::{GuestFio, GuestFioError};
pub use request::DiskRequest;

/// The disks of one row.
struct RowTargets {
    row: Row,
    /// As the user named them.
    names: Vec<DiskPlace>,
    /// What they are on this machine.
    targets: Vec<DiskTarget>,
    /// The guest that measures them, and what it calls them; none if this machine does.
    inside: Option<(GuestFio, Vec<PathBuf>)>,
}

/// The disks of a run.
pub(super) struct MeasuredDisks {
    rows: Vec<RowTargets>,
    fio: FioProgram,
    cancel: ProgramCancel,
    /// The files that are made for the run, and how large they are to be.
    wanted: BTreeMap<PathBuf, ByteSize>,
    /// They, once they are made.
    made: Option<LiveHolding>,
    /// The block devices, so that nobody mounts them while they are measured.
    held: Vec<File>,
    first_sample: Option<Instant>,
    /// Of the order of the I/Os.
    seed: u64,
    /// The lab that was built for the run.
    lab: Option<Arc<Lab>>,
    /// Which disks of the lab's guests the rows measure.
    ports: BTreeMap<Row, RowPorts>,
}

impl MeasuredDisks {
    /// Looks at all disks. Nothing is written, and what can't be measured is refused.
    pub(super) fn look(disks: &StudyDisks, header: &RunHeader, goes_on: bool) -> Result<MeasuredDisks, Stop> {
        let cancel = ProgramCancel::new().coded("kernel", || "making an eventfd").or_infrastructure()?;
        let fio = FioProgram::user().ended_by(cancel.clone());
        // A run that goes on has written to them already.
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
            ports: BTreeMap::new(),
        };
        for row in available(&header.study, &header.unavailable) {
            let names = disks.of(row).0.clone();
            let paths: Vec<PathBuf> = names.iter().map(path_here).collect::<Result<_, _>>().or_input()?;
            let mut targets: Vec<DiskTarget> = Vec::new();
            for test in tests(header, row) {
                let used = used(&paths, &test);
                targets.extend(target::check(used, &test, destroy).or_input()?.into_iter().skip(targets.len()));
                FioJob::new(test, used, false, header.seed).or_input()?;
                for path in paths_of(&targets).into_iter().take(used.len()).filter(|path| !path.exists()) {
                    let size = found.wanted.entry(path).or_insert(ByteSize(0));
                    *size = test.used().max(*size);
                }
            }
            found.rows.push(RowTargets { row, names, targets, inside: None });
        }
        found.fio.version().or_infrastructure()?;
        found.held = found.hold().or_input()?;
        Ok(found)
    }

    /// But those that a guest gets with their controller, which leaves its driver.
    fn hold(&self) -> Result<Vec<File>, TargetError> {
        let here: BTreeMap<&PathBuf, &DiskTarget> = self
            .rows
            .iter()
            .filter(|row| !matches!(row.row, Row::Disk(DiskRow::Guest(attach)) if attach.device == DiskDevice::AssignedNvme))
            .flat_map(|row| row.targets.iter().map(|target| (&target.path, target)))
            .collect();
        here.into_values().filter_map(|target| target.hold().transpose()).collect()
    }

    /// Makes the files that aren't there yet. They go with this, or, after a kill, by `vtax lab clean`.
    pub(super) fn make_files(&mut self, world: &World, header: &RunHeader) -> Result<(), Stop> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let files = self.wanted.iter().map(|(path, size)| (path.clone(), *size));
        self.made = Some(run_files::make(world, &files_name(header)?, &header.id, files).or_infrastructure()?);
        Ok(())
    }

    /// Writes all blocks that are to be read, for disks give blocks that were never written without reading any.
    pub(super) fn prepare(&self, header: &RunHeader, events: &RunEvents) -> Result<(), Stop> {
        let mut written: Vec<(Vec<PathBuf>, ByteSize, bool)> = Vec::new();
        for row in &self.rows {
            for test in tests(header, row.row) {
                let (paths, each) = (used(&paths_of(&row.targets), &test).to_vec(), test.used());
                let key = (paths.clone(), each, test.direct);
                // One that verifies writes the blocks itself.
                if test.verify || written.contains(&key) {
                    continue;
                }
                written.push(key);
                events.tell(format_args!("{}: looking whether the first {each} of each disk are written", row.row));
                match prepare(&self.fio, test, &paths, self.seed).map_err(blame_preparing)? {
                    BlocksWritten::Before => {}
                    BlocksWritten::Now => events.tell(format_args!("{}: written now", row.row)),
                    BlocksWritten::NotKept => events.tell(format_args!(
                        "note: {}: written, and reads as zeros: this disk keeps no data, as null_blk; it can be \
                         measured, and not verified",
                        row.row
                    )),
                }
            }
        }
        Ok(())
    }

    /// What the paths to the disks are.
    pub(super) fn records(&self, header: &RunHeader) -> Result<Vec<DiskPathRecord>, Stop> {
        let program = self.fio.version().or_infrastructure()?;
        let mut records = Vec::new();
        for RowTargets { row, names, targets, .. } in &self.rows {
            let direct = tests(header, *row).all(|test| test.direct);
            for (name, target) in names.iter().zip(targets) {
                let path = identify(target, direct)
                    .into_diagnostic()
                    .with_context(|| format!("looking at the path to {name}"))
                    .or_infrastructure()?;
                let (disk, program) = (name.to_string().into(), program.clone());
                records.push(DiskPathRecord { method: *row, disk, program, path });
            }
        }
        Ok(records)
    }

    /// From now on Ctrl-C ends fio, here and in guests.
    pub(super) fn end_on(&self, interrupt: &Interrupt) {
        let cancel = self.cancel.clone();
        let guests: Vec<_> = self.guests().map(|guest| Arc::downgrade(guest.agent())).collect();
        interrupt.on_ask(move || {
            cancel.cancel();
            // An agent that can't be told is dead, which the sample notices by itself.
            guests.iter().filter_map(Weak::upgrade).for_each(|agent| drop(agent.link.cancel_all()));
        });
    }

    fn guests(&self) -> impl Iterator<Item = &GuestFio> {
        self.rows.iter().filter_map(|row| row.inside.as_ref()).map(|(guest, _)| guest)
    }

    /// The lab of the rows that measure in guests. The disks are there, and have their blocks.
    pub(super) fn build(&mut self, setup: &RunSetup<'_>, header: &RunHeader) -> Result<(), Stop> {
        let rows = available(&header.study, &header.unavailable);
        let mut arranged = arrange(&header.study, lab_name(header)?, &rows);
        if arranged.disks.is_empty() {
            return Ok(());
        }
        let folder = guest::lent()?;
        // Whoever gives a guest a device looks first that nobody has it for itself, this run included. It is taken again below,
        // and if somebody else was quicker, that is refused.
        self.held.clear();
        arranged.topology.guests.iter_mut().for_each(|guest| guest.lent = Some(folder.clone()));
        let (lab, inside) = setup.with_lab(&arranged.topology, |lab| {
            let mut guests: Vec<GuestFio> = Vec::new();
            let mut inside: BTreeMap<Row, (GuestFio, Vec<PathBuf>)> = BTreeMap::new();
            for (row, ports) in &arranged.disks {
                let guest = match guests.iter().find(|guest| *guest.name() == ports.guest) {
                    Some(guest) => guest.clone(),
                    None => GuestFio::connect(lab, &ports.guest, setup.events)?,
                };
                inside.insert(*row, (guest.clone(), guest.paths(lab, ports)?));
                guests.push(guest);
            }
            Ok(inside)
        })?;
        self.lab = Some(lab);
        self.ports = arranged.disks;
        for row in &mut self.rows {
            row.inside = inside.get(&row.row).cloned();
        }
        self.held = self.hold().or_infrastructure()?;
        Ok(())
    }

    /// The files that were made for the run.
    pub(super) fn made(&self) -> Vec<PathBuf> {
        self.wanted.keys().cloned().collect()
    }

    /// What runs the run's guests, if it has any.
    pub(super) fn guest_machine(&self, no_kvm: Option<String>) -> Option<GuestMachine> {
        let launch = &self.lab.as_ref()?.guests().first()?.launch;
        let qemu = launch.qemu.version.to_string().into();
        Some(GuestMachine { accel: launch.accel, no_kvm: no_kvm.map(ForeignText::from), qemu })
    }

    fn measure(&self, cell: &Cell, plan: &SamplingPlan) -> Result<Figures, SampleError> {
        let CellTest::Disk(disk) = cell.test else {
            return Err(SampleError::cell("these are disks, and the test is one of a network"));
        };
        let of_row = |row: &&RowTargets| row.row == cell.row;
        let row =
            self.rows.iter().find(of_row).ok_or_else(|| {
                SampleError::run(miette!(code = "defect", "the row `{}` has no disks here", cell.row))
            })?;
        let paths = row.inside.as_ref().map_or_else(|| paths_of(&row.targets), |(_, paths)| paths.clone());
        let test = disk.spec(plan);
        let job = FioJob::new(test, used(&paths, &test), false, self.seed);
        let job = job.map_err(|error| SampleError::cell(error.to_string()))?;
        let times = job.timed().map(|_| UntoldTimes { warmup: test.ramp.0, measured: test.duration.0 });
        let guests: Vec<Observed> = self.observed(cell.row).into_iter().collect();
        let (report, host_cpu) = observing(&guests, times, || match &row.inside {
            Some((guest, _)) => guest.run(&job).map_err(|error| self.blame(guest, error)),
            None => self.fio.run(&job).map_err(|error| match error {
                // It may still be at work when the next sample begins.
                error @ FioError::Stuck { .. } => SampleError::run(error),
                error => SampleError::cell(error.to_string()),
            }),
        });
        Ok(Figures { host_cpu, ..Figures::of_disk(&report?) })
    }

    /// The guest of a row, if it has one in the run's lab.
    fn observed(&self, row: Row) -> Option<Observed> {
        let ports = self.ports.get(&row)?;
        let qemu = self.lab.as_ref()?.guest(&ports.guest).ok()?;
        let launch = qemu.launch().clone();
        let ports = launch.disks.disks.get(ports.disks.clone())?.iter().map(|disk| disk.port).collect();
        Some(Observed::of_disks(qemu.process(), ServedDisks { launch, ports }))
    }

    /// An agent that has died ends the run, and if its guest has died that is the better reason.
    fn blame(&self, guest: &GuestFio, error: GuestFioError) -> SampleError {
        let qemu = self.lab.as_ref().and_then(|lab| lab.guest(guest.name()).ok());
        match error {
            GuestFioError::Agent(error) if error.is_death() => SampleError::run(match qemu {
                Some(qemu) => labs::explain(&qemu, error),
                None => error.into(),
            }),
            error => SampleError::cell(format!("in the guest {}: {error}", guest.name())),
        }
    }
}

/// The name under which the files of a run are known, beside the run's lab.
pub(super) fn files_name(header: &RunHeader) -> Result<Name, Stop> {
    format!("{}-files", lab_name(header)?).parse().or_infrastructure()
}

/// The tests of a row, with their times.
fn tests(header: &RunHeader, row: Row) -> impl Iterator<Item = DiskTest> {
    let of_disk = move |cell: &Cell| match cell.test {
        CellTest::Disk(disk) if cell.row == row => Some(DiskCell::spec(&disk, header.plan_of(cell.instrument))),
        _ => None,
    };
    header.study.cells.iter().filter_map(of_disk)
}

fn path_here(disk: &DiskPlace) -> miette::Result<PathBuf> {
    match disk {
        DiskPlace::Here(path) => {
            std::path::absolute(path).coded("disk-unusable", || format!("finding {}", path.display()))
        }
        DiskPlace::Domain { .. } => {
            Err(miette!(code = "disk-unusable", "{disk}: disks of domains can't be measured yet; name a path"))
        }
    }
}

/// The disks of a row that a test is over.
fn used<'a>(paths: &'a [PathBuf], test: &DiskTest) -> &'a [PathBuf] {
    &paths[..paths.len().min(test.targets.get() as usize)]
}

fn paths_of(targets: &[DiskTarget]) -> Vec<PathBuf> {
    targets.iter().map(|target| target.path.clone()).collect()
}

/// A disk that fails is no mistake of the command line.
fn blame_preparing(error: PrepareError) -> Stop {
    match error {
        PrepareError::Job(_) => Stop::input(error),
        PrepareError::Fio(_) | PrepareError::Unreadable { .. } => Stop::infrastructure(error),
    }
}

impl Sampler for MeasuredDisks {
    fn sample(&mut self, cell: &Cell, plan: &SamplingPlan) -> Result<Figures, SampleError> {
        self.first_sample.get_or_insert_with(Instant::now);
        self.measure(cell, plan)
    }
}

impl MeasuredPath for MeasuredDisks {
    fn break_off_on(&self, interrupt: &Interrupt) {
        self.end_on(interrupt);
    }

    fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    fn has_lab_guests(&self) -> bool {
        self.lab.is_some()
    }

    fn down(mut self: Box<Self>) -> miette::Result<()> {
        // The agents end before the lab.
        self.rows.clear();
        let lab = self.lab.take().and_then(Arc::into_inner).map_or(Ok(()), Lab::down).context("removing the lab");
        let files = self.made.take().map_or(Ok(()), LiveHolding::down).context("removing the files of the run");
        [lab.err(), files.err()].into_iter().flatten().reduce(and_then).map_or(Ok(()), Err)
    }
}
