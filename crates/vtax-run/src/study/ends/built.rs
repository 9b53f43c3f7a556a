//! Labs that are built for a run.

use std::{collections::BTreeMap, sync::Arc};

use miette::miette;
use vtax_guest::GuestError;
use vtax_lab::{Lab, LabEndpoint, LabError, LiveHolding};
use vtax_model::{
    endpoint::Ends,
    run::RunHeader,
    study::Row,
    topology::{Name, Topology},
};

use super::{
    ConnectedEnds,
    agent::Agent,
    attachment::{LabPlace, lab_guest::only_agent},
    dial::{DialledEnd, connect_all},
    end::{ConnectedEnd, ConnectedRow},
};
use crate::{
    events::RunEvents,
    labs,
    stop::{Blamed, Stop},
    study::{
        arrange::{Arrangement, LabEnd, arrange},
        draft::available,
        session::RunSetup,
    },
};

impl RunSetup<'_> {
    /// Builds the lab of a study and starts its agents.
    pub(in crate::study) fn connect_lab(&self, header: &RunHeader) -> Result<ConnectedEnds, Stop> {
        let rows = available(&header.study, &header.unavailable);
        let Arrangement { topology, ends, .. } = arrange(&header.study, lab_name(header)?, &rows);
        let (lab, rows) = self.with_lab(&topology, |lab| {
            let agents = self.start_agents(lab, ends.values().flatten())?;
            let connect = |(row, ends): (&Row, &Vec<Ends<LabEnd>>)| {
                let end = |end: &LabEnd| connected_end(lab, end, &agents);
                let pair = |ends: &Ends<LabEnd>| Ok([end(&ends.initiator)?, end(&ends.responder)?]);
                Ok(ConnectedRow { row: *row, mtu: None, pairs: ends.iter().map(pair).collect::<Result<_, Stop>>()? })
            };
            ends.iter().map(connect).collect::<Result<Vec<ConnectedRow>, Stop>>()
        })?;
        Ok(ConnectedEnds::new(rows, Some(lab), &self.conditions.directory))
    }

    /// Starts one agent in each host, zone and guest with an endpoint, several concurrently.
    fn start_agents<'e>(
        &self,
        lab: &Arc<Lab>,
        ends: impl Iterator<Item = &'e Ends<LabEnd>>,
    ) -> Result<BTreeMap<Name, Arc<Agent>>, Stop> {
        let mut dialled: BTreeMap<Name, DialledEnd<Name>> = BTreeMap::new();
        for end in ends.flat_map(|Ends { initiator, responder }| [initiator, responder]) {
            if !dialled.contains_key(end.domain()) {
                let (key, attachment) = (end.domain().clone(), place_of(lab, end)?.attach(true).or_infrastructure()?);
                dialled.insert(key.clone(), DialledEnd { key, name: name_of(end), attachment });
            }
        }
        let dialled: Vec<_> = dialled.into_values().collect();
        Ok(connect_all(&dialled, self.agent, self.events)?.into_iter().collect())
    }

    /// Builds a lab and connects to its agents with `connect`. If a QEMU crashes while its guest boots, as under TCG,
    /// tries once more.
    pub(in crate::study) fn with_lab<T>(
        &self,
        topology: &Topology,
        connect: impl Fn(&Arc<Lab>) -> Result<T, Stop>,
    ) -> Result<(Arc<Lab>, T), Stop> {
        let is_crash = |stop: &Stop| {
            let of_guest = stop.cause().is_some_and(GuestError::is_crash);
            of_guest || stop.cause().is_some_and(LabError::is_crash)
        };
        self.build(topology, &connect).or_else(|stop| match is_crash(&stop) {
            true if !self.interrupt.asked() => {
                self.events.tell(format_args!(
                    "{stop}\nQEMU crashed before anything was measured: building the lab once more"
                ));
                self.build(topology, &connect)
            }
            _ => Err(stop),
        })
    }

    fn build<T>(
        &self,
        topology: &Topology,
        connect: &impl Fn(&Arc<Lab>) -> Result<T, Stop>,
    ) -> Result<(Arc<Lab>, T), Stop> {
        // A vtax that was killed while it executed this run may have left the lab.
        let world = self.in_world()?;
        self.interrupt.only_note();
        labs::remove_abandoned(world, &topology.name, self.events)?;
        let (within, name) = (world.clone(), topology.name.clone());
        // An error is ignored: either a QEMU has just exited, or the code that waits for it reports the same error.
        self.interrupt.on_ask(move || drop(LiveHolding::stop_building(&within, &name)));
        let lab = Arc::new(labs::build(world, topology, &self.needs)?);
        let phases = Some(self.phases).filter(|_| !lab.guests().is_empty());
        phases.inspect(|phases| phases.done("QEMU started"));
        let connected = connect(&lab)?;
        phases.inspect(|phases| phases.done("agents answered"));
        self.interrupt.only_note();
        if self.interrupt.asked() { Err(Stop::interrupted()) } else { Ok((lab, connected)) }
    }
}

fn connected_end(lab: &Arc<Lab>, end: &LabEnd, agents: &BTreeMap<Name, Arc<Agent>>) -> Result<ConnectedEnd, Stop> {
    let place = place_of(lab, end)?;
    let address = place.endpoint.address;
    let (name, attachment) = (name_of(end), place.attach(true).or_infrastructure()?);
    let agent = Arc::clone(&agents[end.domain()]);
    let (is_lent, device, route, cid, pin, cpus) = Default::default();
    Ok(ConnectedEnd { agent, name, address, is_lent, device, attachment, route, cid, pin, cpus })
}

fn place_of(lab: &Arc<Lab>, end: &LabEnd) -> Result<LabPlace, Stop> {
    let endpoint = endpoint(lab, end).or_infrastructure()?.clone();
    Ok(LabPlace { lab: Arc::clone(lab), endpoint })
}

/// Returns the endpoint's name in messages.
fn name_of(end: &LabEnd) -> String {
    match end {
        LabEnd::Host { host, .. } => format!("host {host}"),
        LabEnd::Zone(zone) => format!("zone {zone}"),
        LabEnd::Guest(guest) => format!("guest {guest}"),
    }
}

/// Connects to the agent of a lab's guest whose NIC isn't measured.
pub(in crate::study) fn agent_of_guest(lab: &Arc<Lab>, guest: &Name, events: &RunEvents) -> Result<Agent, Stop> {
    let endpoint = endpoint(lab, &LabEnd::Guest(guest.clone())).or_infrastructure()?.clone();
    only_agent(&LabPlace { lab: Arc::clone(lab), endpoint }, &format!("guest {guest}"), events)
}

/// Returns the name of a run's lab. It contains the random part of the run's ID, so that several runs of one study can
/// be active at the same time.
pub(in crate::study) fn lab_name(header: &RunHeader) -> Result<Name, Stop> {
    let suffix = header.id.rsplit('-').next().unwrap_or_default();
    format!("run-{suffix}").parse().or_infrastructure()
}

fn endpoint<'lab>(lab: &'lab Lab, end: &LabEnd) -> miette::Result<&'lab LabEndpoint> {
    let found = match end {
        LabEnd::Host { host, wire } => lab.blueprint().host(host, wire),
        LabEnd::Zone(zone) => lab.blueprint().zone(zone),
        LabEnd::Guest(guest) => lab.blueprint().guest(guest),
    };
    found.ok_or_else(|| miette!(code = "defect", "the lab has no endpoint for `{}`", end.domain()))
}
