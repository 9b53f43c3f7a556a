//! Supervisor processes as seen by others: starting, finding and ending them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use vtax_model::topology::Name;
use vtax_sys::{
    background,
    process::{ProcessId, Signal},
    record::{self, RecordError},
};

use crate::error::BindError;

/// Time within which a killed supervisor exits.
const KILLED: Duration = Duration::from_secs(2);

/// Starts a supervisor, and with it the domain.
pub(crate) fn start(domain: &Name, command: io::Result<Command>) -> Result<(), BindError> {
    let failed = |why: String| BindError::Supervisor { domain: domain.clone(), why };
    let command = command.map_err(|error| failed(format!("cannot find vtax's program ({error})")))?;
    background::start(command).map_err(failed)
}

/// Ends the supervisor of a domain. The domain keeps running.
pub(crate) fn end(directory: &Path) {
    if let Ok(Some(process)) = recorded(directory) {
        // It may have exited on its own in the meantime.
        let _ = process.signal(Signal::KILL);
        let _ = process.wait_end(KILLED);
    }
    let _ = fs::remove_file(pid_file(directory));
}

/// Returns the last supervisor of a domain, as recorded by itself.
pub(crate) fn recorded(directory: &Path) -> Result<Option<ProcessId>, RecordError> {
    record::read_word(&pid_file(directory))
}

/// Returns the file that exists if the domain was stopped because its system rebooted repeatedly.
pub(crate) fn reboot_loop(directory: &Path) -> PathBuf {
    directory.join("reboot-loop")
}

/// Returns the file in which the supervisor records its process.
pub(crate) fn pid_file(directory: &Path) -> PathBuf {
    directory.join("supervisor")
}
