//! A program that carries the traffic of a zone, once it was started.

use vtax_sys::process::ProcessId;

/// A program that was started for a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayProcess {
    pub program: String,
    pub process: ProcessId,
}
