//! Start or resumption of a run of migrations.

use miette::miette;
use vtax_host::inspect;
use vtax_lab::Facts;
use vtax_model::{
    run::{RunHeader, RunReadings},
    study::Study,
};

use super::{PreparedRun, RunSetup, same_machine};
use crate::{
    events::RunEvent,
    stop::{Blamed, Stop},
    study::{
        draft::{facts_for, header, unavailable},
        migrations::MeasuredMigrations,
        options::ChangedStudy,
    },
};

impl RunSetup<'_> {
    pub(super) fn begin_migrations(&self, wanted: ChangedStudy) -> Result<PreparedRun, Stop> {
        let facts = self.guest_facts(&wanted.study)?;
        let lacking = unavailable(&wanted.study, &facts);
        let mut header = header(wanted, lacking)?;
        let outlook = self.outlook(&mut header)?;
        outlook.lines.iter().for_each(|line| self.events.tell(line));
        let migrations = self.build_migrations(&header, &facts)?;
        header.placement.guests = Some(migrations.guest_machine(no_kvm(&facts)));
        let prepared = self.begun(header, Box::new(migrations))?;
        Ok(PreparedRun { needs_pilot: outlook.needs_pilot, ..prepared })
    }

    pub(super) fn resume_migrations(&self, old: RunReadings) -> Result<PreparedRun, Stop> {
        let here = inspect::environment(&inspect::SystemRoot::live());
        same_machine(&old.header.id, None, &old.header.environment, &here).or_input()?;
        let facts = self.guest_facts(&old.header.study)?;
        self.events.send(&RunEvent::plan(&old.header)).map_err(Stop::of_sink)?;
        let migrations = self.build_migrations(&old.header, &facts)?;
        let (then, now) = (&old.header.placement.guests, migrations.guest_machine(no_kvm(&facts)));
        if then.as_ref().is_some_and(|then| (then.accel, &then.qemu) != (now.accel, &now.qemu)) {
            return Err(Stop::input(miette!(
                code = "run-from-elsewhere",
                "the run {} was started with another QEMU or accelerator: its samples would not be comparable; start \
                 a new run",
                old.header.id
            )));
        }
        self.going_on(old, Box::new(migrations))
    }

    fn guest_facts(&self, study: &Study) -> Result<Facts, Stop> {
        let facts = facts_for(study, self.in_world()?, &self.needs)?;
        self.phases.done("initramfs created");
        Ok(facts)
    }

    fn build_migrations(&self, header: &RunHeader, facts: &Facts) -> Result<MeasuredMigrations, Stop> {
        self.interrupt.only_note();
        MeasuredMigrations::build(self, header, facts)
    }
}

fn no_kvm(facts: &Facts) -> Option<String> {
    facts.guests.as_ref()?.qemu.as_ref().ok()?.no_kvm.clone()
}
