//! Pairs that are measured at the same time, and their results.

use std::{collections::BTreeSet, fmt, time::Duration};

use vtax_model::measurement::EndReport;

use super::AgentId;
use crate::{
    clock::Offset,
    link::AgentError,
    measure::{Partial, SampleFailure, SampleOrder},
};

/// A pair of a wave; the caller chooses the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(pub u64);

impl fmt::Display for PairId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Two agents of a pool, and the sample to be taken with them.
#[derive(Debug, Clone)]
pub struct WavePair {
    pub id: PairId,
    pub initiator: AgentId,
    pub responder: AgentId,
    pub order: SampleOrder,
}

/// Pairs that can be measured concurrently: no agent is in two of them, and all take equally long.
#[derive(Debug, Clone)]
pub struct Wave(Vec<WavePair>);

/// The reason why pairs can't be measured concurrently.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum WaveError {
    #[error("the agent {agent} is in two pairs of a wave; this is a bug in vtax, please report it")]
    #[diagnostic(code("defect"))]
    AgentTwice { agent: AgentId },
    #[error("two pairs of a wave have the number {pair}; this is a bug in vtax, please report it")]
    #[diagnostic(code("defect"))]
    PairTwice { pair: PairId },
    #[error("the pairs of a wave measure for different times; this is a bug in vtax, please report it")]
    #[diagnostic(code("defect"))]
    Times,
    #[error("a pair of a wave is interleaved with others or sends a file; this is a bug in vtax, please report it")]
    #[diagnostic(code("defect"))]
    Untimed,
}

impl Wave {
    /// Checks the pairs. If one measured longer than another, the other's report would cross its network in the
    /// meantime.
    pub fn new(pairs: Vec<WavePair>) -> Result<Wave, WaveError> {
        let (mut agents, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for pair in &pairs {
            if let Some(agent) = [pair.initiator, pair.responder].into_iter().find(|agent| !agents.insert(*agent)) {
                return Err(WaveError::AgentTwice { agent });
            }
            if !ids.insert(pair.id) {
                return Err(WaveError::PairTwice { pair: pair.id });
            }
            if pair.order.turns.is_some() || pair.order.spec.workload.kind().is_file() {
                return Err(WaveError::Untimed);
            }
        }
        let time = |pair: &WavePair| (pair.order.spec.warmup, pair.order.spec.duration);
        if pairs.windows(2).any(|two| time(&two[0]) != time(&two[1])) {
            return Err(WaveError::Times);
        }
        Ok(Wave(pairs))
    }

    /// The pairs in their given order.
    pub fn pairs(&self) -> &[WavePair] {
        &self.0
    }
}

/// The reports of both agents of a pair.
#[derive(Debug, Clone, PartialEq)]
pub struct PairSample {
    pub initiator: EndReport,
    pub responder: EndReport,
    pub times: PairTimes,
}

/// When a pair sent its first message and when its measured time ended, according to its initiator, in nanoseconds of
/// this machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairTimes {
    pub from_ns: u64,
    pub to_ns: u64,
    /// The largest error of both times: the initiator's clock is a different one.
    pub uncertainty: Duration,
}

impl PairTimes {
    /// Returns true if the other pair definitely measured at the same time, if only briefly.
    pub fn surely_overlaps(&self, other: &PairTimes) -> bool {
        let slack = nanoseconds(self.uncertainty.saturating_add(other.uncertainty));
        let common = self.to_ns.min(other.to_ns).saturating_sub(self.from_ns.max(other.from_ns));
        common > slack
    }

    /// Returns true if the other pair may have measured at the same time.
    pub fn may_overlap(&self, other: &PairTimes) -> bool {
        let slack = nanoseconds(self.uncertainty.saturating_add(other.uncertainty));
        self.from_ns.max(other.from_ns) <= self.to_ns.min(other.to_ns).saturating_add(slack)
    }
}

impl PairSample {
    pub(super) fn new(initiator: EndReport, responder: EndReport, clock: Offset) -> PairSample {
        let took = Duration::try_from_secs_f64(initiator.warmup.seconds + initiator.seconds).unwrap_or(Duration::MAX);
        let from_ns = clock.ours(initiator.started_ns);
        let to_ns = from_ns.saturating_add(nanoseconds(took));
        let times = PairTimes { from_ns, to_ns, uncertainty: clock.uncertainty() };
        PairSample { initiator, responder, times }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The reason why a pair of a wave has no sample.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum PairFailure {
    #[error("the agent {agent} was never connected; this is a bug in vtax, please report it")]
    #[diagnostic(code("defect"))]
    NotConnected { agent: AgentId },
    #[error("the agent of {name} has not reported yet that its previous test has ended")]
    #[diagnostic(code("not-in-time"))]
    NotStopped { agent: AgentId, name: String },
    #[error("{error}")]
    #[diagnostic(forward(error))]
    NotReady {
        error: Box<AgentError>,
        /// The agents that are gone.
        lost: Vec<AgentId>,
    },
    #[error("{cause}")]
    #[diagnostic(forward(cause))]
    Sample {
        cause: Box<SampleFailure>,
        partial: Box<Partial>,
        /// The agents that are gone.
        lost: Vec<AgentId>,
        /// The agents that haven't said that the sample has ended. Until they do, they aren't measured again.
        not_stopped: Vec<AgentId>,
    },
}

impl PairFailure {
    /// Returns the agents of the pair that are gone.
    pub fn lost(&self) -> &[AgentId] {
        match self {
            PairFailure::NotConnected { .. } | PairFailure::NotStopped { .. } => &[],
            PairFailure::NotReady { lost, .. } | PairFailure::Sample { lost, .. } => lost,
        }
    }

    /// Returns the agents of the pair that may still be measuring.
    pub fn not_stopped(&self) -> &[AgentId] {
        match self {
            PairFailure::NotConnected { .. } | PairFailure::NotReady { .. } => &[],
            PairFailure::NotStopped { agent, .. } => std::slice::from_ref(agent),
            PairFailure::Sample { not_stopped, .. } => not_stopped,
        }
    }
}
