//! A lab that is built for the run.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use anyhow::anyhow;
use vtax_lab::{Facts, GuestNeeds, Lab, LabEndpoint, LabError, Lifetime, Plan, World, clean, guest::GuestError, plan};
use vtax_model::{
    run::RunHeader,
    study::Row,
    topology::{Name, Topology},
};

use super::{
    ConnectedEnd, ConnectedEnds, ConnectedRow, EndsLab, Place,
    agents::Agent,
    guests::{self, MeasuringGuest, Vcpus},
};
use crate::{
    exit::{Blamed, Stop},
    study::{
        arrange::{Arrangement, Ends, LabEnd, arrange},
        draft::available,
        phases::Phases,
    },
};

/// With what the lab of a run is built and peopled.
pub(crate) struct LabBuilder<'a> {
    pub(crate) world: &'a World,
    /// The agent.
    pub(crate) program: &'a Path,
    /// What guests boot.
    pub(crate) needs: &'a GuestNeeds,
    pub(crate) phases: &'a Phases,
}

impl ConnectedEnds {
    /// Builds the lab of a study and starts an agent in each domain that one of its rows needs.
    ///
    /// QEMU's TCG crashes now and then while a guest boots, by a race of its own. Nothing has been measured
    /// then, so the lab is built once more.
    pub(crate) fn in_lab(
        casting: &LabBuilder<'_>,
        header: &RunHeader,
        directory: &Path,
    ) -> Result<ConnectedEnds, Stop> {
        let rows = available(&header.study, &header.unavailable);
        let Arrangement { topology, ends } = arrange(&header.study, lab_name(header)?, &rows);
        let first = casting.set(&topology, &ends);
        let crash = |stop: &Stop| {
            let of_guest = stop.cause().is_some_and(GuestError::is_crash);
            of_guest || stop.cause().is_some_and(LabError::is_crash)
        };
        let set = match first {
            Err(stop) if crash(&stop) => {
                eprintln!("{stop}\nQEMU crashed before anything was measured: the lab is built once more");
                casting.set(&topology, &ends)
            }
            other => other,
        };
        let BuiltLab { lab, rows, agents, seats } = set?;
        Ok(ConnectedEnds { seats, ..ConnectedEnds::new(EndsLab::Built(Box::new(lab)), agents, rows, directory) })
    }
}

/// A lab with an agent in each of its domains that is measured.
struct BuiltLab {
    lab: Lab,
    rows: Vec<ConnectedRow>,
    agents: Vec<Agent>,
    seats: Vec<MeasuringGuest>,
}

impl LabBuilder<'_> {
    fn set(&self, topology: &Topology, ends: &BTreeMap<Row, Vec<Ends>>) -> Result<BuiltLab, Stop> {
        // A run that goes on may have been killed.
        remove_abandoned(self.world, &topology.name)?;
        let lab = build(self.world, topology, self.needs, Lifetime::Ephemeral)?;
        let phases = Some(self.phases).filter(|_| !lab.guests().is_empty());
        phases.inspect(|phases| phases.done("QEMU started"));
        let program = self.program;
        let mut cast =
            AgentStarter { lab: &lab, program, agents: Vec::new(), seats: Vec::new(), by_domain: BTreeMap::new() };
        let staged = |(row, ends): (&Row, &Vec<Ends>)| {
            let pairs = ends.iter().map(|ends| cast.pair(ends)).collect::<anyhow::Result<_>>()?;
            Ok(ConnectedRow { row: *row, mtu: None, pairs })
        };
        let rows = ends.iter().map(staged).collect::<anyhow::Result<_>>().or_infrastructure()?;
        phases.inspect(|phases| phases.done("agents answered"));
        let AgentStarter { agents, seats, .. } = cast;
        Ok(BuiltLab { lab, rows, agents, seats })
    }
}

/// Who is on stage so far.
struct AgentStarter<'a> {
    lab: &'a Lab,
    program: &'a Path,
    agents: Vec<Agent>,
    seats: Vec<MeasuringGuest>,
    by_domain: BTreeMap<Name, usize>,
}

impl AgentStarter<'_> {
    fn pair(&mut self, ends: &Ends) -> anyhow::Result<[ConnectedEnd; 2]> {
        Ok([self.party(&ends.initiator)?, self.party(&ends.responder)?])
    }

    fn party(&mut self, end: &LabEnd) -> anyhow::Result<ConnectedEnd> {
        let endpoint = endpoint(self.lab, end)?.clone();
        let name = match end {
            LabEnd::Host { host, .. } => format!("host {host}"),
            LabEnd::Zone(zone) => format!("zone {zone}"),
            LabEnd::Guest(guest) => format!("guest {guest}"),
        };
        let agent = match self.by_domain.get(end.domain()) {
            Some(index) => *index,
            None => self.engage(end, &name, &endpoint)?,
        };
        let vcpus = match end {
            LabEnd::Guest(guest) => Vcpus::of(guests::planned(self.lab, guest)?),
            LabEnd::Host { .. } | LabEnd::Zone(_) => None,
        };
        let address = IpAddr::V4(endpoint.address);
        let place = Some(Place { lab: self.lab.blueprint().lab.clone(), endpoint });
        Ok(ConnectedEnd {
            agent,
            name,
            address,
            cid: None,
            pin: None,
            cpus: Vec::new(),
            place,
            route: Vec::new(),
            vcpus,
            tenant: None,
        })
    }

    fn engage(&mut self, end: &LabEnd, name: &str, endpoint: &LabEndpoint) -> anyhow::Result<usize> {
        let index = self.agents.len();
        let agent = match end {
            LabEnd::Guest(guest) => {
                let guest = guests::planned(self.lab, guest)?;
                self.seats.push(MeasuringGuest { agent: index, guest: guest.clone() });
                guests::enter(name, self.lab, guest, endpoint.mtu)?
            }
            LabEnd::Host { .. } | LabEnd::Zone(_) => Agent::in_lab(name, self.lab, endpoint, self.program)?,
        };
        self.agents.push(agent);
        self.by_domain.insert(end.domain().clone(), index);
        Ok(index)
    }
}

/// Of the run's random part, so that two runs of one study can go on at once.
fn lab_name(header: &RunHeader) -> Result<Name, Stop> {
    let suffix = header.id.rsplit('-').next().unwrap_or_default();
    format!("run-{suffix}").parse().or_infrastructure()
}

/// What a killed vtax left of the lab that is to be built.
pub(crate) fn remove_abandoned(world: &World, name: &Name) -> Result<(), Stop> {
    let report = clean(world, Some(name)).or_infrastructure()?;
    for lab in &report.removed {
        eprintln!("removed what a vtax that was killed had left of the lab {lab}");
    }
    match report.failures.into_iter().next() {
        Some(failure) => Err(Stop::infrastructure(failure)),
        None => Ok(()),
    }
}

/// The plan of a lab, by what this machine has now. What guests need is looked for if there are some.
fn plan_here(world: &World, topology: &Topology, needs: &GuestNeeds) -> Result<Plan, Stop> {
    let facts = Facts::gather(world).or_infrastructure()?.with_guests(world, &needs.clone().of_lab(topology));
    plan(topology, &facts).map_err(|error| if needs.names_no_kernel() { Stop::input(error) } else { error.into() })
}

/// Builds a lab by what this machine has now.
pub(crate) fn build(world: &World, topology: &Topology, needs: &GuestNeeds, lifetime: Lifetime) -> Result<Lab, Stop> {
    build_planned(world, topology, lifetime, || plan_here(world, topology, needs))
}

/// Builds a lab by the plan that is made for each try. Another vtax may take the range that was chosen
/// between planning and building; then another one is chosen.
pub(crate) fn build_planned(
    world: &World,
    topology: &Topology,
    lifetime: Lifetime,
    mut plan: impl FnMut() -> Result<Plan, Stop>,
) -> Result<Lab, Stop> {
    const TRIES: usize = 10;
    let mut left = TRIES;
    loop {
        left -= 1;
        match Lab::up(world, plan()?, lifetime) {
            Err(LabError::RangeTaken { .. }) if topology.addresses.is_none() && left > 0 => {}
            built => return built.or_infrastructure(),
        }
    }
}

fn endpoint<'lab>(lab: &'lab Lab, end: &LabEnd) -> anyhow::Result<&'lab LabEndpoint> {
    let found = match end {
        LabEnd::Host { host, wire } => lab.host_endpoint(host, wire),
        LabEnd::Zone(zone) => lab.zone_endpoint(zone),
        LabEnd::Guest(guest) => lab.guest_endpoint(guest),
    };
    found.ok_or_else(|| anyhow!("the lab has no endpoint for `{}`", end.domain()))
}
