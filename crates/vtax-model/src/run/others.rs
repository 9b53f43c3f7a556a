//! CPU usage of programs other than vtax.

use serde::{Deserialize, Serialize};

use crate::foreign::ForeignText;

/// CPU time of programs that neither belong to vtax nor are measured, between two checks of a machine. Checks are
/// between samples and cover all of the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherPrograms {
    /// The host name of the machine; empty for the machine on which vtax runs.
    pub machine: ForeignText,
    /// CPUs online.
    pub cpus: u32,
    /// Time between the checks, in seconds.
    pub seconds: f64,
    /// CPU seconds of the programs, in user space, in the kernel and in their guests.
    pub cpu: f64,
}
