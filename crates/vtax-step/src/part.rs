//! Steps as a journal executes them, regardless of their kind.

use serde::{Deserialize, Serialize};
use vtax_journal::Undone;
use vtax_sys::process::ProcessId;

use crate::{error::StepError, site::StepSite};

/// Step on a link, a guest or a device. A [`Step`](vtax_journal::Step) that has several kinds of them delegates to
/// them.
pub trait PartStep {
    /// Returns a description of one line.
    fn describe(&self) -> String;

    /// Returns a description with all details, for a printed plan.
    fn in_full(&self) -> String {
        self.describe()
    }

    /// Executes the step. If it fails, it may be half done.
    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError>;

    /// Checks results that the kernel does not acknowledge.
    fn read_back(&self, site: &mut StepSite) -> Result<(), StepError> {
        let _ = site;
        Ok(())
    }

    /// Undoes the step, as [`Step::undo`](vtax_journal::Step::undo) does. The default is for an object in a namespace
    /// that an earlier step of the same journal created.
    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let _ = (receipt, site);
        Ok(Undone::Contained)
    }
}

/// Identity of a step's result: that of a link, a namespace, a guest's process or a file. `None` if undoing the step
/// requires no identity.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepReceipt(pub Option<String>);

impl StepReceipt {
    /// Returns the process, if this is the receipt of a started program.
    pub fn process(&self) -> Option<ProcessId> {
        self.0.as_ref()?.parse().ok()
    }
}
