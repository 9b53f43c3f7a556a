//! What can go wrong with an agent, as its coordinator sees it.

use std::{fmt, io, path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};

use crate::{
    frame::FrameError,
    protocol::{Fault, FaultKind, Greeting},
};

/// An agent that couldn't be had, was lost, or didn't do as told. Each names the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The command couldn't be started.
    #[error("the agent of {name} can't be started: `{program}`: {source}")]
    Start {
        /// The agent.
        name: String,
        /// What was to be started.
        program: String,
        /// As the kernel says.
        source: io::Error,
    },
    /// Whoever started the process kept its streams.
    #[error(
        "the agent of {name} was started without pipes for its standard input and output; start it with Stdio::piped()"
    )]
    NotPiped {
        /// The agent.
        name: String,
    },
    /// Nobody to connect to.
    #[error("the agent of {name} can't be reached at {}: {why}; is its guest running?", path.display())]
    NoSocket {
        /// The agent.
        name: String,
        /// The host's end of its port.
        path: PathBuf,
        /// As the kernel says.
        why: io::Error,
    },
    /// No descriptor for the link.
    #[error("no further descriptor can be had for the link to the agent of {name}: {source}")]
    Descriptor {
        /// The agent.
        name: String,
        /// As the kernel says.
        source: io::Error,
    },
    /// No thread for the link.
    #[error("no thread can be started to talk to the agent of {name}: {source}")]
    Thread {
        /// The agent.
        name: String,
        /// As the kernel says.
        source: io::Error,
    },
    /// Started, but it doesn't introduce itself.
    #[error("the agent of {name} didn't answer the greeting within {deadline:?}{}", quoted(stderr))]
    Silent {
        /// The agent.
        name: String,
        /// How long it was waited for.
        deadline: Duration,
        /// The last of what it wrote to standard error.
        stderr: String,
    },
    /// Figures of two versions are not to be compared, and two protocols don't fit.
    #[error("the agent of {name} is vtax-agent {} (protocol {}), this is vtax {} (protocol {}); install the same version of both", theirs.version, theirs.protocol, ours.version, ours.protocol)]
    OtherVersion {
        /// The agent.
        name: String,
        /// This program's.
        ours: Greeting,
        /// The agent's.
        theirs: Greeting,
    },
    /// The agent, or the stream to it, is gone.
    #[error("the agent of {name} is gone: {death}")]
    Died {
        /// The agent.
        name: String,
        /// How.
        death: Death,
    },
    /// No answer in time. The agent may still be at it.
    #[error("the agent of {name} didn't answer `{what}` within {deadline:?}")]
    Deadline {
        /// The agent.
        name: String,
        /// The request.
        what: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// The agent says why it didn't.
    #[error("the agent of {name} failed to {what}: {fault}")]
    Refused {
        /// The agent.
        name: String,
        /// The request.
        what: &'static str,
        /// Its words.
        fault: Fault,
    },
    /// An answer to some other question: a defect of the agent.
    #[error("the agent of {name} gave `{what}` an answer of another kind; this is a defect of vtax, please report it")]
    OddReply {
        /// The agent.
        name: String,
        /// The request.
        what: &'static str,
    },
    /// A request that is too large to send.
    #[error("the order for the agent of {name} can't be sent: {source}")]
    Unsendable {
        /// The agent.
        name: String,
        /// Why.
        source: FrameError,
    },
}

impl AgentError {
    /// Whether this is no fault but the consequence of a cancel.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, AgentError::Refused { fault: Fault { kind: FaultKind::Cancelled, .. }, .. })
    }

    /// Whether the agent is of no more use.
    pub fn is_death(&self) -> bool {
        matches!(self, AgentError::Died { .. })
    }
}

/// How an agent was lost.
#[derive(Debug, Clone)]
pub struct Death {
    /// What was wrong with the stream; `None` if it simply ended.
    pub stream: Option<Arc<FrameError>>,
    /// How its process ended, if it has one here and that has ended.
    pub status: Option<ExitStatus>,
    /// The last of what it wrote to standard error.
    pub stderr: String,
}

/// What a shell, and so `ssh`, exits with if there is no such command.
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

fn quoted(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said: {stderr}") }
}
