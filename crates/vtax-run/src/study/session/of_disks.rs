//! Start or resumption of a disk run.

use miette::miette;
use vtax_host::inspect;
use vtax_model::{
    disk::DiskPlace,
    run::{DiskPathRecord, RunHeader, RunReadings},
    study::StudyDisks,
};

use super::{PreparedRun, RunSetup, same_machine};
use crate::{
    events::RunEvent,
    labs::remove_abandoned,
    stop::{Blamed, Stop},
    study::{
        disks::{MeasuredDisks, files_name},
        draft::header,
        ends::lab_name,
        options::ChangedStudy,
    },
};

impl RunSetup<'_> {
    pub(super) fn begin_disks(&self, wanted: ChangedStudy) -> Result<PreparedRun, Stop> {
        let (unavailable, no_kvm) = match wanted.study.has_guests_disks() {
            true => self.survey(&wanted.study)?,
            false => (Vec::new(), None),
        };
        let mut header = header(wanted, unavailable)?;
        let outlook = self.outlook(&mut header)?;
        // Only now, because the files of earlier runs had other names.
        self.name_files(&mut header);
        let (disks, records) = self.connect_disks(&header, false)?;
        header.disks = records;
        if let Some(study) = header.study.disks_mut() {
            study.made = disks.made();
        }
        header.placement.guests = disks.guest_machine(no_kvm);
        outlook.lines.iter().for_each(|line| self.events.tell(line));
        let prepared = self.begun(header, Box::new(disks))?;
        Ok(PreparedRun { needs_pilot: outlook.needs_pilot, ..prepared })
    }

    /// Names the files of a study without named disks.
    fn name_files(&self, header: &mut RunHeader) {
        let study = &mut header.study;
        let count = study.cells.iter().filter_map(|cell| cell.disk()).map(|disk| disk.targets.get()).max();
        let Some(disks) = study.disks_mut().filter(|disks| disks.rows.is_empty() && disks.backend.is_empty()) else {
            return;
        };
        let file = |number| self.conditions.directory.join(format!("vtax-{}-disk{number}.img", header.id));
        disks.backend.0 = (1..=count.unwrap_or(1)).map(file).map(DiskPlace::Here).collect();
    }

    /// Inspects the disks of a run and prepares them. Ctrl-C interrupts this. The records contain the paths: once a
    /// guest has a disk's controller, this machine no longer sees the disk.
    fn connect_disks(&self, header: &RunHeader, goes_on: bool) -> Result<(MeasuredDisks, Vec<DiskPathRecord>), Stop> {
        let none = || miette!(code = "defect", "the run {} has no disks", header.id);
        let disks = header.study.disks().ok_or_else(none).or_infrastructure()?;
        let world = self.in_world()?;
        if goes_on {
            // A guest may still have a controller, and its disk isn't visible until the lab is removed.
            for left in [lab_name(header)?, files_name(header)?] {
                remove_abandoned(world, &left, self.events)?;
            }
            still_free(disks).or_input()?;
        }
        let mut disks = MeasuredDisks::look(disks, header, goes_on)?;
        disks.connect_elsewhere(self, header)?;
        disks.end_on(self.interrupt);
        disks.make_files(world, header)?;
        disks.prepare(header, self.events)?;
        let records = disks.records(header)?;
        self.interrupt.only_note();
        disks.build(self, header)?;
        Ok((disks, records))
    }

    pub(super) fn resume_disks(&self, old: RunReadings) -> Result<PreparedRun, Stop> {
        let here = inspect::environment(&inspect::SystemRoot::live());
        same_machine(&old.header.id, None, &old.header.environment, &here).or_input()?;
        self.events.send(&RunEvent::plan(&old.header)).map_err(Stop::of_sink)?;
        let (disks, records) = self.connect_disks(&old.header, true)?;
        same_disks(&old.header, &records).or_input()?;
        self.going_on(old, Box::new(disks))
    }
}

/// Refuses to overwrite anything that has replaced a file created by the run, and that the run
/// would create anew.
fn still_free(disks: &StudyDisks) -> miette::Result<()> {
    match disks.made.iter().find(|path| path.exists()) {
        Some(path) => Err(miette!(
            code = "disk-not-empty",
            "{} already exists, and the run creates a file of this name: move yours, or remove it if the run left it \
             when the machine went down",
            path.display()
        )),
        None => Ok(()),
    }
}

/// Refuses to resume a run whose disks, or the program that measures them, have changed.
fn same_disks(then: &RunHeader, now: &[DiskPathRecord]) -> miette::Result<()> {
    match then.disks.iter().zip(now).find(|(then, now)| then != now) {
        Some((before, now)) => Err(miette!(
            code = "run-from-elsewhere",
            "the disk {} was {}, measured by {}, when the run {} started, and is now {}, measured by {}: its samples \
             would not \
             be comparable; start a new run",
            before.disk,
            before.path,
            before.program,
            then.id,
            now.path,
            now.program
        )),
        None => Ok(()),
    }
}
