//! Supervisor processes as seen by others: starting, finding and ending them.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use vtax_model::topology::Name;
use vtax_sys::{
    background,
    lock::LockHolder,
    process::{Pid, ProcessId, Signal},
    record::{self, RecordError},
};

use crate::error::BindError;

/// Time within which a killed supervisor exits.
const KILLED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Starts a supervisor, and with it the domain.
pub(crate) fn start(domain: &Name, command: io::Result<Command>) -> Result<(), BindError> {
    let failed = |why: String| BindError::Supervisor { domain: domain.clone(), why };
    let command = command.map_err(|error| failed(format!("cannot find vtax's program ({error})")))?;
    background::start(command).map_err(failed)
}

/// Ends the supervisor of a domain. The domain keeps running.
pub(crate) fn end(directory: &Path) {
    if let Some(process) = recorded(directory).unwrap_or_else(|_| living(None, directory)) {
        // It may have exited on its own in the meantime.
        let _ = process.signal(Signal::KILL);
        let _ = process.wait_end(KILLED);
    }
    let _ = fs::remove_file(pid_file(directory));
}

/// Returns the supervisor of a domain, which may have exited.
pub(crate) fn recorded(directory: &Path) -> Result<Option<ProcessId>, RecordError> {
    let recorded = record::read_word(&pid_file(directory))?;
    Ok(living(recorded, directory).or(recorded))
}

/// Returns the process in a record if it lives, otherwise the one that holds a lock: the record may have been removed, or
/// truncated to another number.
pub(crate) fn living(recorded: Option<ProcessId>, locked: &Path) -> Option<ProcessId> {
    let lives = |process: &ProcessId| matches!(process.wait_end(Duration::ZERO), Ok(false));
    recorded.filter(lives).or_else(|| ProcessId::of(Pid(LockHolder::of(locked)?.pid)).ok())
}

/// Makes this process the only supervisor of a domain, until the file is closed. The previous one may be exiting.
pub(crate) fn become_only(domain: &Name, directory: &Path) -> Result<File, BindError> {
    let file = File::open(directory).map_err(BindError::file("open", directory))?;
    let until = Instant::now() + KILLED;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let other = LockHolder::of(directory).map_or("another process".to_owned(), |holder| holder.to_string());
                return Err(BindError::Supervisor {
                    domain: domain.clone(),
                    why: format!("is already running: {other}"),
                });
            }
            Err(TryLockError::Error(error)) => return Err(BindError::file("lock", directory)(error)),
        }
    }
}

/// Returns the file that exists if the domain was stopped because its system rebooted repeatedly.
pub(crate) fn reboot_loop(directory: &Path) -> PathBuf {
    directory.join("reboot-loop")
}

/// Returns the file in which the supervisor records its process.
pub(crate) fn pid_file(directory: &Path) -> PathBuf {
    directory.join("supervisor")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second supervisor would wait for QEMU's events, which only the first one gets, while the lock is held.
    #[test]
    fn a_supervisor_whose_record_was_removed_or_cut_is_found_by_its_lock() {
        let folder = tempfile::tempdir().expect("a directory");
        let (directory, domain) = (folder.path(), "mars".parse().expect("a name"));
        let own = ProcessId::of(Pid::own()).expect("it lives");
        let of_cut = |left: &str| {
            record::replace(&pid_file(directory), left.as_bytes()).expect("ours");
            recorded(directory).expect("a process")
        };
        assert!(recorded(directory).expect("no record").is_none());
        let only = become_only(&domain, directory).expect("nobody else is");
        assert_eq!(recorded(directory).expect("no record"), Some(own));
        let (whole, start) = (own.to_string(), own.to_string().find('@').expect("two numbers") + 2);
        assert!((start..=whole.len()).all(|length| of_cut(&whole[..length]) == Some(own)), "{whole}");
        let told = become_only(&domain, directory).expect_err("there is one").to_string();
        assert!(told.contains(&format!("is already running: pid {}", own.pid)), "{told}");
        drop(only);
        assert_ne!(of_cut(&whole[..start]), Some(own), "nobody holds the lock");
    }
}
