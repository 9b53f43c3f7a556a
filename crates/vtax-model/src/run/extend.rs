//! Extension of a run beyond its original number of rounds.

use super::{ImportedFrom, RunHeader, RunReadings, RunState, stopping_outcome};
use crate::{cell::Instrument, foreign::ForeignText, study::MigratedDomain, topology::Name};
use vtax_stats::{Decision, StatsError, StoppingRule, planning::MOST_ROUNDS};

/// Reason why a run can't have this many rounds.
#[derive(Debug, Clone, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum ExtendError {
    #[error("--samples {asked}: must be more than {planned}, the number of rounds of the run {id}")]
    #[diagnostic(code("rounds-already-planned"))]
    Complete { id: String, asked: u32, planned: u32 },
    #[error(
        "--samples {asked}: must be more than {planned}, the planned rounds of the run {id}; or omit --samples to take the missing ones"
    )]
    #[diagnostic(code("rounds-already-planned"))]
    Planned { id: String, asked: u32, planned: u32 },
    #[error(
        "--samples: the run {id} has reached the precision of --confidence and --width, so it takes no more rounds; start a new run"
    )]
    #[diagnostic(code("precision-reached"))]
    Reached { id: String },
    #[error("--samples {asked}: must be at most {MOST_ROUNDS} rounds; longer samples gain more than additional rounds")]
    #[diagnostic(code("bad-plan"))]
    TooMany { asked: u32 },
    #[error("the run {id} was measured by {program}, so vtax cannot resume it; start a new run")]
    #[diagnostic(code("run-imported"))]
    Imported { id: String, program: ForeignText },
    #[error(
        "the run {id} is one migration of the domain {domain}, which takes no more rounds: migrate a domain again, or \
         measure migrations with `vtax run migration`"
    )]
    #[diagnostic(code("run-of-domain"))]
    Domain { id: String, domain: Name },
    #[error("--samples: {0}")]
    #[diagnostic(code("bad-precision"))]
    Rule(#[from] StatsError),
}

impl RunHeader {
    /// Sets the number of rounds of the answering measurement mode. Their order is unaffected: it depends only on seed
    /// and round.
    pub fn set_rounds(&mut self, rounds: u32) {
        match (self.study.answering(), &mut self.path_plan) {
            (Instrument::Path, Some(plan)) => plan.samples = rounds,
            _ => self.plan.samples = rounds,
        }
    }
}

impl RunReadings {
    /// Returns the plan of the same run with this many rounds in all. For a stopping rule, it is the maximum.
    pub fn extended(&self, rounds: u32) -> Result<RunHeader, ExtendError> {
        let mut header = self.header.clone();
        let (id, asked, planned) = (header.id.clone(), rounds, header.rounds_of(header.study.answering()));
        if let Some(ImportedFrom { program, .. }) = header.imported {
            return Err(ExtendError::Imported { id, program });
        }
        if let Some(MigratedDomain { name, .. }) = header.study.migrations().and_then(|all| all.domain.as_ref()) {
            return Err(ExtendError::Domain { id, domain: name.clone() });
        }
        if self.has_reached_its_precision() {
            return Err(ExtendError::Reached { id });
        }
        if rounds <= planned {
            return Err(match self.state {
                RunState::Complete => ExtendError::Complete { id, asked, planned },
                RunState::Running | RunState::Stopped => ExtendError::Planned { id, asked, planned },
            });
        }
        if rounds > MOST_ROUNDS {
            return Err(ExtendError::TooMany { asked });
        }
        match &self.header.stopping {
            Some(rule) => {
                let longer = StoppingRule::new(rule.confidence(), rule.width(), rule.min(), rounds as usize)?;
                header.stopping = Some(longer);
            }
            None => header.set_rounds(rounds),
        }
        header.unsettled = None;
        Ok(header)
    }

    fn has_reached_its_precision(&self) -> bool {
        let reached = |(_, decision): &(usize, Decision)| matches!(decision, Decision::Reached { .. });
        let ruled = self.header.stopping.is_some() && self.state == RunState::Complete;
        ruled && stopping_outcome(self).iter().all(reached)
    }
}
