//! Running program that carries the traffic of a zone.

use vtax_sys::process::ProcessId;

/// Program that was started for a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayProcess {
    pub program: String,
    pub process: ProcessId,
}
