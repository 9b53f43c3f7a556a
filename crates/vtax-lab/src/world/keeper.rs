//! The keeper: a process of an ordinary user that does nothing but hold the namespaces in which
//! that user's kept labs live.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use vtax_sys::{
    process::{Pid, ProcessId},
    userns,
};

use super::run_directory;
use crate::error::LabError;

/// The argument that makes a keeper of vtax.
const VERB: &str = "lab-keeper";
/// What the keeper says when its namespaces are there.
const READY: &str = "ready";
/// A keeper without labs waits this long for its first.
const GRACE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(300);

pub(super) fn living(run: &Path) -> Option<ProcessId> {
    let keeper: ProcessId = fs::read_to_string(file(run)).ok()?.trim().parse().ok()?;
    lives(keeper).then_some(keeper)
}

/// Whether a keeper holds its namespaces. A killed one doesn't, even while its number waits to be reaped.
pub(crate) fn lives(keeper: ProcessId) -> bool {
    // An error means that waiting failed. It says nothing about the keeper.
    !keeper.wait_end(Duration::ZERO).unwrap_or_else(|_| !keeper.exists())
}

/// Starts this program again as a keeper.
pub(super) fn start(run: &Path) -> Result<ProcessId, LabError> {
    let failed = |why: String| LabError::Keeper { why };
    let program = env::current_exe().map_err(|error| failed(format!("has no program ({error})")))?;
    let mut command = Command::new(program);
    command.arg(VERB).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C in the terminal that started the keeper must not end it.
    command.process_group(0);
    let child = command.spawn().map_err(|error| failed(format!("can't be started ({error})")))?;
    wait_ready(child)?;
    living(run).ok_or_else(|| failed("has just ended".to_owned()))
}

/// Waits until the keeper says that it is ready, or its output ends because it has ended.
fn wait_ready(mut child: Child) -> Result<(), LabError> {
    let mut line = String::new();
    let output = child.stdout.take().map(BufReader::new);
    let heard = output.is_some_and(|mut output| output.read_line(&mut line).is_ok());
    if heard && line.trim() == READY {
        return Ok(());
    }
    let mut told = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // If this can't be read, the exit status below still says something.
        let _ = errors.read_to_string(&mut told);
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(LabError::Keeper { why: format!("did not start ({status}): {}", told.trim()) })
}

/// Enters a user namespace and becomes the keeper. Returns the run-time directory with the keeper's number.
pub(super) fn begin() -> Result<(PathBuf, ProcessId), LabError> {
    let run = run_directory::of_user()?;
    let own = ProcessId::of(Pid::own()).map_err(LabError::kernel("the keeper"))?;
    userns::enter_own().map_err(|error| LabError::Privilege(Box::new(error)))?;
    // Only now: a process that reads the keeper's name joins its namespaces at once.
    register(&run, own)?;
    // The process that started the keeper may be gone already; the keeper stays either way.
    let _ = writeln!(std::io::stdout(), "{READY}");
    Ok((run, own))
}

pub(super) fn stay(run: &Path, is_needed: impl Fn() -> Result<bool, LabError>) -> Result<(), LabError> {
    let begun = Instant::now();
    let mut was_needed = false;
    loop {
        thread::sleep(GLANCE);
        // A process that is about to make a lab holds this lock. It finds out that the keeper has gone.
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
    if living(run).is_some() {
        return Err(LabError::Keeper { why: "lives already".to_owned() });
    }
    let path = file(run);
    fs::write(&path, own.to_string()).map_err(LabError::file("write", &path))
}

fn file(run: &Path) -> PathBuf {
    run.join("keeper")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_keeper_that_nobody_asked_for_is_dead() {
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
