//! Starts an agent on a remote host, which need not have one installed.
//!
//! The user's own ssh logs in, so names, keys, ports and jump hosts come from `~/.ssh/config`. Only what a control
//! stream requires is set: no terminal, because it would alter bytes, and no prompts.
//!
//! ssh runs a script there that looks for a vtax-agent of exactly this version. If there is none, the script
//! asks for one, gets its bytes on standard input and starts it. The copy removes itself when it starts (`carried` in
//! vtax-agent).
//!
//! The script reports its progress in lines that begin with a mark unique to this login; all other lines are ignored.
//! No bytes of the protocol are sent before the script is done, so a tool that reads ahead can't swallow any.

mod error;
mod pipes;
mod program;
mod script;

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use vtax_model::foreign::ForeignText;

pub use error::{SshError, SshHostError, SshStep};
use pipes::{PipeError, Pipes};
use program::AgentProgram;
use script::{Script, ScriptProgress};

use crate::{
    link::{AgentLink, AgentStream, Past},
    protocol::version_line,
};

/// Limit of other output before the script's first report, in bytes.
const NOISE_MOST: usize = 64 << 10;
/// Maximum number of copies sent: one per place that the script tries.
const COPIES_MOST: usize = 5;

/// Logs in to `host`, as ssh interprets it, and starts an agent there. It uses the agent in the PATH if that has this
/// version, or else a copy of `program` that leaves no trace.
///
/// `deadline` applies to each stage, and starts again with every part of the copy that is sent.
pub fn connect(host: &str, program: &Path, deadline: Duration) -> Result<AgentLink, SshError> {
    Ssh::user().connect(host, program, deadline)
}

/// Checks that it is safe to pass this name to ssh.
pub fn check(host: &str) -> Result<(), SshHostError> {
    let owned = || host.to_owned();
    if host.is_empty() {
        return Err(SshHostError::Empty);
    }
    if host.split('@').any(|part| part.starts_with('-')) {
        return Err(SshHostError::Option { host: owned() });
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(SshHostError::Character { host: owned() });
    }
    Ok(())
}

/// A program that runs a command on another host.
#[derive(Debug, Clone)]
pub struct Ssh {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Ssh {
    /// The user's own ssh.
    pub fn user() -> Ssh {
        Ssh::by("ssh", ["-T", "-o", "BatchMode=yes"])
    }

    /// Another program. After these arguments it gets the host and the command, like ssh.
    pub fn by<A: Into<OsString>>(program: impl Into<OsString>, arguments: impl IntoIterator<Item = A>) -> Ssh {
        Ssh { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// Returns an ssh that gives up within 10 s if the host doesn't answer, or stops answering. Otherwise TCP would
    /// wait for about a quarter of an hour.
    pub fn noticing_cuts(mut self) -> Ssh {
        let options = ["ConnectTimeout=10", "ServerAliveInterval=3", "ServerAliveCountMax=3"];
        self.arguments.extend(options.iter().flat_map(|option| ["-o".into(), option.into()]));
        self
    }

    /// Returns ssh with a command for the remote host's login shell.
    pub fn remote(&self, host: &str, words: impl AsRef<OsStr>) -> Result<Command, SshHostError> {
        check(host)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(host).arg(words);
        Ok(command)
    }

    /// See [`connect`].
    pub fn connect(&self, host: &str, program: &Path, deadline: Duration) -> Result<AgentLink, SshError> {
        check(host)?;
        let program = AgentProgram::read(program, deadline)?;
        let script = Script::new(&version_line(), program.bytes.len());
        let name = format!("ssh:{host}");
        let pipes = self.start(host, &script)?;
        let login = Login { host, program: &program, script: &script, deadline, pipes };
        let Pipes { process, stdout, stdin, unread, .. } = login.proceed()?;
        let unread = unread.into_inner();
        let (reader, writer) = (stdout.into(), stdin.into());
        Ok(AgentLink::greet(&name, AgentStream { reader, unread, writer, process, past: Past::None }, deadline)?)
    }

    /// Starts it in its own process group: Ctrl-C in a terminal is for vtax, which stops its agents in order.
    fn start(&self, host: &str, script: &Script) -> Result<Pipes, SshError> {
        let mut command = self.remote(host, script.command())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().map_err(|source| SshError::Start {
            program: self.program.to_string_lossy().into_owned(),
            host: host.to_owned(),
            source,
        })?;
        Ok(Pipes::of(child).expect("all three streams of the child were piped two lines above"))
    }
}

/// A login whose script is running.
struct Login<'a> {
    host: &'a str,
    program: &'a AgentProgram,
    script: &'a Script,
    deadline: Duration,
    pipes: Pipes,
}

impl Login<'_> {
    /// Answers the script until it has started an agent, which then waits for a greeting.
    fn proceed(mut self) -> Result<Pipes, SshError> {
        let mut stage = SshStep::Login;
        for _ in 0..=COPIES_MOST {
            match self.progress(stage)? {
                ScriptProgress::Starts => return Ok(self.pipes),
                ScriptProgress::Wants { system, machine } => self.check_machine(&system, &machine)?,
                ScriptProgress::NoPlace { tried } => return Err(self.no_place(tried)),
            }
            stage = SshStep::Copy;
            let sent = self.pipes.write(&self.program.bytes, self.deadline);
            sent.map_err(|error| self.blame(stage, error, &[]))?;
        }
        Err(self.no_place(" it asks for one copy after another".to_owned()))
    }

    /// Waits for the script's next line, and skips other output before it.
    fn progress(&mut self, stage: SshStep) -> Result<ScriptProgress, SshError> {
        let until = Instant::now() + self.deadline;
        let mut noise = Vec::new();
        while noise.len() <= NOISE_MOST {
            match self.pipes.line(NOISE_MOST, until) {
                Ok(line) => match self.script.progress(&line) {
                    Some(progress) => return Ok(progress),
                    None => noise.extend(line),
                },
                Err(error) => return Err(self.blame(stage, error, &noise)),
            }
        }
        Err(self.blame(stage, PipeError::TooLong(vec![]), &noise))
    }

    fn check_machine(&self, system: &str, machine: &str) -> Result<(), SshError> {
        if system == "Linux" && self.program.runs_on(machine) {
            return Ok(());
        }
        Err(SshError::Machine {
            host: self.host.to_owned(),
            theirs: format!("{system} on {machine}").into(),
            ours: self.program.machine(),
        })
    }

    fn no_place(&self, tried: String) -> SshError {
        SshError::NoPlace { host: self.host.to_owned(), tried: tried.into() }
    }

    /// The error, with the output that came instead of the script's next line.
    fn blame(&self, stage: SshStep, error: PipeError, noise: &[u8]) -> SshError {
        let host = self.host.to_owned();
        match error {
            PipeError::Late => SshError::Silent { host, stage, deadline: self.deadline, words: self.words(noise) },
            PipeError::Ended => {
                let status = self.pipes.process.status_soon();
                SshError::Ended { host, stage, status, words: self.words(noise) }
            }
            PipeError::TooLong(line) => SshError::Noise { host, start: quoted(&[noise, &line].concat()).into() },
            PipeError::Io(source) => SshError::Stream { host, stage, source },
        }
    }

    fn words(&self, noise: &[u8]) -> ForeignText {
        let words = self.pipes.process.last_words();
        if words.is_empty() { quoted(noise.trim_ascii()).into() } else { words }
    }
}

/// The beginning of an output, which helps to find out what printed it.
fn quoted(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_as_documented() {
        let script = Script::new("vtax-agent 1", 7);
        let command = Ssh::user().remote("root@sut.example", script.command()).expect("a host");
        let line: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        assert_eq!(line[..5], ["ssh", "-T", "-o", "BatchMode=yes", "root@sut.example"]);
        assert_eq!(line[5..], [&*script.command()]);
    }

    #[test]
    fn a_host_that_ssh_would_read_as_an_option_is_refused() {
        for host in ["-oProxyCommand=reboot", "root@-oProxyCommand=reboot"] {
            assert_eq!(check(host), Err(SshHostError::Option { host: host.into() }));
        }
        assert_eq!(check(""), Err(SshHostError::Empty));
        assert!(matches!(check("a b"), Err(SshHostError::Character { .. })));
        assert!(matches!(check("a\n"), Err(SshHostError::Character { .. })));
        assert_eq!(check("root@sut.example"), Ok(()));
    }
}
