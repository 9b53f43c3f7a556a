//! Execution, verification and undo of a lab's steps.

use vtax_journal::{Journal, Step, Undone};
use vtax_step::StepReceipt;

use super::{
    Site,
    files::{make_file, remove_file},
};
use crate::{
    error::LabError,
    step::{LabStep, LabWork},
    verify,
};

impl Step for LabStep {
    type World = Site;
    type Receipt = StepReceipt;
    type Error = LabError;

    fn describe(&self) -> String {
        match self.work() {
            LabWork::Part(part) => part.describe(),
            _ => self.to_string(),
        }
    }

    fn apply(&self, site: &mut Site) -> Result<StepReceipt, LabError> {
        site.parts().check_goes_on()?;
        site.mark_device(self)?;
        let receipt = match self.work() {
            LabWork::Part(part) => part.apply(site.parts())?,
            LabWork::Namespace(namespace) => site.create_namespace(namespace)?,
            LabWork::File(path, size) => make_file(path, size)?,
            LabWork::Verify => verify_all(site).map(|()| StepReceipt::default())?,
        };
        if let LabStep::EnableLink(step) = self {
            site.hasten(&step.at)?;
        }
        Ok(receipt)
    }

    /// Only [`LabStep::Verify`] reads links back. The kernel acknowledges the rest, and sysctls are read when written.
    fn read_back(&self, receipt: &StepReceipt, site: &mut Site) -> Result<(), LabError> {
        match self.work() {
            LabWork::Part(part) => Ok(part.read_back(site.parts())?),
            LabWork::Namespace(namespace) => Ok(site.parts().check_pinned(namespace, receipt)?),
            LabWork::File(..) | LabWork::Verify => Ok(()),
        }
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut Site) -> Result<Undone, LabError> {
        let undone = match self.work() {
            LabWork::Part(part) => part.undo(receipt, site.parts())?,
            LabWork::Namespace(namespace) => site.remove_namespace(namespace, receipt)?,
            LabWork::File(path, _) => remove_file(path, receipt)?,
            LabWork::Verify => Undone::AlreadyGone,
        };
        site.unmark_device(self)?;
        Ok(undone)
    }

    fn finish(site: &mut Site) {
        site.remove_directory();
    }
}

/// Undoes a lab's journal. If the journal has lost lines, unrecorded objects are removed first, by their marks; the
/// result is then true.
pub(crate) fn undo(journal: Journal<LabStep>, site: &mut Site) -> Result<bool, LabError> {
    site.claim()?;
    let has_lost = site.has_more_than(journal.records())?;
    if has_lost {
        site.sweep()?;
    }
    journal.undo(site).map_err(|errors| LabError::Remove(Box::new(errors)))?;
    Ok(has_lost)
}

fn verify_all(site: &mut Site) -> Result<(), LabError> {
    let unknown = || LabError::Blueprint { lab: site.lab.to_string(), why: "its links are not known".to_owned() };
    let blueprint = site.blueprint.clone().ok_or_else(unknown)?;
    verify::await_all(site.parts(), &blueprint, blueprint.mtu)
}
