//! Errors of samples.

use vtax_model::{endpoint::End, measurement::EndReport};

use crate::link::AgentError;

/// A sample that failed or is incomplete.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[error("{cause}")]
#[diagnostic(forward(cause))]
pub struct MeasureError {
    pub pair: usize,
    pub cause: Box<SampleFailure>,
    pub partial: Vec<Partial>,
}

/// Reports of the two endpoints of a pair whose sample ended early. These are no figures for a result,
/// because the measured time wasn't over, at least at one end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Partial {
    pub initiator: Option<Box<EndReport>>,
    pub responder: Option<Box<EndReport>>,
}

impl Partial {
    /// Returns true if neither end had reported anything.
    pub fn is_empty(&self) -> bool {
        self.initiator.is_none() && self.responder.is_none()
    }
}

/// The reason why a sample was not taken.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum SampleFailure {
    #[error("{error}{}", other.as_ref().map(|other| format!("; and {other}")).unwrap_or_default())]
    #[diagnostic(forward(error))]
    End { end: End, error: AgentError, other: Option<Box<AgentError>> },
    #[error(
        "the file that arrived at {responder} has the checksum {received:016x}, the one that {initiator} sent has {sent:016x}: the path or a disk has corrupted it"
    )]
    #[diagnostic(code("file-differs"))]
    Checksum { initiator: String, responder: String, sent: u64, received: u64 },
    #[error("the agent of {agent} reports nothing about the file of its test; this is a bug in vtax, please report it")]
    #[diagnostic(code("defect"))]
    NoFile { agent: String },
}

impl SampleFailure {
    pub(super) fn alone(end: End, error: AgentError) -> SampleFailure {
        SampleFailure::End { end, error, other: None }
    }
}

impl MeasureError {
    /// Returns true if the sample was cancelled, for example by Ctrl-C, and nothing else failed. The second end to be
    /// cancelled may report instead that the first one is gone. So the caller must remember that it cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(&*self.cause, SampleFailure::End { error, other: None, .. } if error.is_cancelled())
    }

    /// Returns true if an agent was lost, so that no more samples can be taken with it.
    pub fn is_death(&self) -> bool {
        let dead = |error: &AgentError| error.is_death();
        matches!(&*self.cause, SampleFailure::End { error, other, .. } if dead(error) || other.as_deref().is_some_and(dead))
    }
}
