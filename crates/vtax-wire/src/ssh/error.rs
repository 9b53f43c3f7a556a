//! Errors before an agent on another host can be greeted.

use std::{fmt, io, path::PathBuf, process::ExitStatus, time::Duration};
use vtax_model::foreign::ForeignText;

use crate::link::AgentError;

/// A host name that must not be passed to ssh.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum SshHostError {
    #[error("empty remote host name; use ssh's syntax: HOST or USER@HOST")]
    #[diagnostic(code("bad-name"))]
    Empty,
    #[error("invalid remote host `{host}`: user and host names cannot start with `-`")]
    #[diagnostic(code("bad-name"))]
    Option { host: String },
    #[error("invalid remote host `{}`: it contains a space or a control character", host.escape_debug())]
    #[diagnostic(code("bad-name"))]
    Character { host: String },
}

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshStep {
    /// The login. It ends with the first line of the script on the host.
    Login,
    /// The copy of the agent. It ends when the copy is started.
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

/// The reason why there is no agent on a remote host.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum SshError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] SshHostError),
    #[error("cannot read the agent for remote hosts, {}: {source}", path.display())]
    #[diagnostic(code("file"))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not the agent of this vtax: {found}; specify the vtax-agent of the same build", path.display())]
    #[diagnostic(code("no-agent-program"))]
    OtherProgram { path: PathBuf, found: ForeignText },
    #[error("cannot reach {host}: cannot start `{program}`: {source}; install the OpenSSH client")]
    #[diagnostic(code("no-ssh-client"))]
    Start { program: String, host: String, source: io::Error },
    #[error("{stage} at {host} failed{}{}", ended(status), said(host, stage, words))]
    #[diagnostic(code("ssh-failed"))]
    Ended { host: String, stage: SshStep, status: Option<ExitStatus>, words: ForeignText },
    #[error("{stage} at {host} made no progress for {deadline:?}{}", said(host, stage, words))]
    #[diagnostic(code("ssh-failed"))]
    Silent { host: String, stage: SshStep, deadline: Duration, words: ForeignText },
    #[error("{stage} at {host} failed: {source}")]
    #[diagnostic(code("ssh-failed"))]
    Stream { host: String, stage: SshStep, source: io::Error },
    #[error(
        "{host} prints more than 64 KiB before it runs vtax's command, starting with \"{start}\"; check the output of its login scripts without a terminal"
    )]
    #[diagnostic(code("unexpected-output"))]
    Noise { host: String, start: ForeignText },
    #[error(
        "{host} is {theirs}, but the agent here is for Linux on {ours}; install a vtax-agent of this version built for it there, in a directory in PATH"
    )]
    #[diagnostic(code("other-architecture"))]
    Machine { host: String, theirs: ForeignText, ours: String },
    #[error(
        "{host} has no place for the agent:{tried}; free space in one of them (it takes 3 MB, and must be executable), or install vtax-agent there in a directory in PATH"
    )]
    #[diagnostic(code("no-place-for-agent"))]
    NoPlace { host: String, tried: ForeignText },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Agent(#[from] AgentError),
}

fn ended(status: &Option<ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}

/// The last output and a remedy. If the user can't log in to the host, their own ssh says more.
fn said(host: &str, stage: &SshStep, words: &ForeignText) -> String {
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    match stage {
        SshStep::Login => format!("{words}; try `ssh -o BatchMode=yes {host} true`"),
        SshStep::Copy => words,
    }
}
