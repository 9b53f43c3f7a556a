//! Starts an agent in a place where none needs to be installed, through a command that runs a shell script there: `ssh`
//! for another host, `kubectl exec` for a container.
//!
//! The script looks for a vtax-agent of exactly this version. If there is none, it requests a copy, receives the bytes
//! on standard input and starts it. The copy removes its own file when it starts (`carried` in vtax-agent).
//!
//! The script reports its progress in lines that begin with a mark unique to this start; all other lines are ignored.
//! No bytes of the protocol are sent before the script has started the agent, so no tool of the script can read them
//! ahead.

mod error;
mod pipes;
mod program;
mod script;

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use vtax_model::foreign::ForeignText;

pub use error::{AgentCarryError, CarryBreak, CarryStep};
use pipes::{PipeError, Pipes};
use program::AgentProgram;
pub use script::CarryScript;
use script::ScriptProgress;

use crate::{
    link::{AgentLink, AgentStream, Past},
    protocol::version_line,
};

/// Limit of other output before each report of the script, in bytes.
const NOISE_MOST: usize = 64 << 10;
/// Maximum number of copies that are sent: one per directory that the script tries.
const COPIES_MOST: usize = 5;

/// An agent to start in another place.
#[derive(Debug, Clone, Copy)]
pub struct CarriedAgent<'a> {
    /// Name of the place in errors, e.g. a host's name.
    pub place: &'a str,
    /// Name of the agent in errors, e.g. `ssh:vm1`.
    pub name: &'a str,
    /// Agent program on this machine, which is copied if the place has none of this version.
    pub program: &'a Path,
    /// Time limit for each step. While the copy is sent, it restarts with each piece.
    pub deadline: Duration,
}

impl CarriedAgent<'_> {
    /// Starts the agent through a command that runs the script there. Uses the agent in the PATH there if it has this
    /// version, otherwise a copy, whose file the agent removes.
    pub fn start(self, command: impl FnOnce(&CarryScript) -> Command) -> Result<AgentLink, AgentCarryError> {
        let program = AgentProgram::read(self.program, self.deadline)?;
        let script = CarryScript::new(&version_line(), program.bytes.len());
        let pipes = started(command(&script))?;
        let carrier = Carrier { agent: self, program: &program, script: &script, pipes };
        let Pipes { process, stdout, stdin, unread, .. } = carrier.proceed()?;
        let unread = unread.into_inner();
        let (reader, writer) = (stdout.into(), stdin.into());
        let stream = AgentStream { reader, unread, writer, process, past: Past::None };
        Ok(AgentLink::greet(self.name, stream, self.deadline)?)
    }
}

/// Starts a command in its own process group, so that Ctrl-C in a terminal reaches only vtax, which stops its agents in
/// order.
fn started(mut command: Command) -> Result<Pipes, AgentCarryError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        AgentCarryError::Start { program, source }
    })?;
    Ok(Pipes::of(child).expect("all three streams of the child were piped above"))
}

/// A script that is running.
struct Carrier<'a> {
    agent: CarriedAgent<'a>,
    program: &'a AgentProgram,
    script: &'a CarryScript,
    pipes: Pipes,
}

impl Carrier<'_> {
    /// Answers the script until it has started an agent, which then waits for a greeting.
    fn proceed(mut self) -> Result<Pipes, AgentCarryError> {
        let mut step = CarryStep::Login;
        for _ in 0..=COPIES_MOST {
            match self.progress(step)? {
                ScriptProgress::Starts => return Ok(self.pipes),
                ScriptProgress::Wants { system, machine } => self.check_machine(&system, &machine)?,
                ScriptProgress::NoPlace { tried } => return Err(self.no_place(tried)),
            }
            step = CarryStep::Copy;
            let sent = self.pipes.write(&self.program.bytes, self.agent.deadline);
            sent.map_err(|error| self.blame(step, error, &[]))?;
        }
        Err(self.no_place(" it asks for one copy after another".to_owned()))
    }

    /// Waits for the script's next line, and skips other output before it.
    fn progress(&mut self, step: CarryStep) -> Result<ScriptProgress, AgentCarryError> {
        let until = Instant::now() + self.agent.deadline;
        let mut noise = Vec::new();
        while noise.len() <= NOISE_MOST {
            match self.pipes.line(NOISE_MOST, until) {
                Ok(line) => match self.script.progress(&line) {
                    Some(progress) => return Ok(progress),
                    None => noise.extend(line),
                },
                Err(error) => return Err(self.blame(step, error, &noise)),
            }
        }
        Err(self.blame(step, PipeError::TooLong(vec![]), &noise))
    }

    fn place(&self) -> String {
        self.agent.place.to_owned()
    }

    fn check_machine(&self, system: &str, machine: &str) -> Result<(), AgentCarryError> {
        if system == "Linux" && self.program.runs_on(machine) {
            return Ok(());
        }
        let theirs = format!("{system} on {machine}").into();
        Err(AgentCarryError::Machine { place: self.place(), theirs, ours: self.program.machine() })
    }

    fn no_place(&self, tried: String) -> AgentCarryError {
        AgentCarryError::NoPlace { place: self.place(), tried: tried.into() }
    }

    /// Returns the error, with the output that arrived instead of the script's next report.
    fn blame(&self, step: CarryStep, error: PipeError, noise: &[u8]) -> AgentCarryError {
        let cause = match error {
            PipeError::Late => CarryBreak::Silent(self.agent.deadline),
            PipeError::Ended => CarryBreak::Ended(self.pipes.process.status_soon()),
            PipeError::Io(source) => CarryBreak::Stream(source),
            PipeError::TooLong(line) => {
                let start = quoted(&[noise, &line].concat()).into();
                return AgentCarryError::Noise { place: self.place(), start };
            }
        };
        AgentCarryError::Broken { step, cause, words: self.words(noise) }
    }

    fn words(&self, noise: &[u8]) -> ForeignText {
        let words = self.pipes.process.last_words();
        if words.is_empty() { quoted(noise.trim_ascii()).into() } else { words }
    }
}

/// Returns the beginning of an output, which helps to identify the program that printed it.
fn quoted(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}
