//! Steps that give domains and switches their resources, and how they are undone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vtax_journal::{Step, Undone};
use vtax_step::{
    AssignFunction, CreateSwitch, CreateTap, LendAddress, LimitTap, PartStep, PlugDevice, PlugNic, ReturnFunction,
    StartGuest, StepError, StepReceipt, StepSite, TakeUplink,
};

use crate::disk_plug::{PlugDisk, PullDisk};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum DomainStep {
    Begin(BeginDomain),
    CreateSwitch(CreateSwitch),
    TakeUplink(TakeUplink),
    CreateTap(CreateTap),
    LimitTap(LimitTap),
    PlugNic(PlugNic),
    LendAddress(LendAddress),
    AssignFunction(AssignFunction),
    PlugDevice(PlugDevice),
    ReturnFunction(ReturnFunction),
    PlugDisk(PlugDisk),
    PullDisk(PullDisk),
    StartGuest(StartGuest),
}

impl DomainStep {
    fn part(&self) -> &dyn PartStep {
        match self {
            DomainStep::Begin(step) => step,
            DomainStep::CreateSwitch(step) => step,
            DomainStep::TakeUplink(step) => step,
            DomainStep::CreateTap(step) => step,
            DomainStep::LimitTap(step) => step,
            DomainStep::PlugNic(step) => step,
            DomainStep::LendAddress(step) => step,
            DomainStep::AssignFunction(step) => step,
            DomainStep::PlugDevice(step) => step,
            DomainStep::ReturnFunction(step) => step,
            DomainStep::PlugDisk(step) => step,
            DomainStep::PullDisk(step) => step,
            DomainStep::StartGuest(step) => step,
        }
    }
}

impl Step for DomainStep {
    type World = StepSite;
    type Receipt = StepReceipt;
    type Error = StepError;

    fn describe(&self) -> String {
        self.part().describe()
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        self.part().apply(site)
    }

    fn read_back(&self, _: &StepReceipt, site: &mut StepSite) -> Result<(), StepError> {
        self.part().read_back(site)
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        self.part().undo(receipt, site)
    }
}

/// Creates the domain's own directory, which is removed last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BeginDomain {
    pub(crate) directory: PathBuf,
}

impl PartStep for BeginDomain {
    fn describe(&self) -> String {
        format!("directory {}", self.directory.display())
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        Ok(StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        Ok(Undone::Reverted)
    }
}

#[cfg(test)]
mod tests;
