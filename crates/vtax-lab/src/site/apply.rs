//! Execution, verification and undo of a lab's steps.

use vtax_change::pci::{destroy_vfs, probe_vfs};
use vtax_journal::{Journal, Step, Undone};

use vtax_step::{PartStep, StepReceipt};

use super::{
    Site,
    files::{make_file, remove_file},
    pci::assign_device,
};
use crate::{error::LabError, step::LabStep, verify};

impl Step for LabStep {
    type World = Site;
    type Receipt = StepReceipt;
    type Error = LabError;

    fn describe(&self) -> String {
        self.part().map_or_else(|| self.to_string(), PartStep::describe)
    }

    fn apply(&self, site: &mut Site) -> Result<StepReceipt, LabError> {
        site.parts().check_goes_on()?;
        site.mark_device(self)?;
        let done = match self {
            LabStep::CreateNamespace { namespace } => return site.create_namespace(namespace),
            LabStep::MakeFile { path, size } => return make_file(path, *size),
            LabStep::EnableLink(step) => return site.enable_link(step),
            LabStep::TakeNic { device, at, mtu, .. } => site.take_nic(*device, at, *mtu),
            LabStep::CreateVfs { device, at, count, functions, .. } => {
                site.create_vfs(*device, at.as_ref(), *count, functions.as_deref())
            }
            LabStep::ProbeVfs { device, mtu } => probe_vfs(*device, *mtu).map_err(LabError::from),
            LabStep::ConfigureVf { device, index, set } => site.configure_vf(*device, None, *index, set),
            LabStep::LendVf { at, function } => site.lend_vf(at, function),
            LabStep::AssignDevice { device, .. } => assign_device(*device),
            LabStep::Verify => verify_all(site),
            _ => return self.part().map_or(Ok(StepReceipt::default()), |part| Ok(part.apply(site.parts())?)),
        };
        done.map(|()| StepReceipt::default())
    }

    /// Only [`LabStep::Verify`] reads links back. The kernel acknowledges the rest, and sysctls are read when written.
    fn read_back(&self, receipt: &StepReceipt, site: &mut Site) -> Result<(), LabError> {
        match self {
            LabStep::CreateNamespace { namespace } => Ok(site.parts().check_pinned(namespace, receipt)?),
            LabStep::ConfigureVf { device, index, set } => site.has_vf(*device, None, *index, set),
            LabStep::LendVf { at, function } => site.has_vf(function.pf, Some(at), function.index, &function.set),
            _ => self.part().map_or(Ok(()), |part| Ok(part.read_back(site.parts())?)),
        }
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut Site) -> Result<Undone, LabError> {
        let undone = match self {
            LabStep::CreateNamespace { namespace } => site.remove_namespace(namespace, receipt),
            LabStep::MakeFile { path, .. } => remove_file(path, receipt),
            LabStep::TakeNic { device, at, was, .. } => site.return_nic(*device, at, was.as_ref()),
            LabStep::CreateVfs { device, count, autoprobe, .. } => {
                destroy_vfs(*device, *count, *autoprobe).map_err(LabError::from)
            }
            LabStep::LendVf { at, function } => site.return_vf(at, function),
            LabStep::AssignDevice { device, was } => was.restore(*device).map_err(LabError::from),
            LabStep::Verify => Ok(Undone::AlreadyGone),
            LabStep::ProbeVfs { .. } | LabStep::ConfigureVf { .. } => Ok(Undone::Contained),
            _ => self.part().map_or(Ok(Undone::Contained), |part| Ok(part.undo(receipt, site.parts())?)),
        }?;
        site.unmark_device(self)?;
        Ok(undone)
    }

    fn finish(site: &mut Site) {
        site.remove_directory();
    }
}

/// Undoes a lab's journal. If the journal has lost lines, what it doesn't know is removed first, by its marks; then the
/// result is true.
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
    verify::await_all(site, &blueprint, blueprint.mtu)
}
