//! The machine that advice is about.

use std::path::PathBuf;

use jiff::Timestamp;

use vtax_host::inspect;
use vtax_lab::{Facts, GuestNeeds, Lifetime, World, facts::PciFacts};
use vtax_model::{
    advice::{AdviceInput, AdviceReport, Inventory, MeasuredFigure, Requirements, WantedEvidence, advise},
    evidence::EvidenceSetting,
    guest::Accelerator,
};
use vtax_store::Store;

use super::{
    AdviseArgs,
    evidence::{self, MOST},
    inventory,
};
use crate::{
    cli::Locations,
    exit::{Blamed, Stop},
};

/// Hardware and conditions of this machine.
pub(super) struct AdvisedMachine {
    setting: EvidenceSetting,
    inventory: Inventory,
    /// Directory of labs, for runs that are started by this process.
    pub(super) run_directory: PathBuf,
}

impl AdvisedMachine {
    pub(super) fn survey(
        requirements: &Requirements,
        args: &AdviseArgs,
        places: &Locations,
    ) -> Result<AdvisedMachine, Stop> {
        // In the namespaces of an unprivileged user, the NICs are out of sight.
        let pci = PciFacts::gather().or_infrastructure()?;
        let environment = inspect::environment(&inspect::SystemRoot::live());
        let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
        let facts = Facts::gather(&world).or_infrastructure()?;
        let (facts, no_agent) = match places.find_agent() {
            Ok(agent) => (facts.with_guests(&world, &GuestNeeds::new(&agent, None).of_methods()), None),
            Err(error) => (facts, Some(error.unsupported)),
        };
        let facts = Facts { pci, ..facts };
        let qemu = facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok());
        let setting = EvidenceSetting::of_machine(&environment, qemu.map(|qemu| qemu.accel));
        let inventory = Inventory {
            driver: inventory::driver(&facts.pci, args.cable.as_ref()).or_input()?,
            failover: inventory::failover(environment.kernel.raw()),
            unavailable: inventory::unavailable(&facts, no_agent.as_ref()),
            ..inventory::counts(&facts, requirements)
        };
        Ok(AdvisedMachine { setting, inventory, run_directory: world.directory() })
    }

    /// Answers from the machine's hardware and the findings in the store, with remarks that apply to all methods.
    pub(super) fn advise(
        &self,
        requirements: &Requirements,
        args: &AdviseArgs,
        places: &Locations,
    ) -> Result<(AdviceReport, Vec<String>), Stop> {
        let now = Timestamp::now().as_second();
        let seconds = |text: &str| Some(text.parse::<Timestamp>().ok()?.as_second());
        let wanted = WantedEvidence { requirements, machine: &self.setting, mtu: args.mtu, now, seconds };
        let found = Store::reading(&places.state_dir()?, |store| evidence::findings(store, &wanted, MOST))?;
        let figures = MeasuredFigure::of_findings(&found.findings, &wanted);
        let report = advise(&AdviceInput {
            requirements,
            inventory: &self.inventory,
            figures: &figures,
            mtu: args.mtu,
            cable: args.cable.as_ref(),
            now,
        });
        let notes = self.notes(places)?.into_iter().chain(found.remark(MOST)).collect();
        Ok((report, notes))
    }

    fn notes(&self, places: &Locations) -> Result<Vec<String>, Stop> {
        let translated = (self.setting.accelerator == Some(Accelerator::Tcg)).then(|| {
            "guests of this machine run under TCG: their figures show function, not speed, and are not valid with KVM"
                .to_owned()
        });
        let without = Store::reading(&places.state_dir()?, Store::runs_without_findings)?;
        let without = (without > 0).then(|| {
            format!("the findings of {without} older runs are missing until vtax next stores a run, and were not used")
        });
        Ok(translated.into_iter().chain(without).collect())
    }
}
