//! The errors of an agent, as its coordinator sees them.

use std::{fmt, io, path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};
use vtax_model::{foreign::ForeignText, units::ByteSize};

use crate::{
    frame::FrameError,
    protocol::{Fault, FaultKind, Greeting},
};

/// An agent that couldn't be started or reached, was lost, or didn't do what it was asked. Each message names
/// the agent.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum AgentError {
    #[error("cannot start the agent of {name}: `{program}`: {source}")]
    #[diagnostic(code("agent-not-started"))]
    Start { name: String, program: String, source: io::Error },
    #[error(
        "the agent of {name} was started without pipes for its standard input and output; start it with Stdio::piped()"
    )]
    #[diagnostic(code("defect"))]
    NotPiped { name: String },
    #[error("the agent of {name} is unreachable at {}: {why}; is its guest running?", path.display())]
    #[diagnostic(code("agent-unreachable"))]
    NoSocket { name: String, path: PathBuf, why: io::Error },
    #[error("no file descriptor for the link to the agent of {name}: {source}")]
    #[diagnostic(code("too-many-files"))]
    Descriptor { name: String, source: io::Error },
    #[error("cannot start a thread for the agent of {name}: {source}")]
    #[diagnostic(code("too-many-threads"))]
    Thread { name: String, source: io::Error },
    #[error("the agent of {name} did not answer the greeting within {}{}", time(*deadline), quoted(stderr))]
    #[diagnostic(code("not-in-time"))]
    Silent { name: String, deadline: Duration, stderr: ForeignText },
    #[error("the agent of {name} is vtax-agent {} (protocol {}), this is vtax {} (protocol {}); install the same version of both", theirs.version, theirs.protocol, ours.version, ours.protocol)]
    #[diagnostic(code("agent-version"))]
    OtherVersion { name: String, ours: Greeting, theirs: Greeting },
    #[error("the agent of {name} exited: {death}")]
    #[diagnostic(code("agent-lost"))]
    Died { name: String, death: Death },
    #[error("the agent of {name} did not answer `{what}` within {}", time(*deadline))]
    #[diagnostic(code("not-in-time"))]
    Deadline { name: String, what: &'static str, deadline: Duration },
    #[error("the agent of {name} failed to {what}: {fault}")]
    #[diagnostic(forward(fault))]
    Refused { name: String, what: &'static str, fault: Fault },
    #[error(
        "the agent of {name} answered `{what}` with an unexpected kind of reply; this is a bug in vtax, please report it"
    )]
    #[diagnostic(code("defect"))]
    OddReply { name: String, what: &'static str },
    #[error(
        "the agent of {name} has not read {waiting} of earlier requests; is it stopped, or the connection interrupted?"
    )]
    #[diagnostic(code("not-in-time"))]
    Backlog { name: String, waiting: ByteSize },
    #[error("cannot send the request to the agent of {name}: {source}")]
    #[diagnostic(code("order-too-large"))]
    Unsendable { name: String, source: FrameError },
}

impl AgentError {
    /// Returns true if the call was merely cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, AgentError::Refused { fault: Fault { kind: FaultKind::Cancelled, .. }, .. })
    }

    /// Returns true if the agent can no longer be used.
    pub fn is_death(&self) -> bool {
        matches!(self, AgentError::Died { .. })
    }
}

/// The way an agent was lost.
#[derive(Debug, Clone)]
pub struct Death {
    /// The error of the stream. `None` if it simply ended.
    pub stream: Option<Arc<FrameError>>,
    /// The exit status of its process, if it has one here that has ended.
    pub status: Option<ExitStatus>,
    /// The end of its standard error.
    pub stderr: ForeignText,
}

/// The exit status of a shell, and so of `ssh`, if there is no such command.
const NOT_FOUND: i32 = 127;

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.stream, &self.status) {
            (Some(error), Some(status)) => write!(f, "{error} ({status})")?,
            (Some(error), None) => write!(f, "{error}")?,
            (None, Some(status)) => write!(f, "its process ended ({status})")?,
            (None, None) => f.write_str("it closed its control stream")?,
        }
        f.write_str(&quoted(&self.stderr))?;
        match self.status.and_then(|status| status.code()) {
            Some(NOT_FOUND) => f.write_str("; install vtax-agent there, in a directory of the PATH"),
            _ => Ok(()),
        }
    }
}

/// Formats a deadline: `50 ms`, `20.7 s`.
fn time(deadline: Duration) -> String {
    match deadline < Duration::from_secs(1) {
        true => format!("{} ms", deadline.as_millis()),
        false => format!("{:.1} s", deadline.as_secs_f64()),
    }
}

fn quoted(stderr: &ForeignText) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it printed: {stderr}") }
}
