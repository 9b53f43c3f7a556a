//! Results of steps, as a journal stores them.

use serde::{Deserialize, Serialize};
use vtax_sys::process::ProcessId;

/// Identity of a step's result: the number of a link, a namespace, a guest's process or a file. None if undoing the step
/// takes no identity.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepReceipt(pub Option<String>);

impl StepReceipt {
    /// QEMU's process, if this is the receipt of a guest.
    pub fn process(&self) -> Option<ProcessId> {
        self.0.as_ref()?.parse().ok()
    }
}
