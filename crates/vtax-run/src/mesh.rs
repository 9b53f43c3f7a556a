//! Takes the waves of a mesh with agents at its endpoints.
//!
//! Each host has one agent. A wave starts at the same moment at all endpoints, and nothing is sent to an agent during a
//! wave. A lost agent is reconnected between rounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use miette::miette;
use vtax_fleet::{DirectedPair, EndId, MeshEnd, PairTest, PairTestKind, PairTester, TestOutcome};
use vtax_model::{
    endpoint::DeviceName,
    station::{EndSetup, Station},
};
use vtax_wire::{
    measure::SampleOrder,
    pool::{AgentDial, AgentId, AgentPool, PairFailure, PairId, PairSample, Wave, WavePair},
    protocol::{AgentFacts, Reply, Request},
};

use crate::{
    interrupt::Interrupt,
    stop::{Blamed, Stop},
    study::mesh_dial,
};

/// Time limit for an agent's answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Interval between attempts to reconnect lost endpoints.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(30);

/// Agents at the endpoints of a mesh.
pub struct MeshAgents<'a> {
    ends: &'a [MeshEnd],
    program: PathBuf,
    test: PairTest,
    interrupt: Interrupt,
    pool: AgentPool,
    /// The agent of each host.
    agents: BTreeMap<usize, AgentId>,
    /// The address and device of each end.
    stations: BTreeMap<EndId, Station>,
    /// Endpoints that cannot be measured, with the reasons.
    unfit: BTreeMap<EndId, String>,
    attempted: Instant,
}

impl<'a> MeshAgents<'a> {
    /// Connects to the hosts of all endpoints, several at a time. Those that cannot be connected are reported by
    /// [`unfit`](Self::unfit); if none can, that is an error.
    pub fn connect(
        ends: &'a [MeshEnd],
        program: &Path,
        test: PairTest,
        interrupt: Interrupt,
    ) -> Result<MeshAgents<'a>, Stop> {
        let hosts: BTreeMap<usize, &MeshEnd> = ends.iter().map(|end| (end.host, end)).collect();
        let dials = hosts.values().map(|end| mesh_dial(&end.control, program)).collect::<Result<Vec<_>, Stop>>()?;
        let (pool, failures) = AgentPool::connect(dials);
        let agents = hosts.keys().zip(0..).map(|(host, id)| (*host, AgentId(id))).collect();
        let (stations, unfit, attempted) = (BTreeMap::new(), BTreeMap::new(), Instant::now());
        let program = program.to_owned();
        let mut all = MeshAgents { ends, program, test, interrupt, pool, agents, stations, unfit, attempted };
        let why: BTreeMap<AgentId, String> = failures.iter().map(|(id, error)| (*id, error.to_string())).collect();
        all.find_stations(&why)?;
        match failures.into_iter().next() {
            Some((_, error)) if all.stations.is_empty() => Err(Stop::infrastructure(error)),
            _ => Ok(all),
        }
    }

    /// Returns the endpoints that cannot be measured, each with the reason.
    pub fn unfit(&self) -> impl Iterator<Item = (EndId, &str)> {
        self.unfit.iter().map(|(end, why)| (*end, why.as_str()))
    }

    /// Reconnects lost agents, and returns the hosts on which that succeeded.
    fn connect_again(&mut self, hosts: &BTreeSet<usize>) -> BTreeSet<usize> {
        let end = |host: &usize| self.ends.iter().find(|end| end.host == *host);
        let dial = |host: &usize| Some((self.agents[host], mesh_dial(&end(host)?.control, &self.program).ok()?));
        let dials: Vec<(AgentId, AgentDial)> = hosts.iter().filter_map(dial).collect();
        let mut connected: BTreeSet<AgentId> = dials.iter().map(|(id, _)| *id).collect();
        for (id, _) in self.pool.connect_again(dials) {
            connected.remove(&id);
        }
        hosts.iter().copied().filter(|host| connected.contains(&self.agents[host])).collect()
    }

    /// Asks all agents for their addresses.
    fn find_stations(&mut self, failures: &BTreeMap<AgentId, String>) -> Result<(), Stop> {
        let connected = self.agents.values().copied().filter(|id| !failures.contains_key(id));
        let mut facts: BTreeMap<AgentId, Result<Box<AgentFacts>, String>> = BTreeMap::new();
        for (id, reply) in self.pool.ask_all(connected, |_| Request::Describe, ANSWER) {
            let found = match reply {
                Ok(Reply::Facts(facts)) => Ok(facts),
                Ok(_) => Err("its agent sent an unexpected answer".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            facts.insert(id, found);
        }
        for (position, end) in self.ends.iter().enumerate() {
            let id = self.agents[&end.host];
            match facts.get(&id) {
                Some(Ok(facts)) => drop(self.stations.insert(EndId(position), station(end, facts).or_input()?)),
                Some(Err(why)) => drop(self.unfit.insert(EndId(position), why.clone())),
                None => drop(self.unfit.insert(EndId(position), failures.get(&id).cloned().unwrap_or_default())),
            }
        }
        Ok(())
    }
}

/// Returns the local address of an endpoint: the one from its list, or the one at which it is
/// reached.
fn station(end: &MeshEnd, facts: &AgentFacts) -> miette::Result<Station> {
    let of_device = |device: &DeviceName| facts.addresses.iter().find(|own| own.link == device.as_str());
    let known = end.nic.address.or_else(|| Some(of_device(end.nic.device.as_ref()?)?.address));
    let address = known.or(facts.ssh_address).or_else(|| only_address(facts));
    let (name, has) = (&end.name, &facts.addresses);
    let list = || has.iter().map(|own| format!("{} ({})", own.address, own.link)).collect::<Vec<_>>().join(", ");
    match (address, &end.nic.device) {
        (None, _) => Err(miette!(code = "no-address", "{name}: set its `address`; it has {}", list())),
        (Some(address), _) if !has.iter().any(|own| own.address == address) => {
            Err(miette!(code = "no-such-address", "{name} has no address {address}; it has {}", list()))
        }
        (Some(address), None) => Ok(Station::Ip(address)),
        (Some(address), Some(device)) => Ok(Station::Device { address, device: device.clone() }),
    }
}

/// Returns the only address of an endpoint that is neither loopback nor link-local; an IPv4 address if it has any.
fn only_address(facts: &AgentFacts) -> Option<IpAddr> {
    let is_global = |address: &IpAddr| !address.is_loopback() && !crate::study::is_link_local(*address);
    let (old, new): (Vec<IpAddr>, Vec<IpAddr>) =
        facts.addresses.iter().map(|own| own.address).filter(is_global).partition(IpAddr::is_ipv4);
    let family = if old.is_empty() { new } else { old };
    match family[..] {
        [only] => Some(only),
        _ => None,
    }
}

impl MeshAgents<'_> {
    fn order(&self, DirectedPair { from, to }: DirectedPair) -> Option<WavePair> {
        let setup = |end: EndId| {
            Some(EndSetup { station: self.stations.get(&end)?.clone(), cpus: Vec::new(), directory: None, port: None })
        };
        let agent = |end: EndId| self.agents[&self.ends[end.0].host];
        let (initiator, responder) = (setup(from)?, setup(to)?);
        let target = match &responder.station {
            Station::Device { address, .. } => Station::Ip(*address),
            station => station.clone(),
        };
        let order = SampleOrder { spec: self.test.spec(), initiator, responder, target: target.into(), turns: None };
        let id = PairId((from.0 as u64) << 32 | to.0 as u64);
        Some(WavePair { id, initiator: agent(from), responder: agent(to), order })
    }

    /// Measures one source port of each pair. A pair that has failed before isn't measured.
    fn take_port(&mut self, pairs: &[DirectedPair], outcomes: &mut BTreeMap<PairId, TestOutcome>) -> Result<(), Stop> {
        let is_left = |pair: &WavePair| !matches!(outcomes.get(&pair.id), Some(TestOutcome::Failed { .. }));
        let orders = pairs.iter().filter_map(|pair| self.order(*pair)).filter(is_left).collect();
        let wave = Wave::new(orders).map_err(Stop::infrastructure)?;
        for (id, result) in self.pool.take_wave(&wave) {
            match result {
                Ok(sample) => {
                    let outcome = outcomes.entry(id).or_insert_with(|| TestOutcome::Measured(Vec::new()));
                    add(value(self.test.kind, &sample), outcome);
                }
                Err(failure) => drop(outcomes.insert(id, self.failed(&failure))),
            }
        }
        Ok(())
    }

    fn failed(&self, failure: &PairFailure) -> TestOutcome {
        let of_agents: BTreeSet<AgentId> = failure.lost().iter().copied().collect();
        let is_lost = |(_, end): &(usize, &MeshEnd)| of_agents.contains(&self.agents[&end.host]);
        let lost = self.ends.iter().enumerate().filter(is_lost).map(|(position, _)| EndId(position)).collect();
        TestOutcome::Failed { why: failure.to_string().into(), lost }
    }
}

/// A source port over which nothing arrives fails the test: there is no value to compare.
fn add(value: f64, outcome: &mut TestOutcome) {
    match outcome {
        TestOutcome::Measured(values) if value.is_finite() && value > 0.0 => values.push(value),
        TestOutcome::Measured(_) => {
            *outcome = TestOutcome::Failed { why: "nothing was received".into(), lost: Vec::new() }
        }
        TestOutcome::Failed { .. } => {}
    }
}

/// Returns the rate at the receiver in bits per second, or the median round-trip time in seconds.
fn value(kind: PairTestKind, PairSample { initiator, responder, .. }: &PairSample) -> f64 {
    match kind {
        PairTestKind::TcpStream => responder.bytes as f64 * 8.0 / responder.seconds,
        PairTestKind::TcpRr | PairTestKind::UdpRr => {
            initiator.rtt.as_ref().map_or(f64::NAN, |times| times.percentile(50.0) as f64 / 1e9)
        }
    }
}

impl PairTester for MeshAgents<'_> {
    fn take(&mut self, wave: &[DirectedPair]) -> Vec<TestOutcome> {
        let mut outcomes: BTreeMap<PairId, TestOutcome> = BTreeMap::new();
        for _ in 0..self.test.ports {
            if self.interrupt.asked() {
                break;
            }
            if let Err(stop) = self.take_port(wave, &mut outcomes) {
                let failed = |_: &DirectedPair| TestOutcome::Failed { why: stop.to_string().into(), lost: Vec::new() };
                return wave.iter().map(failed).collect();
            }
        }
        let outcome = |pair: &DirectedPair| {
            let unfit = || {
                let lost: Vec<EndId> =
                    [pair.from, pair.to].into_iter().filter(|end| !self.stations.contains_key(end)).collect();
                let why = lost.first().and_then(|end| self.unfit.get(end)).cloned();
                TestOutcome::Failed { why: why.unwrap_or_else(|| "not measured".to_owned()).into(), lost }
            };
            outcomes.remove(&PairId((pair.from.0 as u64) << 32 | pair.to.0 as u64)).unwrap_or_else(unfit)
        };
        wave.iter().map(outcome).collect()
    }

    /// Reconnects lost endpoints, at most every 30 seconds.
    fn reached_again(&mut self, lost: &[EndId]) -> Vec<EndId> {
        if self.attempted.elapsed() < BETWEEN_ATTEMPTS || self.interrupt.asked() {
            return Vec::new();
        }
        self.attempted = Instant::now();
        let hosts: BTreeSet<usize> = lost.iter().map(|end| self.ends[end.0].host).collect();
        let hosts = self.connect_again(&hosts);
        lost.iter().copied().filter(|end| hosts.contains(&self.ends[end.0].host)).collect()
    }
}
