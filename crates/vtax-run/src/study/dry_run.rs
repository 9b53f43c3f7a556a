//! Preview of a study's run on this machine. Nothing is built, measured or saved.

use miette::miette;
use vtax_lab::{GuestNeeds, Plan, World};
use vtax_model::run::{Forecast, RunHeader, UnavailableRow};
use vtax_store::Store;

use super::{
    arrange::arrange,
    draft::{available, facts_for, header, unavailable, without_endpoints},
    ends::lab_name,
    forecast::PlanForecast,
    options::ChangedStudy,
    pods::{PlannedPods, choose_nodes, set_nodes},
    source::{check_here, world},
};
use crate::{
    job::{Job, NewRun, Work},
    labs::plan_here,
    locations::Locations,
    stop::{Blamed, Stop},
};

/// Names of nodes in a manifest for an unknown cluster.
const PLACEHOLDERS: [&str; 2] = ["node-1", "node-2"];

/// A run that was only planned.
#[derive(Debug)]
pub struct PlannedRun {
    /// Its plan. The ID and, unless chosen by the user, the seed belong to this dry run only.
    pub header: RunHeader,
    /// Duration and detectable difference.
    pub forecast: Forecast,
    /// The earlier run that the forecast is based on, if any.
    pub known_from: Option<String>,
    /// Lines that a run prints before it begins.
    pub told: Vec<String>,
    /// The lab that it would build, if it is measured in one.
    pub lab: Option<Plan>,
    /// The pods that it would create.
    pub pods: Option<PlannedPods>,
}

/// Plans a run of a study as if it were about to start on this machine.
pub fn dry_run(mut job: Job, locations: &Locations) -> Result<PlannedRun, Stop> {
    job.use_server_cables().or_input()?;
    let Work::New(NewRun::Study { study, changes }) = job.work else {
        return Err(Stop::input(miette!(code = "option-not-for-this", "--dry-run applies to studies only")));
    };
    let wanted = changes.apply(*study)?;
    job.conditions.check_pins(&wanted.study).or_input()?;
    check_here(&wanted.study).or_input()?;
    let needs = GuestNeeds::new(&locations.agent_program()?, job.conditions.kernel.as_deref());
    if wanted.study.pods().is_some() {
        return with_pods(wanted, locations);
    }
    match world(&wanted.study)?.filter(|_| wanted.study.endpoints().is_empty()) {
        Some(world) => in_lab(wanted, &world, &needs, locations),
        None => {
            let lacking = without_endpoints(&wanted.study).or_input()?;
            forecast(wanted, lacking, locations)
        }
    }
}

/// Without a cluster, the names of its nodes are placeholders, so that the permissions can be printed nevertheless.
fn with_pods(mut wanted: ChangedStudy, locations: &Locations) -> Result<PlannedRun, Stop> {
    let lists_nodes = wanted.study.pods().is_some_and(|pods| pods.nodes.is_empty());
    let (lacking, unknown) = match choose_nodes(&mut wanted.study) {
        Ok(lacking) => (lacking, None),
        Err(stop) => {
            set_nodes(&mut wanted.study, PLACEHOLDERS.map(|name| name.parse().expect("a name")).into());
            (Vec::new(), Some(format!("warning: the nodes are placeholders: {stop}")))
        }
    };
    let planned = forecast(wanted, lacking, locations)?;
    let pods = PlannedPods::of(&planned.header, lists_nodes);
    Ok(PlannedRun { pods, told: unknown.into_iter().chain(planned.told).collect(), ..planned })
}

fn in_lab(wanted: ChangedStudy, world: &World, needs: &GuestNeeds, locations: &Locations) -> Result<PlannedRun, Stop> {
    let lacking = unavailable(&wanted.study, &facts_for(&wanted.study, world, needs)?);
    let planned = forecast(wanted, lacking, locations)?;
    let header = &planned.header;
    let rows = available(&header.study, &header.unavailable);
    let topology = arrange(&header.study, lab_name(header)?, &rows).topology;
    Ok(PlannedRun { lab: Some(plan_here(world, &topology, needs)?), ..planned })
}

fn forecast(wanted: ChangedStudy, lacking: Vec<UnavailableRow>, locations: &Locations) -> Result<PlannedRun, Stop> {
    let mut header = header(wanted, lacking)?;
    let known = Store::reading(&locations.state_dir()?, |store| PlanForecast::of(&header, Some(store)))?;
    known.settle(&mut header)?;
    let (forecast, told) = (known.figures(&header), known.lines(&header));
    Ok(PlannedRun { forecast, told, known_from: known.known_from().map(str::to_owned), lab: None, pods: None, header })
}
