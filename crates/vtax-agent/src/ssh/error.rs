//! What can go wrong before an agent on another host can be greeted.

use std::{fmt, io, path::PathBuf, process::ExitStatus, time::Duration};

use crate::link::AgentError;

/// A host that ssh must not be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshHostError {
    /// No name.
    #[error("the name of the remote host is empty; give it as ssh takes it: HOST or USER@HOST")]
    Empty,
    /// ssh would take it for an option, and some options run commands here.
    #[error("`{host}` is no remote host: neither a user's name nor a host's begins with `-`")]
    Option {
        /// As given.
        host: String,
    },
    /// Spaces and control characters have no place in a name.
    #[error("`{}` is no remote host: there is a space or a control character in it", host.escape_debug())]
    Character {
        /// As given.
        host: String,
    },
}

/// What was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshStep {
    /// Until the script on the host has said its first line.
    Login,
    /// Until the agent that was sent is started.
    Copy,
}

impl fmt::Display for SshStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SshStep::Login => "the login",
            SshStep::Copy => "the copy of the agent",
        })
    }
}

/// No agent on a remote host.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// The name itself.
    #[error(transparent)]
    Host(#[from] SshHostError),
    /// The agent that would be sent.
    #[error("{}, which is to be sent to remote hosts, can't be read: {source}", path.display())]
    Unreadable {
        /// On this machine.
        path: PathBuf,
        /// As the kernel says.
        source: io::Error,
    },
    /// A file that is no agent of this version.
    #[error("{} is not the agent of this vtax: {found}; name the program vtax-agent of the same build", path.display())]
    OtherProgram {
        /// On this machine.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// No ssh.
    #[error("{host} can't be reached: `{program}` can't be started: {source}; install the OpenSSH client")]
    Start {
        /// What was to be started.
        program: String,
        /// Where it was to lead.
        host: String,
        /// As the kernel says.
        source: io::Error,
    },
    /// ssh, or the shell on the host, gave up.
    #[error("{stage} at {host} failed{}{}", ended(status), said(host, stage, words))]
    Ended {
        /// As given.
        host: String,
        /// How far it had come.
        stage: SshStep,
        /// How the ssh here ended, if it has.
        status: Option<ExitStatus>,
        /// Its last words, and those of the host.
        words: String,
    },
    /// Nothing came, or went, for too long.
    #[error("{stage} at {host} stood still for {deadline:?}{}", said(host, stage, words))]
    Silent {
        /// As given.
        host: String,
        /// How far it had come.
        stage: SshStep,
        /// How long it was waited for.
        deadline: Duration,
        /// The last words of ssh and of the host.
        words: String,
    },
    /// The pipes to ssh.
    #[error("{stage} at {host} failed: {source}")]
    Stream {
        /// As given.
        host: String,
        /// How far it had come.
        stage: SshStep,
        /// As the kernel says.
        source: io::Error,
    },
    /// Somebody talks without end.
    #[error(
        "{host} prints more than 64 KiB before it runs what it is told, beginning with \"{start}\"; see what its login scripts print when they have no terminal"
    )]
    Noise {
        /// As given.
        host: String,
        /// The first bytes, escaped.
        start: String,
    },
    /// It couldn't run there.
    #[error(
        "{host} is {theirs}, and the agent here is for Linux on {ours}; put a vtax-agent of this version that was built for it there, in a directory of the PATH"
    )]
    Machine {
        /// As given.
        host: String,
        /// As its uname(1) prints it.
        theirs: String,
        /// What the agent's program was built for.
        ours: String,
    },
    /// Nowhere to put it.
    #[error(
        "{host} has no place for the agent:{tried}; make room in one of them (it takes 3 MB, and must be allowed to run), or put vtax-agent there in a directory of the PATH"
    )]
    NoPlace {
        /// As given.
        host: String,
        /// Each place, and what was wrong with it.
        tried: String,
    },
    /// It was started, but isn't to be had.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

fn ended(status: &Option<ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}

/// The last words, and what to do: with a host that the user can't log in to, his own ssh tells
/// him more.
fn said(host: &str, stage: &SshStep, words: &str) -> String {
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    match stage {
        SshStep::Login => format!("{words}; see what `ssh -o BatchMode=yes {host} true` says"),
        SshStep::Copy => words,
    }
}
