//! Endpoints that exist already: their agents, their addresses, the links at both ends.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
};

use anyhow::{Context, anyhow};
use vtax_lab::{Lab, LabEndpoint, World};
use vtax_model::{
    endpoint::{Control, End, Endpoint, NoPairs, pairs},
    method::DomainKind,
    run::Hop,
    study::Row,
    topology::Name,
    units::Mtu,
};

use super::{
    ConnectedEnd, ConnectedEnds, ConnectedRow, EndsLab, Place,
    agents::{ANSWER, Agent},
    guests,
    libvirt::Domain,
    zones,
};
use crate::{
    exit::{Blamed, Stop},
    labs,
};

/// The endpoints of a row, for one MTU or for all.
pub(crate) struct RowPairs<'a> {
    row: Row,
    mtu: Option<Mtu>,
    pairs: Vec<[&'a Endpoint; 2]>,
}

/// The pairs of each row at each MTU; as one where they are the same at all.
pub(crate) fn row_pairs<'a>(
    endpoints: &'a [Endpoint],
    rows: &[Row],
    mtus: &[Mtu],
) -> Result<Vec<RowPairs<'a>>, NoPairs> {
    let mut found = Vec::new();
    for row in rows {
        let of_row =
            mtus.iter().map(|mtu| Ok((*mtu, pairs(endpoints, *row, *mtu)?))).collect::<Result<Vec<_>, NoPairs>>()?;
        let same = of_row.windows(2).all(|two| two[0].1 == two[1].1);
        let kept = if same { 1 } else { of_row.len() };
        found.extend(of_row.into_iter().take(kept).map(|(mtu, pairs)| {
            let mtu = (!same).then_some(mtu);
            RowPairs { row: *row, mtu, pairs }
        }));
    }
    Ok(found)
}

/// Endpoints as they are being connected.
pub(crate) struct StandingEnds<'a> {
    /// Only if one of them is in a lab.
    world: Option<&'a World>,
    program: &'a Path,
    labs: Vec<Lab>,
    agents: Vec<Agent>,
    /// An agent for each way and end: a process that was both ends of a pair would measure how its
    /// threads get on with each other.
    by_control: BTreeMap<(Control, End), usize>,
    /// Libvirt's, by their names.
    domains: BTreeMap<String, Domain>,
}

impl<'a> StandingEnds<'a> {
    pub(crate) fn new(world: Option<&'a World>, program: &'a Path) -> StandingEnds<'a> {
        let (labs, agents, by_control, domains) = Default::default();
        StandingEnds { world, program, labs, agents, by_control, domains }
    }

    /// Gives responders without any initiator theirs: a zone whoever is at the other end of its
    /// wire, everything else this machine.
    pub(crate) fn complete(&mut self, mut endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, Stop> {
        if endpoints.iter().any(|endpoint| endpoint.end == End::Initiator) {
            return Ok(endpoints);
        }
        let mut initiators = Vec::new();
        for responder in &endpoints {
            let control = match &responder.control {
                Control::Zone { lab, domain } => self.across(lab.as_ref(), domain, responder.address)?,
                Control::Local | Control::Ssh(_) | Control::Libvirt { .. } => Control::Local,
            };
            initiators.push(Endpoint::new(End::Initiator, control));
        }
        endpoints.extend(initiators);
        Ok(endpoints)
    }

    fn across(&mut self, lab: Option<&Name>, domain: &Name, address: Option<IpAddr>) -> Result<Control, Stop> {
        let lab = self.lab(lab, domain)?;
        let responder = zones::candidates(lab, domain, address)?;
        let (of, lab_name) = (&responder[0], lab.blueprint().lab.clone());
        let control = Control::Zone { lab: Some(lab_name), domain: zones::counterpart(lab, of)? };
        eprintln!("from {control}: the other end of the wire `{}` of `{domain}`", of.wire);
        Ok(control)
    }

    /// Starts the agents and finds out how the ends reach each other.
    pub(crate) fn connect(mut self, rows: &[RowPairs<'_>], directory: &Path) -> Result<ConnectedEnds, Stop> {
        let mut staged = Vec::new();
        for RowPairs { row, mtu, pairs } in rows {
            let pairs = pairs.iter().map(|pair| self.pair(*pair)).collect::<Result<_, _>>()?;
            staged.push(ConnectedRow { row: *row, mtu: *mtu, pairs });
        }
        Ok(ConnectedEnds::new(EndsLab::Standing(self.labs), self.agents, staged, directory))
    }

    fn pair(&mut self, ends: [&Endpoint; 2]) -> Result<[ConnectedEnd; 2], Stop> {
        let places = self.places(ends)?;
        let agents = [self.agent(ends[0], places[0].as_ref())?, self.agent(ends[1], places[1].as_ref())?];
        let known = |end: usize| {
            let of_place = places[end].as_ref().map(|place| IpAddr::V4(place.endpoint.address));
            ends[end].address.or(of_place).or(self.agents[agents[end]].facts.ssh_address)
        };
        let addresses = addresses(ends, [known(0), known(1)])?;
        for end in 0..2 {
            self.check_address(ends[end], agents[end], addresses[end])?;
        }
        let [to, from] = addresses;
        let [one, other] = places;
        Ok([
            self.party(ends[0], agents[0], one, (addresses[0], from))?,
            self.party(ends[1], agents[1], other, (addresses[1], to))?,
        ])
    }

    fn party(
        &self,
        endpoint: &Endpoint,
        agent: usize,
        place: Option<Place>,
        (address, peer): (IpAddr, IpAddr),
    ) -> Result<ConnectedEnd, Stop> {
        let route = self.route(agent, address, peer)?;
        let tenant = self.domain(&endpoint.control).map(|domain| Box::new(domain.at(address)));
        Ok(ConnectedEnd {
            agent,
            name: endpoint.control.to_string(),
            address,
            cid: endpoint.cid,
            pin: endpoint.pin.clone(),
            cpus: Vec::new(),
            place,
            route,
            vcpus: None,
            tenant,
        })
    }

    fn route(&self, agent: usize, from: IpAddr, to: IpAddr) -> Result<Vec<Hop>, Stop> {
        self.agents[agent].link.route(Some(from), to, ANSWER).or_infrastructure()
    }

    /// An address that an end doesn't have could not be bound, in each of its samples.
    fn check_address(&self, endpoint: &Endpoint, agent: usize, address: IpAddr) -> Result<(), Stop> {
        let has = &self.agents[agent].facts.addresses;
        if address.is_loopback() || has.is_empty() || has.iter().any(|own| own.address == address) {
            return Ok(());
        }
        let has: Vec<String> = has.iter().map(|own| format!("{} ({})", own.address, own.link)).collect();
        let control = &endpoint.control;
        Err(Stop::input(anyhow!("{control} has no address {address} to measure on; it has {}", has.join(", "))))
    }

    /// Where in labs the two ends are, for those that are.
    fn places(&mut self, ends: [&Endpoint; 2]) -> Result<[Option<Place>; 2], Stop> {
        let one = self.candidates(ends[0])?;
        let other = self.candidates(ends[1])?;
        if let (Some((lab, ones)), Some((same, others))) = (&one, &other)
            && lab == same
        {
            let lab = self.open(lab)?;
            let joined = zones::joined(lab, ones, others)?;
            let name = &lab.blueprint().lab;
            return Ok(joined.map(|endpoint| Some(Place { lab: name.clone(), endpoint })));
        }
        Ok([one, other].map(|found| {
            let (lab, candidates) = found?;
            Some(Place { lab, endpoint: candidates.into_iter().next()? })
        }))
    }

    fn candidates(&mut self, endpoint: &Endpoint) -> Result<Option<(Name, Vec<LabEndpoint>)>, Stop> {
        let Control::Zone { lab, domain } = &endpoint.control else { return Ok(None) };
        let lab = self.lab(lab.as_ref(), domain)?;
        Ok(Some((lab.blueprint().lab.clone(), zones::candidates(lab, domain, endpoint.address)?)))
    }

    /// The lab that a zone is in.
    fn lab(&mut self, named: Option<&Name>, domain: &Name) -> Result<&Lab, Stop> {
        let name = match named {
            Some(name) => name.clone(),
            None => zones::lab_of(self.world()?, domain)?,
        };
        self.open(&name)
    }

    fn open(&mut self, name: &Name) -> Result<&Lab, Stop> {
        let known = self.labs.iter().position(|lab| lab.blueprint().lab == *name);
        let index = match known {
            Some(index) => index,
            None => {
                self.labs.push(labs::open(self.world()?, name)?);
                self.labs.len() - 1
            }
        };
        Ok(&self.labs[index])
    }

    fn world(&self) -> Result<&'a World, Stop> {
        self.world.context("a zone needs the privilege to enter labs").or_infrastructure()
    }

    fn agent(&mut self, endpoint: &Endpoint, place: Option<&Place>) -> Result<usize, Stop> {
        // A guest has one agent, for whatever end.
        let in_guest = place.is_some_and(|place| place.endpoint.kind == DomainKind::Guest);
        let end = if in_guest { End::Responder } else { endpoint.end };
        let key = (endpoint.control.clone(), end);
        if let Some(index) = self.by_control.get(&key) {
            return Ok(*index);
        }
        let agent = self.start(endpoint, place)?;
        self.agents.push(agent);
        self.by_control.insert(key, self.agents.len() - 1);
        Ok(self.agents.len() - 1)
    }

    fn start(&mut self, endpoint: &Endpoint, place: Option<&Place>) -> Result<Agent, Stop> {
        let (program, control) = (self.program, &endpoint.control);
        match (control, place) {
            (Control::Ssh(host), _) => {
                eprintln!("connecting to {control}");
                Agent::ssh(host, program)
            }
            (Control::Libvirt { user, domain }, _) => self.enter_domain(user.as_deref(), domain, endpoint.address),
            (Control::Zone { .. }, Some(Place { lab, endpoint })) if endpoint.kind == DomainKind::Guest => {
                let lab = self.open(lab)?;
                let guest = guests::planned(lab, &endpoint.name).or_infrastructure()?;
                guests::enter(&control.to_string(), lab, guest, endpoint.mtu).or_infrastructure()
            }
            (Control::Zone { .. }, Some(place)) => {
                let lab = self.open(&place.lab)?;
                Agent::in_lab(&control.to_string(), lab, &place.endpoint, program).or_infrastructure()
            }
            (Control::Local | Control::Zone { .. }, _) => Agent::local(program).or_infrastructure(),
        }
    }

    /// By ssh, to an address that libvirt knows.
    fn enter_domain(&mut self, user: Option<&str>, name: &str, measured: Option<IpAddr>) -> Result<Agent, Stop> {
        let domain = Domain::find(name)?;
        let address = domain.entrance(measured)?;
        let host = user.map_or(address.to_string(), |user| format!("{user}@{address}"));
        eprintln!("connecting to libvirt:{name} by ssh:{host}");
        self.domains.insert(name.to_owned(), domain);
        Agent::ssh(&host, self.program)
    }

    fn domain(&self, control: &Control) -> Option<&Domain> {
        let Control::Libvirt { domain, .. } = control else { return None };
        self.domains.get(domain)
    }
}

/// The addresses of a pair: what is known, and for an end on this machine the one by which the
/// kernel reaches the other.
fn addresses(ends: [&Endpoint; 2], known: [Option<IpAddr>; 2]) -> Result<[IpAddr; 2], Stop> {
    let missing = |endpoint: &Endpoint| {
        let (control, option) =
            (&endpoint.control, if endpoint.end == End::Initiator { "--from-address" } else { "--to-address" });
        Stop::input(anyhow!(
            "{control}: ssh doesn't tell at which address it is reached; give its `address` ({option})"
        ))
    };
    let local = |endpoint: &Endpoint, peer: Option<IpAddr>| match (&endpoint.control, peer) {
        (Control::Local, None) => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        (Control::Local, Some(peer)) => source_address(peer).or_input(),
        (Control::Ssh(_) | Control::Zone { .. } | Control::Libvirt { .. }, _) => Err(missing(endpoint)),
    };
    let responder = known[1].map_or_else(|| local(ends[1], known[0]), Ok)?;
    let initiator = known[0].map_or_else(|| local(ends[0], Some(responder)), Ok)?;
    if initiator.is_ipv4() != responder.is_ipv4() {
        let [from, to] = ends.map(|end| &end.control);
        return Err(Stop::input(anyhow!(
            "{from} at {initiator} and {to} at {responder} are of two address families; give both ends an `address` of one"
        )));
    }
    Ok([initiator, responder])
}

/// By which address this machine reaches another: connecting a UDP socket sends nothing (udp(7)).
fn source_address(peer: IpAddr) -> anyhow::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    const DISCARD: u16 = 9;
    let source = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((peer, DISCARD))?;
        Ok(socket.local_addr()?.ip())
    };
    source().with_context(|| format!("this machine has no way to {peer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(end: End, control: &str) -> Endpoint {
        Endpoint::new(end, control.parse().expect("a control"))
    }

    fn found(from: &str, to: &str, known: [Option<&str>; 2]) -> Result<[String; 2], String> {
        let ends = [&end(End::Initiator, from), &end(End::Responder, to)];
        let known = known.map(|known| known.map(|address| address.parse().expect("an address")));
        addresses(ends, known).map(|both| both.map(|one| one.to_string())).map_err(|stop| stop.to_string())
    }

    #[test]
    fn addresses_are_those_by_which_the_ends_reach_each_other() {
        let both = |one: &str, other: &str| Ok([one.to_owned(), other.to_owned()]);
        assert_eq!(found("local", "local", [None, None]), both("127.0.0.1", "127.0.0.1"));
        assert_eq!(found("local", "local", [None, Some("127.0.0.5")]), both("127.0.0.1", "127.0.0.5"));
        assert_eq!(found("local", "ssh:a", [None, Some("127.0.0.7")]), both("127.0.0.1", "127.0.0.7"));
        let vms = [Some("192.0.2.1"), Some("192.0.2.2")];
        assert_eq!(found("ssh:a", "ssh:b", vms), both("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn addresses_that_are_unknown_or_of_two_families_are_refused() {
        let refused = |from, to, known| insta::assert_snapshot!(found(from, to, known).expect_err("refused"));
        refused("local", "ssh:a", [None, None]);
        refused("ssh:a", "local", [None, Some("127.0.0.1")]);
        refused("ssh:a", "ssh:b", [Some("192.0.2.1"), Some("2001:db8::1")]);
    }

    #[test]
    fn a_row_s_pairs_are_one_set_unless_they_differ_by_mtu() {
        let [native, bridge] = ["native", "bridge"].map(|row| row.parse::<Row>().expect("a row"));
        let [ethernet, jumbo] = [1500, 9000].map(|mtu| Mtu::try_from(mtu).expect("possible"));
        let mut endpoints = vec![end(End::Initiator, "local"), end(End::Responder, "ssh:a")];
        for (mtu, host) in [(ethernet, "ssh:b"), (jumbo, "ssh:c")] {
            endpoints.push(Endpoint { method: Some(bridge), mtu: Some(mtu), ..end(End::Responder, host) });
        }
        let found = row_pairs(&endpoints, &[native, bridge], &[ethernet, jumbo]).expect("all have some");
        let shape: Vec<_> = found.iter().map(|pairs| (pairs.row, pairs.mtu, pairs.pairs.len())).collect();
        assert_eq!(shape, [(native, None, 1), (bridge, Some(ethernet), 1), (bridge, Some(jumbo), 1)]);
    }
}
