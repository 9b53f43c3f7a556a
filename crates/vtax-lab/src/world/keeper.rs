//! The keeper: a process of an unprivileged user that does nothing but hold the namespaces in which
//! that user's kept labs live.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use vtax_sys::{
    background,
    process::{Pid, ProcessId},
    record, userns,
};

use super::run_directory;
use crate::error::LabError;

/// The argument that turns vtax into a keeper.
const VERB: &str = "lab-keeper";
/// A keeper without labs waits this long for its first.
const GRACE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(300);

/// The keeper, if it lives.
pub(super) fn living(run: &Path) -> Result<Option<ProcessId>, LabError> {
    Ok(record::read_word::<ProcessId>(&file(run))?.filter(|keeper| lives(*keeper)))
}

/// Returns whether a keeper holds its namespaces. A killed one doesn't, even while its number waits to be reaped.
pub(crate) fn lives(keeper: ProcessId) -> bool {
    // An error means that waiting failed. It says nothing about the keeper.
    !keeper.wait_end(Duration::ZERO).unwrap_or_else(|_| !keeper.exists())
}

/// Restarts this program as a keeper.
pub(super) fn start(run: &Path) -> Result<ProcessId, LabError> {
    let failed = |why: String| LabError::Keeper { why };
    let program = env::current_exe().map_err(|error| failed(format!("has no program ({error})")))?;
    let mut command = Command::new(program);
    command.arg(VERB);
    background::start(command).map_err(failed)?;
    living(run)?.ok_or_else(|| failed("has just exited".to_owned()))
}

/// Enters a user namespace and becomes the keeper. Returns the run-time directory with the keeper's number.
pub(super) fn begin() -> Result<(PathBuf, ProcessId), LabError> {
    let run = run_directory::of_user()?;
    let own = ProcessId::of(Pid::own()).map_err(LabError::kernel("the keeper"))?;
    userns::enter_own().map_err(|error| LabError::Privilege(Box::new(error)))?;
    // Only now: a process that reads the keeper's name joins its namespaces immediately.
    register(&run, own)?;
    background::say_ready();
    Ok((run, own))
}

pub(super) fn stay(run: &Path, is_needed: impl Fn() -> Result<bool, LabError>) -> Result<(), LabError> {
    let begun = Instant::now();
    let mut was_needed = false;
    loop {
        thread::sleep(GLANCE);
        // A process that is about to build a lab holds this lock. It will notice that the keeper has exited.
        let _admission = run_directory::lock(run)?;
        let needed = is_needed()?;
        if !needed && (was_needed || begun.elapsed() > GRACE) {
            let path = file(run);
            return fs::remove_file(&path).map_err(LabError::file("remove", &path));
        }
        was_needed |= needed;
    }
}

fn register(run: &Path, own: ProcessId) -> Result<(), LabError> {
    let _admission = run_directory::lock(run)?;
    if living(run)?.is_some() {
        return Err(LabError::Keeper { why: "is already running".to_owned() });
    }
    Ok(record::replace(&file(run), own.to_string().as_bytes())?)
}

fn file(run: &Path) -> PathBuf {
    run.join("keeper")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_unreaped_keeper_is_dead() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a program");
        let keeper = ProcessId::of(Pid(child.id())).expect("it runs");
        assert!(lives(keeper));
        child.kill().expect("it is ours");
        keeper.wait_end(Duration::from_secs(2)).expect("it ends");
        assert!(keeper.exists(), "a zombie");
        assert!(!lives(keeper));
        child.wait().expect("it is ours");
        assert!(!lives(keeper));
    }
}
