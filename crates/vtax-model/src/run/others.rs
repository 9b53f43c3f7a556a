//! CPU usage of programs other than vtax.

use serde::{Deserialize, Serialize};

use crate::foreign::ForeignText;

/// CPU time of programs that neither belong to vtax nor are measured, between two looks at a machine. They are between samples;
/// one look follows the other, so that nothing is missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherPrograms {
    /// The host name of the machine; empty for the machine on which vtax runs.
    pub machine: ForeignText,
    /// CPUs online.
    pub cpus: u32,
    /// The time between the looks, in seconds.
    pub seconds: f64,
    /// CPU seconds of the programs, in user space, in the kernel and in guests of theirs.
    pub cpu: f64,
}
