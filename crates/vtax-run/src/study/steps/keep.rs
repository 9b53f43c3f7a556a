//! Keeps the settings that a run has proved.

use serde::Serialize;
use vtax_change::Change;
use vtax_journal::BatchId;
use vtax_model::study::TuningStep;
use vtax_tune::Proposal;

use super::{PlannedSteps, StepSwitch, goal_of, nothing_to_change};
use crate::{
    events::RunEvents,
    locations::Locations,
    stop::{Blamed, Stop},
    study::{
        MeasureRequest,
        ends::{EndpointConnector, row_pairs},
        source::world,
    },
    tuning::SharedTuner,
};

/// Settings that were changed and stay changed.
#[derive(Debug, Default)]
pub struct KeptChanges {
    /// One batch per machine, and per network stack of this machine.
    pub batches: Vec<KeptBatch>,
    /// Proposals of the rules, so that they can be applied on another host.
    pub proposals: Vec<Proposal>,
}

/// Settings that were changed together.
#[derive(Debug, Clone, Serialize)]
pub struct KeptBatch {
    /// Machine name for `vtax tune revert --host`. None for this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// ID for `vtax tune revert`.
    pub id: BatchId,
    /// Applied changes.
    pub changes: Vec<Change>,
}

/// Makes the changes of a step on the path of a measurement, and keeps them.
pub fn keep(
    asked: &MeasureRequest,
    step: &TuningStep,
    locations: &Locations,
    events: &RunEvents,
) -> Result<KeptChanges, Stop> {
    let (agent, tuner) = (locations.agent_program()?, SharedTuner::new(locations)?);
    let world = world(&asked.anywhere()?)?;
    let mut connector = EndpointConnector::new(world.as_ref(), &agent, locations, events);
    let endpoints = connector.complete(asked.endpoints.clone())?;
    let pairs = row_pairs(&endpoints, &asked.rows()[..1], &[MeasureRequest::ANY_MTU]).or_input()?;
    let ends = connector.connect(&pairs, &[], &std::env::temp_dir())?;
    let goal = goal_of(asked.tests.iter().map(|test| test.kind));
    let places = ends.tuned_places(&tuner)?;
    let PlannedSteps { switch, without } = StepSwitch::plan(std::slice::from_ref(step), goal, places, events)?;
    let kept = if without.is_empty() { switch.keep() } else { Err(nothing_to_change(&without)) };
    // The endpoints' agents make changes on their machines.
    drop(switch);
    ends.down().or_infrastructure()?;
    kept
}

impl StepSwitch {
    /// Confirms the changes of all steps, which then stay until they are reverted (`vtax tune revert`). If one of them
    /// can't be made, all are reverted.
    fn keep(&self) -> Result<KeptChanges, Stop> {
        let mut kept = KeptChanges::default();
        let all = self.steps.iter().flat_map(|step| self.places.iter().zip(&step.wanted));
        for (place, wanted) in all.filter(|(_, wanted)| !wanted.proposals.is_empty()) {
            let tried = place.host.try_out(wanted, None);
            let tried = tried.and_then(|tried| match tried.batch {
                Some(batch) => place.host.keep(batch).map(|()| Some((batch, tried.plan.changes))),
                None => Ok(None),
            });
            match tried {
                Ok(made) => {
                    kept.batches.extend(made.map(|(id, changes)| KeptBatch { host: place.other.clone(), id, changes }))
                }
                Err(error) => {
                    self.take_back(&kept);
                    return Err(error);
                }
            }
            let new = wanted.proposals.iter().filter(|proposal| !kept.proposals.contains(proposal)).cloned();
            let new: Vec<Proposal> = new.collect();
            kept.proposals.extend(new);
        }
        Ok(kept)
    }

    /// Reverts changes. Those that cannot be reverted stay in the journal of their machine, which `vtax tune status`
    /// shows.
    fn take_back(&self, kept: &KeptChanges) {
        for KeptBatch { host, id, .. } in kept.batches.iter().rev() {
            if let Some(place) = self.places.iter().find(|place| place.other == *host) {
                let _ = place.host.revert(*id);
            }
        }
    }
}
