//! The live side of a run: a lab that is up, with an agent in each domain.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow};
use vtax_agent::{
    link::AgentLink,
    measure::{MeasureError, Order, measure},
};
use vtax_engine::EndSetup;
use vtax_lab::{Endpoint, Facts, Lab, LabError, Lifetime, Plan, World, plan};
use vtax_model::{
    run::{Figures, Hop, PathRecord, Placement, RunHeader},
    study::Row,
    topology::{Name, Topology},
    units::Mtu,
    workload::TestSpec,
};

use super::{
    arrange::{Arrangement, End, Ends, arrange},
    interrupt::Interrupt,
    runner::{SampleError, Sampler},
    session::available,
};
use crate::exit::{Blamed, Stop};

/// How long an agent may take to greet: it is a local process.
const GREETING: Duration = Duration::from_secs(10);

type Links = BTreeMap<Name, AgentLink>;

/// A lab that is up, with an agent in each domain that a row of the study needs.
pub(crate) struct Stage {
    lab: Lab,
    links: Arc<Links>,
    ends: BTreeMap<Row, Ends>,
    placement: Placement,
    directory: PathBuf,
}

impl Stage {
    /// Builds the lab and starts the agents.
    pub(crate) fn build(world: &World, header: &RunHeader, agent: &Path, directory: &Path) -> Result<Stage, Stop> {
        let rows = available(&header.study, &header.unavailable);
        let Arrangement { topology, ends } = arrange(&header.study, lab_name(header)?, &rows);
        let lab = build(world, &topology, Lifetime::Ephemeral)?;
        let links = start_agents(&lab, ends.values(), agent).or_infrastructure()?;
        let (placement, directory) = (header.placement.clone(), directory.to_owned());
        Ok(Stage { lab, links: Arc::new(links), ends, placement, directory })
    }

    /// What the packets of each row go through, at each MTU of the study.
    pub(crate) fn paths(&mut self, header: &RunHeader) -> anyhow::Result<Vec<PathRecord>> {
        let mut mtus: Vec<Mtu> = header.study.cells.iter().map(|cell| cell.mtu).collect();
        mtus.sort_unstable();
        mtus.dedup();
        let mut paths = Vec::new();
        for mtu in mtus {
            self.lab.set_mtu(mtu)?;
            for (row, ends) in &self.ends {
                paths.push(PathRecord { method: *row, mtu, hops: self.hops(ends)? });
            }
        }
        Ok(paths)
    }

    /// From now on Ctrl-C breaks off the sample in flight.
    pub(crate) fn break_off_on(&self, interrupt: &Interrupt) {
        // Weak: the handler must not keep the agents alive after the run.
        let links = Arc::downgrade(&self.links);
        interrupt.on_ask(move || {
            let Some(links) = links.upgrade() else { return };
            for link in links.values() {
                // One that can't be told is dead, which the sample notices by itself.
                drop(link.cancel_all());
            }
        });
    }

    /// Ends the agents and removes the lab.
    pub(crate) fn down(self) -> anyhow::Result<()> {
        drop(self.links);
        self.lab.down().context("removing the lab")
    }

    fn hops(&self, ends: &Ends) -> anyhow::Result<Vec<Hop>> {
        let hops = self.lab.path(endpoint(&self.lab, &ends.initiator)?, endpoint(&self.lab, &ends.responder)?)?;
        let hop = |hop: vtax_lab::Hop| Hop {
            domain: hop.place.namespace.to_string(),
            link: hop.place.link.to_string(),
            kind: hop.kind,
            mtu: hop.mtu,
            qdisc: hop.qdisc.unwrap_or_default(),
            tx_queues: hop.tx_queues.unwrap_or_default(),
            rx_queues: hop.rx_queues.unwrap_or_default(),
        };
        Ok(hops.into_iter().map(hop).collect())
    }

    fn order(&self, row: Row, spec: &TestSpec) -> anyhow::Result<(Order, &AgentLink, &AgentLink)> {
        let ends = self.ends.get(&row).ok_or_else(|| anyhow!("the row `{row}` is not in this lab"))?;
        let (from, to) = (endpoint(&self.lab, &ends.initiator)?, endpoint(&self.lab, &ends.responder)?);
        let setup = |endpoint: &Endpoint, cpus: &[u32]| EndSetup {
            address: IpAddr::V4(endpoint.address),
            cpus: cpus.to_vec(),
            directory: Some(self.directory.clone()),
        };
        let order = Order {
            spec: *spec,
            initiator: setup(from, &self.placement.initiator),
            responder: setup(to, &self.placement.responder),
            target: IpAddr::V4(to.address),
        };
        Ok((order, self.link(&ends.initiator)?, self.link(&ends.responder)?))
    }

    fn link(&self, end: &End) -> anyhow::Result<&AgentLink> {
        self.links.get(end.domain()).ok_or_else(|| anyhow!("no agent was started in `{}`", end.domain()))
    }
}

impl Sampler for Stage {
    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        self.lab.set_mtu(mtu).map_err(|error| SampleError::Run(error.into()))
    }

    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
        let (order, initiator, responder) = self.order(row, spec).map_err(SampleError::Run)?;
        let (sent, received) = measure(initiator, responder, &order).map_err(blame)?;
        let figures = Figures::join(spec.workload.kind(), true, &sent, &received);
        match figures.bytes {
            0 => Err(SampleError::Cell(format!("nothing arrived in {}", spec.duration))),
            _ => Ok(figures),
        }
    }
}

/// An agent that has died takes the run with it; any other failure is the cell's.
fn blame(error: MeasureError) -> SampleError {
    match error.is_death() {
        true => SampleError::Run(error.into()),
        false => SampleError::Cell(error.to_string()),
    }
}

/// The two halves of the CPUs that vtax may use: the ends of a network are never on one CPU, and
/// whether they are is the largest single effect on a round-trip time. With one CPU, nothing is
/// pinned.
pub(crate) fn placement() -> anyhow::Result<Placement> {
    let cpus = vtax_sys::cpu::allowed_cpus().context("asking which CPUs we may use")?;
    let cpus: Vec<u32> = cpus.iter().collect();
    Ok(match cpus.len() {
        0 | 1 => Placement::default(),
        count => {
            let (initiator, responder) = cpus.split_at(count / 2);
            Placement { initiator: initiator.to_vec(), responder: responder.to_vec() }
        }
    })
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

fn start_agents<'a>(lab: &Lab, ends: impl Iterator<Item = &'a Ends>, program: &Path) -> anyhow::Result<Links> {
    let mut links = Links::new();
    for end in ends.flat_map(|ends| [&ends.initiator, &ends.responder]) {
        if !links.contains_key(end.domain()) {
            links.insert(end.domain().clone(), start_agent(lab, end, program)?);
        }
    }
    Ok(links)
}

fn start_agent(lab: &Lab, end: &End, program: &Path) -> anyhow::Result<AgentLink> {
    let mut command = Command::new(program);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: Ctrl-C is for vtax, which then ends its agents in order.
    command.process_group(0);
    let name = match end {
        End::Host { host, .. } => format!("host {host}"),
        End::Zone(zone) => format!("zone {zone}"),
    };
    let child = lab.spawn(endpoint(lab, end)?, command)?;
    Ok(AgentLink::from_child(&name, child, GREETING)?)
}

fn endpoint<'lab>(lab: &'lab Lab, end: &End) -> anyhow::Result<&'lab Endpoint> {
    let found = match end {
        End::Host { host, wire } => lab.host_endpoint(host, wire),
        End::Zone(zone) => lab.zone_endpoint(zone),
    };
    found.ok_or_else(|| anyhow!("the lab has no endpoint for `{}`", end.domain()))
}
