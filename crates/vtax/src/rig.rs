//! Two hosts and the wires between them, with an agent on each: where vtax measures itself.

use std::{
    net::IpAddr,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, anyhow};
use vtax_agent::{
    link::AgentLink,
    measure::{Order, measure},
};
use vtax_engine::{EndSetup, Station};
use vtax_lab::{Endpoint, GuestNeeds, Lab, Lifetime, World};
use vtax_model::{located::Source, measurement::EndReport, run::Figures, topology::Topology, workload::TestSpec};

use crate::{
    cli::Places,
    exit::{Blamed, Stop},
    study,
};

/// The host that asks and sends.
pub(crate) const SUT: &str = "sut";
/// The host that answers and receives.
pub(crate) const PEER: &str = "peer";

/// How long an agent may take to greet: it is a local process.
const GREETING: Duration = Duration::from_secs(10);

/// The hosts, and the CPU of each.
pub(crate) struct Rig {
    pub(crate) lab: Lab,
    agents: [AgentLink; 2],
    cpus: Option<[u32; 2]>,
}

impl Rig {
    /// `wires`: `[[wire]]` tables of a lab file, all from [`SUT`] to [`PEER`].
    pub(crate) fn build(world: &World, purpose: &str, wires: &str, places: &Places) -> Result<Rig, Stop> {
        let program = study::agent_program(places)?;
        // A name of its own for each process, so that two can go on at once.
        let hosts = format!(
            "[lab]\nname = \"{purpose}-{}\"\n[[host]]\nname = \"{SUT}\"\n[[host]]\nname = \"{PEER}\"\n",
            std::process::id()
        );
        let topology = Topology::parse(Source { name: purpose, text: &(hosts + wires) }).or_infrastructure()?;
        let first = topology.wires.first().map(|wire| wire.name.to_string()).unwrap_or_default();
        let lab = study::build(world, &topology, &GuestNeeds::new(&program, None), Lifetime::Ephemeral)?;
        let start = |host: &str| -> anyhow::Result<AgentLink> {
            let mut command = Command::new(&program);
            command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = lab.spawn(endpoint(&lab, host, &first)?, command)?;
            Ok(AgentLink::from_child(host, child, GREETING)?)
        };
        let agents = [start(SUT).or_infrastructure()?, start(PEER).or_infrastructure()?];
        Ok(Rig { agents, cpus: cpus().or_infrastructure()?, lab })
    }

    /// Ends the agents and removes the lab.
    pub(crate) fn down(self) -> anyhow::Result<()> {
        drop(self.agents);
        self.lab.down().context("removing the lab")
    }

    /// The CPU of the host that asks, and of the other; none if there are too few to pin.
    pub(crate) fn cpus(&self) -> Option<[u32; 2]> {
        self.cpus
    }

    /// A host's end of a wire.
    pub(crate) fn endpoint(&self, host: &str, wire: &str) -> anyhow::Result<&Endpoint> {
        endpoint(&self.lab, host, wire)
    }

    /// What both ends saw.
    pub(crate) fn reports(&self, spec: &TestSpec, wire: &str) -> anyhow::Result<(EndReport, EndReport)> {
        let setup = |host: &str, side: usize| -> anyhow::Result<EndSetup> {
            let station = Station::Ip(IpAddr::V4(self.endpoint(host, wire)?.address));
            Ok(EndSetup { cpus: self.cpus.map(|cpus| vec![cpus[side]]).unwrap_or_default(), ..EndSetup::new(station) })
        };
        let (initiator, responder) = (setup(SUT, 0)?, setup(PEER, 1)?);
        let target = responder.station.clone();
        let [sut, peer] = &self.agents;
        Ok(measure(sut, peer, &Order { spec: *spec, initiator, responder, target, turns: None })?)
    }

    /// A sample, both ends joined.
    pub(crate) fn sample(&self, spec: &TestSpec, wire: &str) -> anyhow::Result<Figures> {
        let (sent, received) = self.reports(spec, wire)?;
        Ok(Figures::join(spec, true, &sent, &received))
    }
}

fn endpoint<'lab>(lab: &'lab Lab, host: &str, wire: &str) -> anyhow::Result<&'lab Endpoint> {
    let found = lab.host_endpoint(&host.parse()?, &wire.parse()?);
    found.ok_or_else(|| anyhow!("the host {host} of the lab has no wire {wire}"))
}

/// The first CPU for the host that asks or sends, the next one for the other.
fn cpus() -> anyhow::Result<Option<[u32; 2]>> {
    let mut cpus = vtax_sys::cpu::allowed_cpus()?.iter().collect::<Vec<u32>>().into_iter();
    Ok(cpus.next().zip(cpus.next()).map(|(first, second)| [first, second]))
}
