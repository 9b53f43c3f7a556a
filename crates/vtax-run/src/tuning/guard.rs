//! Guard of trial settings on this machine: a process that reverts them, whatever happens to the vtax that made them.
//!
//! That vtax may be stopped by its terminal, wait for a terminal that takes no output, or be killed. The journal
//! records what was confirmed, so the two need no connection, and a late guard does no harm.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use miette::miette;
use vtax_sys::{
    background,
    process::{Pid, ProcessId, Signal},
};
use vtax_tune::{BatchStage, Tuner};

use crate::stop::{Blamed, Coded, Stop};

/// Argument with which vtax runs as a guard.
pub const GUARD_VERB: &str = "tuning-guard";
/// Time limit for a killed process to end.
const END: Duration = Duration::from_secs(30);

/// A guard, and what it watches.
#[derive(Debug)]
pub struct TuningGuard {
    /// The vtax that tries settings out.
    pub watched: ProcessId,
    /// Directory of its journal.
    pub folder: PathBuf,
    /// Time limit.
    pub within: Duration,
}

impl TuningGuard {
    /// Starts this program again as the guard of this process, before it changes anything.
    pub fn start(folder: &Path, within: Duration) -> Result<(), Stop> {
        let own = ProcessId::of(Pid::own()).or_infrastructure()?;
        let program =
            env::current_exe().coded("kernel", || "finding the program of this process").or_infrastructure()?;
        let mut command = Command::new(program);
        command.arg(GUARD_VERB).arg(own.to_string()).arg(folder).arg(within.as_millis().to_string());
        background::start(command)
            .map_err(|why| miette!(code = "kernel", "the guard that reverts unconfirmed settings {why}"))
            .or_infrastructure()
    }

    /// Runs the guard: waits for the end of the vtax that it watches, ends it after its time, and reverts what it has
    /// left.
    pub fn watch(&self) -> Result<(), Stop> {
        background::say_ready();
        let mut tuner = Tuner::new(self.folder.clone());
        let ended = self.watched.wait_end(self.within).or_infrastructure()?;
        if !ended {
            if !is_unconfirmed(&tuner) {
                return Ok(());
            }
            self.watched.signal(Signal::KILL).or_infrastructure()?;
            self.watched.wait_end(END).or_infrastructure()?;
        }
        tuner.recover().map(drop).or_infrastructure()
    }
}

/// Returns whether there are unconfirmed changes. If that can't be read, there may be.
fn is_unconfirmed(tuner: &Tuner) -> bool {
    let status = tuner.status();
    status.map_or(true, |status| status.changes.iter().any(|change| change.state != BatchStage::Made))
}
