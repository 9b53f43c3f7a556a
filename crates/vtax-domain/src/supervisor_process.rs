//! The processes that watch domains, as others see them: started, found by their files, ended.

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

/// A killed supervisor ends within this time.
const KILLED: Duration = Duration::from_secs(2);

/// Starts a supervisor, and with it the domain.
pub(crate) fn start(domain: &Name, command: io::Result<Command>) -> Result<(), BindError> {
    let failed = |why: String| BindError::Supervisor { domain: domain.clone(), why };
    let command = command.map_err(|error| failed(format!("has no program ({error})")))?;
    background::start(command).map_err(failed)
}

/// Ends the supervisor of a domain. The domain runs on.
pub(crate) fn end(directory: &Path) {
    if let Ok(Some(process)) = recorded(directory) {
        // It may have ended by itself meanwhile.
        let _ = process.signal(Signal::KILL);
        let _ = process.wait_end(KILLED);
    }
    let _ = fs::remove_file(pid_file(directory));
}

/// The supervisor that a domain had last, as it noted itself.
pub(crate) fn recorded(directory: &Path) -> Result<Option<ProcessId>, RecordError> {
    record::read_word(&pid_file(directory))
}

/// The file that is there if the domain was stopped because its system rebooted again and again.
pub(crate) fn reboot_loop(directory: &Path) -> PathBuf {
    directory.join("reboot-loop")
}

/// Where the supervisor notes its process.
pub(crate) fn pid_file(directory: &Path) -> PathBuf {
    directory.join("supervisor")
}
