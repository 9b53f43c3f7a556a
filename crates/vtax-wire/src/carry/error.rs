//! Errors before an agent in another place can be greeted.

use std::{fmt, io, path::PathBuf, process::ExitStatus, time::Duration};
use vtax_model::foreign::ForeignText;

use crate::link::AgentError;

/// Step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarryStep {
    /// Login, or start of the shell in a container. It ends with the first report of the script.
    Login,
    /// Transfer of the agent. It ends when the script has started the copy, or requests it for another directory.
    Copy,
}

impl fmt::Display for CarryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CarryStep::Login => "the login",
            CarryStep::Copy => "the copy of the agent",
        })
    }
}

/// Reason why the command that runs the script cannot be used any longer.
#[derive(Debug)]
pub enum CarryBreak {
    /// It ended, with this status if known.
    Ended(Option<ExitStatus>),
    /// It made no progress for this time.
    Silent(Duration),
    /// Reading or writing its streams failed.
    Stream(io::Error),
}

/// Format: what happened, as the rest of a sentence that begins with the step.
impl fmt::Display for CarryBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CarryBreak::Ended(Some(status)) => write!(f, "failed ({status})"),
            CarryBreak::Ended(None) => f.write_str("failed"),
            CarryBreak::Silent(deadline) => write!(f, "made no progress for {deadline:?}"),
            CarryBreak::Stream(source) => write!(f, "failed: {source}"),
        }
    }
}

/// Reason why no agent could be started in another place.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum AgentCarryError {
    #[error("cannot read the agent for remote hosts, {}: {source}", path.display())]
    #[diagnostic(code("file"))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not the agent of this vtax: {found}; specify the vtax-agent of the same build", path.display())]
    #[diagnostic(code("no-agent-program"))]
    OtherProgram { path: PathBuf, found: ForeignText },
    #[error("cannot start `{program}`: {source}")]
    #[diagnostic(code("program-not-started"))]
    Start { program: String, source: io::Error },
    #[error("{step} {cause}: {words}")]
    #[diagnostic(code("agent-not-started"))]
    Broken { step: CarryStep, cause: CarryBreak, words: ForeignText },
    #[error(
        "{place} prints more than 64 KiB before it runs vtax's command, starting with \"{start}\"; check the output of its login scripts without a terminal"
    )]
    #[diagnostic(code("unexpected-output"))]
    Noise { place: String, start: ForeignText },
    #[error(
        "{place} is {theirs}, but the agent here is for Linux on {ours}; install a vtax-agent of this version built for it there, in a directory in PATH"
    )]
    #[diagnostic(code("other-architecture"))]
    Machine { place: String, theirs: ForeignText, ours: String },
    #[error(
        "{place} has no place for the agent:{tried}; free space in one of them (it takes 3 MB, and must be executable), or install vtax-agent there in a directory in PATH"
    )]
    #[diagnostic(code("no-place-for-agent"))]
    NoPlace { place: String, tried: ForeignText },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Agent(#[from] AgentError),
}
