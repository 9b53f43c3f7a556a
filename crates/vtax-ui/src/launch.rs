//! A study that a page starts: one at a time, as a separate vtax process.
//!
//! The run has the priority that `vtax ui` was started with, not the lowest one of the pages: a thread keeps that
//! priority and starts the process. If `vtax ui` ends for any reason, the run gets SIGHUP, so that it saves its samples
//! and restores the host as after Ctrl-C, even if it has already been cancelled.

use std::{
    fs::File,
    io,
    os::unix::{fs::FileExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Pid, Signal, kill_process},
};
use vtax_model::study::Study;
use vtax_sys::inherit::{hang_up_with_parent, reset_signals};

use super::{chosen::Chosen, key::AccessKey, machine::use_results};

/// Maximum length of the shown end of a run's messages, in bytes.
const KEPT: u64 = 8 << 10;

/// Built-in study with its options. Nothing else of a request becomes an argument of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartableStudy {
    pub(crate) id: &'static str,
    pub(crate) quick: bool,
}

impl StartableStudy {
    /// Returns the selected study; `None` if it isn't a built-in one.
    pub(crate) fn of(chosen: &Chosen) -> Option<StartableStudy> {
        let (id, _) = Study::BUILT_IN.into_iter().find(|(id, _)| *id == chosen.one("study"))?;
        Some(StartableStudy { id, quick: chosen.one("quick") == "on" })
    }

    /// Returns the arguments of vtax.
    pub(crate) fn arguments(self) -> Vec<&'static str> {
        ["run", self.id].into_iter().chain(self.quick.then_some("--quick")).collect()
    }

    /// Returns the command as a user would enter it.
    pub(crate) fn command(self) -> String {
        format!("vtax {}", self.arguments().join(" "))
    }
}

/// Reason why a study is not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    #[error("This plan is no longer current, or was started already. Open the plan again.")]
    Stale,
    #[error("A study started here is still running. Wait until it has ended, or cancel it.")]
    Busy,
    #[error("Cannot start vtax: {0}")]
    Kernel(#[from] io::Error),
}

/// Starts studies, after their plan has been shown.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// The agent program that the user has named.
    pub(crate) agent: Option<PathBuf>,
    starts: Mutex<Sender<ProcessStart>>,
    state: Mutex<LaunchState>,
}

/// Command to start, and where to send the process.
struct ProcessStart {
    command: Command,
    to: SyncSender<io::Result<Child>>,
}

#[derive(Debug, Default)]
struct LaunchState {
    /// The study whose plan was shown last, with the key that starts it once.
    offer: Option<(AccessKey, StartableStudy)>,
    run: Option<LaunchedRun>,
}

#[derive(Debug)]
struct LaunchedRun {
    study: StartableStudy,
    process: Child,
    newest_before: Option<String>,
    messages: RunMessages,
    is_cancelled: bool,
}

/// State of the study that was started last.
#[derive(Debug)]
pub(crate) struct LaunchedState {
    pub(crate) study: StartableStudy,
    /// ID of the newest run before it.
    pub(crate) newest_before: Option<String>,
    pub(crate) is_cancelled: bool,
    /// `None` while it is running.
    pub(crate) ended: Option<ExitStatus>,
    /// The end of its messages.
    pub(crate) told: String,
}

impl Launcher {
    /// Starts the thread that starts the processes. They inherit its priority, which is the present one.
    pub(crate) fn new() -> io::Result<Launcher> {
        let (sender, receiver) = channel::<ProcessStart>();
        let work = move || {
            for ProcessStart { mut command, to } in receiver {
                // Nobody waits for the process only if the request was dropped, together with this end.
                let _ = to.send(command.spawn());
            }
        };
        thread::Builder::new().name("launcher".into()).spawn(work)?;
        Ok(Launcher { agent: None, starts: Mutex::new(sender), state: Mutex::default() })
    }

    fn locked(&self) -> MutexGuard<'_, LaunchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key that starts this study once, in place of an earlier one.
    pub(crate) fn offer(&self, study: StartableStudy) -> io::Result<String> {
        let key = AccessKey::random()?;
        let text = key.text().to_owned();
        self.locked().offer = Some((key, study));
        Ok(text)
    }

    /// Starts the study that was offered with this key.
    pub(crate) fn start(
        &self,
        key: &str,
        program: &Path,
        state_dir: &Path,
        newest_before: Option<String>,
    ) -> Result<(), NotStarted> {
        let mut state = self.locked();
        if state.run.as_mut().is_some_and(|run| run.ended().is_none()) {
            return Err(NotStarted::Busy);
        }
        let Some((_, study)) = state.offer.take_if(|(offered, _)| offered.opens(key)) else {
            return Err(NotStarted::Stale);
        };
        let messages = RunMessages::new()?;
        let process = self.spawned(study, program, state_dir, &messages)?;
        state.run = Some(LaunchedRun { study, process, newest_before, messages, is_cancelled: false });
        Ok(())
    }

    fn spawned(
        &self,
        study: StartableStudy,
        program: &Path,
        state_dir: &Path,
        messages: &RunMessages,
    ) -> io::Result<Child> {
        let mut command = Command::new(program);
        command.args(study.arguments()).env("NO_COLOR", "1");
        if let Some(agent) = &self.agent {
            command.arg("--agent").arg(agent);
        }
        use_results(&mut command, state_dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages.0.try_clone()?);
        // Ctrl-C in the terminal of `vtax ui` would be a second interrupt, after which a run doesn't restore the host.
        command.process_group(0);
        reset_signals(&mut command);
        hang_up_with_parent(&mut command);
        let (to, process) = sync_channel(1);
        let gone = || io::Error::other("the thread that starts it has ended");
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.send(ProcessStart { command, to }).map_err(|_| gone())?;
        process.recv().map_err(|_| gone())?
    }

    /// Interrupts the running study as Ctrl-C does, once: after a second interrupt it would not restore the host.
    pub(crate) fn cancel(&self) -> io::Result<()> {
        let mut state = self.locked();
        let Some(run) = &mut state.run else { return Ok(()) };
        if run.ended().is_none() && !run.is_cancelled {
            run.is_cancelled = true;
            kill_process(Pid::from_child(&run.process), Signal::INT)?;
        }
        Ok(())
    }

    /// Returns the state of the study that was started last; `None` if none was started.
    pub(crate) fn state(&self) -> Option<LaunchedState> {
        let mut state = self.locked();
        let run = state.run.as_mut()?;
        // Memory can be read. Otherwise the reason is more use than no message.
        let told = run.messages.end().unwrap_or_else(|error| error.to_string());
        let (study, newest_before, is_cancelled) = (run.study, run.newest_before.clone(), run.is_cancelled);
        Some(LaunchedState { study, newest_before, is_cancelled, ended: run.ended(), told })
    }
}

impl LaunchedRun {
    fn ended(&mut self) -> Option<ExitStatus> {
        // The process is ours, so waiting for it cannot fail.
        self.process.try_wait().ok().flatten()
    }
}

/// Messages of a run, in memory. Unlike a pipe, it takes them even if `vtax ui` has ended: a run that is interrupted
/// must not fail at a message before it has restored the host.
#[derive(Debug)]
struct RunMessages(File);

impl RunMessages {
    fn new() -> io::Result<RunMessages> {
        Ok(RunMessages(File::from(memfd_create("vtax-run", MemfdFlags::CLOEXEC)?)))
    }

    /// Returns the end of the messages.
    fn end(&self) -> io::Result<String> {
        let length = self.0.metadata()?.len();
        let mut text = vec![0; length.min(KEPT) as usize];
        let read = self.0.read_at(&mut text, length.saturating_sub(KEPT))?;
        Ok(String::from_utf8_lossy(&text[..read]).trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_built_in_studies_can_be_started() {
        let of = |query: &str| StartableStudy::of(&Chosen::of(Some(query)));
        assert_eq!(of("study=demo").map(StartableStudy::command), Some("vtax run demo".into()));
        assert_eq!(of("study=demo&quick=on").map(StartableStudy::command), Some("vtax run demo --quick".into()));
        for other in
            ["", "study=", "study=--resume", "study=demo.toml", "study=demo+--disk+%2Fdev%2Fsda", "study=/tmp/x"]
        {
            assert_eq!(of(other), None, "{other}");
        }
        let odd = of("study=demo&quick=--destroy-data&disk=%2Fdev%2Fsda").expect("the study is built in");
        assert_eq!(odd.arguments(), ["run", "demo"]);
    }
}
