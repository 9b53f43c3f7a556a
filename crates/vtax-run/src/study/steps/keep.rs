//! Keeps the settings that a run has proved.

use vtax_model::study::TuningStep;

use super::{KeptChanges, PlannedSteps, StepSwitch, goal_of, nothing_to_change};
use crate::{
    events::RunEvents,
    locations::Locations,
    stop::{Blamed, Stop},
    study::{
        MeasureRequest,
        ends::{EndpointConnector, row_pairs},
        session::RunSource,
    },
};

/// Makes the changes of a step on the path of a measurement, and lets them stay.
pub fn keep(
    asked: &MeasureRequest,
    step: &TuningStep,
    locations: &Locations,
    events: &RunEvents,
) -> Result<KeptChanges, Stop> {
    let (agent, tuning) = (locations.agent_program()?, locations.tuning_dir()?);
    let world = RunSource::Measure(Box::new(asked.clone())).world()?;
    let mut connector = EndpointConnector::new(world.as_ref(), &agent, events);
    let endpoints = connector.complete(asked.endpoints.clone())?;
    let pairs = row_pairs(&endpoints, &asked.rows()[..1], &[MeasureRequest::ANY_MTU]).or_input()?;
    let ends = connector.connect(&pairs, &std::env::temp_dir())?;
    let goal = goal_of(asked.tests.iter().map(|test| test.kind));
    let planned = StepSwitch::plan(std::slice::from_ref(step), goal, &ends.tuned_places()?, &tuning, events)?;
    let PlannedSteps { switch, without } = planned;
    ends.down().or_infrastructure()?;
    match without.is_empty() {
        true => switch.keep(),
        false => Err(nothing_to_change(&without)),
    }
}
