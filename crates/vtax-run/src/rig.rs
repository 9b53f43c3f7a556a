//! A lab of two hosts, each with an agent, and wires between them, in which vtax measures itself.

use miette::{Context, miette};
use vtax_host::inspect;
use vtax_lab::{GuestNeeds, Lab, LabEndpoint, World};
use vtax_model::{
    address_family::AddressFamily,
    measurement::EndReport,
    run::Figures,
    station::{EndSetup, Station},
    topology::{Host, Name, Shape, Topology, Wire},
    units::Mtu,
    workload::TestSpec,
};
use vtax_wire::{
    link::AgentLink,
    measure::{AgentPair, SampleOrder, measure, measure_all},
};

use crate::{
    labs,
    locations::Locations,
    stop::{Blamed, Stop},
    study::Gaps,
};

/// Host that sends requests and data.
pub const SUT: &str = "sut";
/// Host that answers and receives.
pub const PEER: &str = "peer";

/// Two hosts with their agents.
pub struct Rig {
    /// The lab with both hosts and the wires between them.
    pub lab: Lab,
    agents: [AgentLink; 2],
    cpus: Option<[u32; 2]>,
    is_virtual: bool,
}

impl Rig {
    /// Builds the lab. Each wire goes from [`SUT`] to [`PEER`] and may have a limit.
    pub fn build(
        world: &World,
        purpose: &str,
        wires: &[(&str, Option<Shape>)],
        locations: &Locations,
    ) -> Result<Rig, Stop> {
        let program = locations.agent_program()?;
        let topology = topology(purpose, wires).or_infrastructure()?;
        let lab = labs::build(world, &topology, &GuestNeeds::new(&program, None))?;
        let start = |host: &str| -> miette::Result<AgentLink> {
            let endpoint = endpoint(&lab, host, wires.first().map_or("", |(name, _)| name))?;
            Ok(AgentLink::from_child(host, labs::start_agent(&lab, endpoint, &program)?, labs::GREETING)?)
        };
        let agents = [start(SUT).or_infrastructure()?, start(PEER).or_infrastructure()?];
        let is_virtual = inspect::environment(&inspect::SystemRoot::live()).hypervisor != "none";
        Ok(Rig { agents, cpus: cpus().or_infrastructure()?, is_virtual, lab })
    }

    /// Ends the agents and removes the lab.
    pub fn down(self) -> miette::Result<()> {
        drop(self.agents);
        self.lab.down().context("removing the lab")
    }

    /// Returns the CPU of the sending host and that of the other; none if there are too few to pin.
    pub fn cpus(&self) -> Option<[u32; 2]> {
        self.cpus
    }

    /// Returns CPUs for small differences: on a virtual machine both ends share one CPU, like the alternating rows of a
    /// study.
    pub fn cpus_for_path(&self) -> Option<[u32; 2]> {
        self.cpus.map(|[first, second]| [first, if self.is_virtual { first } else { second }])
    }

    /// Returns the endpoint of a host on one of its wires.
    pub fn endpoint(&self, host: &str, wire: &str) -> miette::Result<&LabEndpoint> {
        endpoint(&self.lab, host, wire)
    }

    /// Returns the reports of both ends for a sample.
    pub fn reports(&self, spec: &TestSpec, wire: &str) -> miette::Result<(EndReport, EndReport)> {
        self.reports_on(spec, wire, self.cpus)
    }

    fn reports_on(
        &self,
        spec: &TestSpec,
        wire: &str,
        cpus: Option<[u32; 2]>,
    ) -> miette::Result<(EndReport, EndReport)> {
        let [sut, peer] = &self.agents;
        Ok(measure(sut, peer, &self.order(spec, wire, cpus)?)?)
    }

    fn order(&self, spec: &TestSpec, wire: &str, cpus: Option<[u32; 2]>) -> miette::Result<SampleOrder> {
        let setup = |host: &str, side: usize| -> miette::Result<EndSetup> {
            let station = Station::Ip(self.endpoint(host, wire)?.address);
            Ok(EndSetup { cpus: cpus.map(|cpus| vec![cpus[side]]).unwrap_or_default(), ..EndSetup::new(station) })
        };
        let (initiator, responder) = (setup(SUT, 0)?, setup(PEER, 1)?);
        let target = responder.station.clone().into();
        Ok(SampleOrder { spec: *spec, initiator, responder, target, turns: None })
    }

    /// Takes a sample over a wire.
    pub fn sample(&self, spec: &TestSpec, wire: &str) -> miette::Result<Figures> {
        self.sample_on(spec, wire, self.cpus)
    }

    /// Takes a sample with its ends on these CPUs.
    pub fn sample_on(&self, spec: &TestSpec, wire: &str, cpus: Option<[u32; 2]>) -> miette::Result<Figures> {
        let (sent, received) = self.reports_on(spec, wire, cpus)?;
        Ok(Figures::join(spec, true, &sent, &received))
    }

    /// Takes a sample of each test, cut into slices. The tests alternate in the given orders.
    pub fn take_turns(
        &self,
        specs: &[TestSpec],
        wire: &str,
        orders: &[Vec<usize>],
        gaps: &mut Gaps,
    ) -> miette::Result<Vec<Figures>> {
        let first = specs
            .first()
            .ok_or_else(|| miette!(code = "option-not-for-this", "no test can be interleaved; name at least one"))?;
        let [initiator, responder] = &self.agents;
        let taken = gaps.measure(first, orders, |timetable| -> miette::Result<_> {
            let pair = |(index, spec): (usize, &TestSpec)| -> miette::Result<AgentPair<'_>> {
                let mut order = self.order(&timetable.spec(spec), wire, self.cpus_for_path())?;
                order.turns = Some(timetable.turns(index));
                Ok(AgentPair { initiator, responder, order })
            };
            Ok(measure_all(&specs.iter().enumerate().map(pair).collect::<miette::Result<Vec<_>>>()?)?)
        })?;
        let join =
            |(spec, (sent, received)): (&TestSpec, &(EndReport, EndReport))| Figures::join(spec, true, sent, received);
        Ok(specs.iter().zip(&taken.reports).map(join).collect())
    }
}

/// Plans the lab. Its name contains this process's PID, so that two commands can run at the same time.
fn topology(purpose: &str, wires: &[(&str, Option<Shape>)]) -> miette::Result<Topology> {
    let ends: [Name; 2] = [SUT.parse()?, PEER.parse()?];
    let wire = |(name, shape): &(&str, Option<Shape>)| -> miette::Result<Wire> {
        Ok(Wire { name: name.parse()?, ends: ends.clone(), shape: *shape, nics: None })
    };
    Ok(Topology {
        name: format!("{purpose}-{}", std::process::id()).parse()?,
        family: AddressFamily::Ipv4,
        addresses: None,
        mtu: Mtu::ETHERNET,
        hosts: ends.each_ref().map(|name| Host { name: name.clone(), switch: false, snooping: None }).into(),
        wires: wires.iter().map(wire).collect::<miette::Result<_>>()?,
        zones: Vec::new(),
        guests: Vec::new(),
    })
}

fn endpoint<'lab>(lab: &'lab Lab, host: &str, wire: &str) -> miette::Result<&'lab LabEndpoint> {
    let found = lab.blueprint().host(&host.parse()?, &wire.parse()?);
    found.ok_or_else(|| miette!(code = "defect", "the host {host} of the lab has no wire {wire}"))
}

/// The first CPU for the sending host, the next one for the other.
fn cpus() -> miette::Result<Option<[u32; 2]>> {
    let mut cpus = vtax_sys::cpu::allowed_cpus()?.iter().collect::<Vec<u32>>().into_iter();
    Ok(cpus.next().zip(cpus.next()).map(|(first, second)| [first, second]))
}
