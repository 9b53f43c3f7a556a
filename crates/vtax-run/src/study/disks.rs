//! The disks of a run: looked at, written once, then measured by fio.

mod request;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use miette::{IntoDiagnostic, WrapErr, miette};
use vtax_disk::{
    job::FioJob,
    path::identify,
    prepare::{BlocksWritten, PrepareError, prepare},
    run::{FioError, FioProgram},
    target::{self, DiskTarget},
};
use vtax_model::{
    cell::{Cell, CellTest, DiskCell},
    disk::{DiskPlace, DiskTest},
    run::{DiskPathRecord, Figures, RunHeader},
    study::{Row, RowDisks, SamplingPlan, StudyDisks},
    units::ByteSize,
};
use vtax_sys::deadline::ProgramCancel;

use super::{
    measured_path::MeasuredPath,
    runner::{SampleError, Sampler},
};
use crate::{
    events::RunEvents,
    interrupt::Interrupt,
    stop::{Blamed, Coded, Stop},
};
pub use request::DiskRequest;

/// The disks of one row, on this machine.
struct RowTargets {
    row: Row,
    /// As the user named them.
    names: Vec<DiskPlace>,
    targets: Vec<DiskTarget>,
}

/// The disks of a run.
pub(super) struct MeasuredDisks {
    rows: Vec<RowTargets>,
    fio: FioProgram,
    cancel: ProgramCancel,
    /// The files that were made for the run.
    made: Vec<PathBuf>,
    first_sample: Option<Instant>,
    /// Of the order of the I/Os.
    seed: u64,
}

impl MeasuredDisks {
    /// Looks at all disks. Nothing is written, and what can't be measured is refused.
    pub(super) fn look(disks: &StudyDisks, header: &RunHeader, goes_on: bool) -> Result<MeasuredDisks, Stop> {
        let cancel = ProgramCancel::new().coded("kernel", || "making an eventfd").or_infrastructure()?;
        let fio = FioProgram::user().ended_by(cancel.clone());
        let destroy = disks.destroy_data || goes_on;
        let mut found =
            MeasuredDisks { rows: Vec::new(), fio, cancel, made: Vec::new(), first_sample: None, seed: header.seed };
        for RowDisks { row, disks } in &disks.rows {
            let names = disks.0.clone();
            let paths: Vec<PathBuf> = names.iter().map(path_here).collect::<Result<_, _>>().or_input()?;
            let mut targets = Vec::new();
            for test in tests(header, *row) {
                targets = target::check(&paths, &test, destroy).or_input()?;
                FioJob::new(test, &paths_of(&targets), false, header.seed).or_input()?;
            }
            found.made.extend(paths_of(&targets).into_iter().filter(|path| !path.exists()));
            found.rows.push(RowTargets { row: *row, names, targets });
        }
        found.fio.version().or_infrastructure()?;
        Ok(found)
    }

    /// Writes all blocks that are to be read, for disks give blocks that were never written without reading any.
    pub(super) fn prepare(&self, header: &RunHeader, events: &RunEvents) -> Result<(), Stop> {
        for row in &self.rows {
            let mut written: Vec<(ByteSize, bool)> = Vec::new();
            for test in tests(header, row.row) {
                // One that verifies writes the blocks itself.
                if test.verify || written.contains(&(test.used(), test.direct)) {
                    continue;
                }
                written.push((test.used(), test.direct));
                let (paths, each) = (paths_of(&row.targets), test.used());
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
        for RowTargets { row, names, targets } in &self.rows {
            let direct = tests(header, *row).all(|test| test.direct);
            for (name, target) in names.iter().zip(targets) {
                let path = identify(target, direct)
                    .into_diagnostic()
                    .wrap_err_with(|| format!("looking at the path to {name}"))
                    .or_infrastructure()?;
                let (disk, program) = (name.to_string().into(), program.clone());
                records.push(DiskPathRecord { method: *row, disk, program, path });
            }
        }
        Ok(records)
    }

    /// From now on Ctrl-C ends fio.
    pub(super) fn end_on(&self, interrupt: &Interrupt) {
        let cancel = self.cancel.clone();
        interrupt.on_ask(move || cancel.cancel());
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
        let job = FioJob::new(disk.spec(plan), &paths_of(&row.targets), false, self.seed);
        let job = job.map_err(|error| SampleError::cell(error.to_string()))?;
        match self.fio.run(&job) {
            Ok(report) => Ok(Figures::of_disk(&report)),
            // It may still be at work when the next sample begins.
            Err(error @ FioError::Stuck { .. }) => Err(SampleError::run(error)),
            Err(error) => Err(SampleError::cell(error.to_string())),
        }
    }
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

/// A file that isn't there any more needs no removing.
fn remove(path: &Path) -> miette::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).coded("file", || format!("removing {}", path.display()))
        }
        _ => Ok(()),
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
        false
    }

    fn down(mut self: Box<Self>) -> miette::Result<()> {
        self.made.drain(..).try_for_each(|path| remove(&path))
    }
}

/// What isn't kept is of no use to anybody: also of a run that is refused or ended before its first sample.
impl Drop for MeasuredDisks {
    fn drop(&mut self) {
        self.made.drain(..).for_each(|path| drop(remove(&path)));
    }
}
