//! Errors of a login by ssh.

use std::io;

use vtax_model::foreign::ForeignText;

use crate::{
    carry::{AgentCarryError, CarryBreak, CarryStep},
    link::AgentError,
};

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

/// The reason why there is no agent on a remote host.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum SshError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] SshHostError),
    #[error("cannot reach {host}: cannot start `{program}`: {source}; install the OpenSSH client")]
    #[diagnostic(code("no-ssh-client"))]
    Start { program: String, host: String, source: io::Error },
    #[error("{step} at {host} {cause}{}", said(host, step, words))]
    #[diagnostic(code("ssh-failed"))]
    Broken { host: String, step: CarryStep, cause: CarryBreak, words: ForeignText },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Carry(AgentCarryError),
}

impl SshError {
    pub(super) fn at(host: &str, error: AgentCarryError) -> SshError {
        let host = host.to_owned();
        match error {
            AgentCarryError::Start { program, source } => SshError::Start { program, host, source },
            AgentCarryError::Broken { step, cause, words } => SshError::Broken { host, step, cause, words },
            error => SshError::Carry(error),
        }
    }
}

impl From<AgentError> for SshError {
    fn from(error: AgentError) -> SshError {
        SshError::Carry(error.into())
    }
}

/// The last output and a remedy. If the user can't log in to the host, their own ssh says more.
fn said(host: &str, step: &CarryStep, words: &ForeignText) -> String {
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    match step {
        CarryStep::Login => format!("{words}; try `ssh -o BatchMode=yes {host} true`"),
        CarryStep::Copy => words,
    }
}
