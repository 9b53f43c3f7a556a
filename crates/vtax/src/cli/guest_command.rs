//! Commands in a running guest, run by its agent: `vtax lab exec`, `vtax ldm exec`.

use std::{ffi::OsString, io, thread};

use miette::miette;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
    low_level::emulate_default_handler,
};
use vtax_guest::{launch::Boot, process::Qemu};
use vtax_model::foreign::ForeignText;
use vtax_run::{labs::explain, remote_command::word, threads::start_in};
use vtax_wire::{
    limits::WATCHED_MOST,
    link::{AgentError, AgentLink},
    protocol::{FaultKind, SessionId, Signal},
};

use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    remote_command::{read_input_for, show},
};

/// The exit status that a shell reports for a program killed by a signal: SIGKILL, SIGPIPE.
const KILLED: i32 = 128 + 9;
const UNREAD: i32 = 128 + 13;

/// A guest whose agent runs a command.
pub(super) struct CommandGuest<'a> {
    /// Its kind and name, for messages: `guest web`.
    pub(super) whom: String,
    pub(super) qemu: &'a Qemu,
    /// When a program that is installed now gets into vtax's own image: `the next … includes it`.
    pub(super) renewal: String,
}

/// Stops catching signals when dropped.
pub(super) struct EndOfSignals(pub(super) Handle);

impl Drop for EndOfSignals {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns the words of a command as text, for the control protocol. `place` names where it runs.
pub(super) fn words(command: &[OsString], place: &str) -> Result<Vec<String>, Stop> {
    command.iter().map(|text| word(text.clone(), place)).collect::<miette::Result<_>>().or_input()
}

impl CommandGuest<'_> {
    /// Runs a command, prints its output, and returns its exit status. A second Ctrl-C kills the command. `connect` is
    /// called when standard input has been read.
    pub(super) fn exec(
        &self,
        command: &[String],
        connect: impl FnOnce() -> Result<AgentLink, Stop>,
    ) -> Result<Exit, Stop> {
        let input = read_input_for(&format!("a command in the {}", self.whom))?;
        let link = connect()?;
        let before = self.qemu.last_words().console;
        let mut failure = None;
        let ran = run(&link, command, &input, &mut failure).map_err(|error| self.lacking(command, error))?;
        let status = match (ran, failure) {
            (_, Some(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(error).coded("file", || "writing what the command wrote").or_infrastructure();
            }
            (Ok(status), _) => status,
            (Err(_), Some(_)) => UNREAD,
            (Err(Failed::Agent(error)), None) => return Err(Stop::infrastructure(explain(self.qemu, error))),
            (Err(Failed::Signals(error)), None) => return Err(Stop::infrastructure(error)),
        };
        if let Some(line) = self.killed_for_memory(&before).filter(|_| status == KILLED) {
            tell!("vtax: {} ran out of memory: {line}", self.whom);
        }
        Ok(Exit::Child(u8::try_from(status).unwrap_or(u8::MAX)))
    }

    /// Returns the new line on the guest's console that reports a process killed for lack of memory.
    fn killed_for_memory(&self, before: &[ForeignText]) -> Option<ForeignText> {
        let lines = self.qemu.last_words().console.into_iter();
        lines.rev().find(|line| line.raw().contains("Out of memory: Killed process") && !before.contains(line))
    }

    fn lacking(&self, command: &[String], Missing(error): Missing) -> Stop {
        let (CommandGuest { whom, renewal, .. }, program) = (self, &command[0]);
        Stop::input(match self.qemu.launch().boot {
            Boot::Kernel { .. } => miette!(
                code = "no-such-program",
                "{whom} has no program `{program}`: its image contains only vtax's agent, as /init; install a \
                 statically linked busybox (Debian: busybox-static), and {renewal}"
            ),
            Boot::Disk { .. } => {
                miette!(code = "no-such-program", "{whom} has no program `{program}`: {error}")
            }
        })
    }
}

struct Missing(AgentError);

enum Failed {
    Agent(AgentError),
    Signals(miette::Report),
}

/// Runs a program of the guest, or of busybox. `failure` is set if its output could not be written to the end.
fn run(
    link: &AgentLink,
    command: &[String],
    input: &[u8],
    failure: &mut Option<io::Error>,
) -> Result<Result<i32, Failed>, Missing> {
    let first = attend(link, command, input, failure);
    let Err(Failed::Agent(error)) = first else { return Ok(first) };
    if !is_missing(&error) {
        return Ok(Err(Failed::Agent(error)));
    }
    let by_busybox: Vec<String> = [&["/bin/busybox".to_owned()], command].concat();
    match attend(link, &by_busybox, input, failure) {
        Err(Failed::Agent(second)) if is_missing(&second) => Err(Missing(error)),
        ran => Ok(ran),
    }
}

fn attend(link: &AgentLink, command: &[String], input: &[u8], failure: &mut Option<io::Error>) -> Result<i32, Failed> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).coded("kernel", || "catching Ctrl-C").map_err(Failed::Signals)?;
    let running = link.start(command, input, WATCHED_MOST).map_err(Failed::Agent)?;
    let session = running.session();
    thread::scope(|scope| {
        let _end = EndOfSignals(signals.handle());
        start_in(scope, "signals", move || pass_on(&mut signals, link, session)).map_err(Failed::Signals)?;
        let ended = running.follow(|stream, bytes| {
            let shown = if failure.is_none() { show(stream, bytes) } else { Ok(()) };
            if let Err(error) = shown {
                *failure = Some(error);
                // If the agent exited, so did the command.
                let _ = link.cancel(session);
            }
        });
        ended.map_err(Failed::Agent)
    })
}

/// Passes the first signal to the command; the second kills it. If it cannot be reached, the third ends vtax.
fn pass_on(signals: &mut Signals, link: &AgentLink, session: SessionId) {
    for (count, number) in signals.forever().enumerate() {
        let signal = match (count, number) {
            (0, SIGINT) => Signal::Int,
            (0, _) => Signal::Term,
            (1, _) => Signal::Kill,
            _ => return drop(emulate_default_handler(number)),
        };
        // If the agent exited, the thread that follows the command notices.
        let _ = link.signal(session, signal);
    }
}

fn is_missing(error: &AgentError) -> bool {
    matches!(error, AgentError::Refused { fault, .. } if fault.kind == FaultKind::NotFound)
}
