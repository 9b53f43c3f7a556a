//! A lab that is built for the run.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use anyhow::anyhow;
use vtax_lab::{Endpoint, Facts, Lab, LabError, Lifetime, Plan, World, plan};
use vtax_model::{
    run::RunHeader,
    topology::{Name, Topology},
};

use super::{Ground, Party, Place, Stage, StagedRow, agents::Agent};
use crate::{
    exit::{Blamed, Stop},
    study::{
        arrange::{Arrangement, End, Ends, arrange},
        draft::available,
    },
};

impl Stage {
    /// Builds the lab of a study and starts an agent in each domain that one of its rows needs.
    pub(crate) fn in_lab(world: &World, header: &RunHeader, program: &Path, directory: &Path) -> Result<Stage, Stop> {
        let rows = available(&header.study, &header.unavailable);
        let Arrangement { topology, ends } = arrange(&header.study, lab_name(header)?, &rows);
        let lab = build(world, &topology, Lifetime::Ephemeral)?;
        let mut cast = Cast { lab: &lab, program, agents: Vec::new(), by_domain: BTreeMap::new() };
        let staged = |(row, ends)| {
            let pairs = vec![cast.pair(&ends)?];
            Ok(StagedRow { row, mtu: None, pairs })
        };
        let rows = ends.into_iter().map(staged).collect::<anyhow::Result<_>>().or_infrastructure()?;
        let agents = cast.agents;
        Ok(Stage::new(Ground::Built(Box::new(lab)), agents, rows, directory))
    }
}

/// Who is on stage so far.
struct Cast<'a> {
    lab: &'a Lab,
    program: &'a Path,
    agents: Vec<Agent>,
    by_domain: BTreeMap<Name, usize>,
}

impl Cast<'_> {
    fn pair(&mut self, ends: &Ends) -> anyhow::Result<[Party; 2]> {
        Ok([self.party(&ends.initiator)?, self.party(&ends.responder)?])
    }

    fn party(&mut self, end: &End) -> anyhow::Result<Party> {
        let endpoint = endpoint(self.lab, end)?.clone();
        let name = match end {
            End::Host { host, .. } => format!("host {host}"),
            End::Zone(zone) => format!("zone {zone}"),
        };
        let agent = match self.by_domain.get(end.domain()) {
            Some(index) => *index,
            None => {
                self.agents.push(Agent::in_lab(&name, self.lab, &endpoint, self.program)?);
                self.by_domain.insert(end.domain().clone(), self.agents.len() - 1);
                self.agents.len() - 1
            }
        };
        let address = IpAddr::V4(endpoint.address);
        let place = Some(Place { lab: self.lab.blueprint().lab.clone(), endpoint });
        Ok(Party { agent, name, address, cid: None, pin: None, cpus: Vec::new(), place, route: Vec::new() })
    }
}

/// Of the run's random part, so that two runs of one study can go on at once.
fn lab_name(header: &RunHeader) -> Result<Name, Stop> {
    let suffix = header.id.rsplit('-').next().unwrap_or_default();
    format!("run-{suffix}").parse().or_infrastructure()
}

/// The plan of a lab, by what this machine has now.
pub(crate) fn plan_here(world: &World, topology: &Topology) -> Result<Plan, Stop> {
    plan(topology, &Facts::gather(world).or_infrastructure()?).or_input()
}

/// Builds a lab. Another vtax may take the range that was chosen between planning and building;
/// then another one is chosen.
pub(crate) fn build(world: &World, topology: &Topology, lifetime: Lifetime) -> Result<Lab, Stop> {
    const TRIES: usize = 10;
    let mut left = TRIES;
    loop {
        left -= 1;
        match Lab::up(world, plan_here(world, topology)?, lifetime) {
            Err(LabError::RangeTaken { .. }) if topology.addresses.is_none() && left > 0 => {}
            built => return built.or_infrastructure(),
        }
    }
}

fn endpoint<'lab>(lab: &'lab Lab, end: &End) -> anyhow::Result<&'lab Endpoint> {
    let found = match end {
        End::Host { host, wire } => lab.host_endpoint(host, wire),
        End::Zone(zone) => lab.zone_endpoint(zone),
    };
    found.ok_or_else(|| anyhow!("the lab has no endpoint for `{}`", end.domain()))
}
