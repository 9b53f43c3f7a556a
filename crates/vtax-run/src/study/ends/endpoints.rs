//! Connects endpoints that exist already: starts their agents, finds their addresses and the links at both ends.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
    rc::Rc,
    sync::Arc,
};

use miette::miette;
use vtax_agent::protocol::LinkAddress;
use vtax_lab::{Lab, LabEndpoint, World};
use vtax_model::{
    endpoint::{Control, End, Endpoint, Ends, NoPairs, pairs},
    method::DomainKind,
    study::Row,
    topology::Name,
    units::Mtu,
};

use super::{
    ConnectedEnds,
    agent::{ANSWER, Agent},
    attachment::{
        Attachment, LabPlace, lab_guest,
        libvirt::{Domain, LibvirtEnd},
        machine::MachineEnd,
    },
    end::{ConnectedEnd, ConnectedRow},
    lookup,
};
use crate::{
    events::RunEvents,
    labs,
    stop::{Blamed, Coded, Stop},
    tuning::{SharedTuner, TuningHost},
};

/// The endpoints of a row, for one MTU or for all MTUs.
pub(crate) struct RowPairs<'a> {
    row: Row,
    mtu: Option<Mtu>,
    pairs: Vec<[&'a Endpoint; 2]>,
}

/// The pairs of each row at each MTU. A row whose pairs are the same at all MTUs has one entry.
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

/// A lab, and those of its endpoints that an endpoint of the user may mean.
type Candidates = (Arc<Lab>, Vec<LabEndpoint>);

pub(crate) struct EndpointConnector<'a> {
    /// Only if an endpoint is in a lab.
    world: Option<&'a World>,
    program: &'a Path,
    events: &'a RunEvents,
    labs: Vec<Arc<Lab>>,
    agents: BTreeMap<(Control, End), Arc<Agent>>,
    /// The domains of libvirt, by their names.
    domains: BTreeMap<String, Rc<Domain>>,
}

impl<'a> EndpointConnector<'a> {
    pub(crate) fn new(world: Option<&'a World>, program: &'a Path, events: &'a RunEvents) -> EndpointConnector<'a> {
        let (labs, agents, domains) = Default::default();
        EndpointConnector { world, program, events, labs, agents, domains }
    }

    /// Adds missing initiators: for a zone, the domain at the other end of its wire, otherwise this machine.
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
        let responder = lookup::candidates(&lab, domain, address)?;
        let (of, lab_name) = (&responder[0], lab.blueprint().lab.clone());
        let control = Control::Zone { lab: Some(lab_name), domain: lookup::counterpart(&lab, of)? };
        let wire = &of.wire;
        self.events.tell(format_args!("from {control}: the other end of the wire `{wire}` of `{domain}`"));
        Ok(control)
    }

    /// Starts the agents and finds out how the ends reach each other: those of the rows, and those of guarded paths.
    pub(crate) fn connect(
        mut self,
        rows: &[RowPairs<'_>],
        guarded: &[Ends<Control>],
        directory: &Path,
    ) -> Result<ConnectedEnds, Stop> {
        let mut connected = Vec::new();
        for RowPairs { row, mtu, pairs } in rows {
            let pairs = pairs.iter().map(|pair| self.pair(*pair)).collect::<Result<_, _>>()?;
            connected.push(ConnectedRow { row: *row, mtu: *mtu, pairs });
        }
        let guarded = guarded.iter().map(|path| self.guarded(path)).collect::<Result<_, _>>()?;
        Ok(ConnectedEnds { guarded, ..ConnectedEnds::new(connected, None, directory) })
    }

    fn guarded(&mut self, Ends { initiator, responder }: &Ends<Control>) -> Result<[ConnectedEnd; 2], Stop> {
        let [from, to] = [(End::Initiator, initiator), (End::Responder, responder)];
        let [from, to] = [from, to].map(|(end, control)| Endpoint::new(end, control.clone()));
        self.pair([&from, &to])
    }

    /// The host of an endpoint, to be tuned. A host or zone of a lab is a namespace of this machine and needs no agent.
    pub(crate) fn tuned(mut self, control: &Control, tuner: &SharedTuner) -> Result<TuningHost, Stop> {
        let endpoint = Endpoint::new(End::Responder, control.clone());
        let found = self.candidates(&endpoint)?;
        let place = found.and_then(|(lab, found)| Some(LabPlace { lab, endpoint: found.into_iter().next()? }));
        match (control, place) {
            (Control::Local, _) => Ok(TuningHost::here(tuner)),
            (_, Some(place)) if place.endpoint.kind == DomainKind::Guest => {
                let agent = lab_guest::only_agent(&place, &control.to_string(), self.events)?;
                Ok(TuningHost::by_agent(Arc::new(agent)))
            }
            (_, Some(LabPlace { lab, endpoint })) => TuningHost::in_namespace(tuner, &lab.namespace_path(&endpoint)),
            (_, None) => {
                let attachment = self.attach(&endpoint, None)?;
                Ok(TuningHost::by_agent(self.agent(&endpoint, &*attachment)?))
            }
        }
    }

    pub(super) fn pair(&mut self, endpoints: [&Endpoint; 2]) -> Result<[ConnectedEnd; 2], Stop> {
        let [here, there] = self.places(endpoints)?;
        let attachment = [self.attach(endpoints[0], here)?, self.attach(endpoints[1], there)?];
        let agents = [self.agent(endpoints[0], &*attachment[0])?, self.agent(endpoints[1], &*attachment[1])?];
        let known = |end: usize| -> Result<Option<IpAddr>, Stop> {
            let of_lab = attachment[end].place().map(|place| IpAddr::V4(place.endpoint.address));
            let on_device = on_device(endpoints[end], &agents[end])?;
            Ok(endpoints[end].address.or(on_device).or(of_lab).or(agents[end].facts.ssh_address))
        };
        let [from, to] = addresses(endpoints, [known(0)?, known(1)?])?;
        check_address(endpoints[0], &agents[0], from)?;
        check_address(endpoints[1], &agents[1], to)?;
        let ([first, second], [initiator, responder]) = (agents, attachment);
        Ok([end(endpoints[0], first, initiator, [from, to])?, end(endpoints[1], second, responder, [to, from])?])
    }

    /// The places in labs of the two endpoints that are in labs.
    fn places(&mut self, ends: [&Endpoint; 2]) -> Result<[Option<LabPlace>; 2], Stop> {
        let one = self.candidates(ends[0])?;
        let other = self.candidates(ends[1])?;
        if let (Some((lab, ones)), Some((same, others))) = (&one, &other)
            && Arc::ptr_eq(lab, same)
        {
            let joined = lookup::joined(lab, ones, others)?;
            return Ok(joined.map(|endpoint| Some(LabPlace { lab: Arc::clone(lab), endpoint })));
        }
        Ok([one, other].map(|found| {
            let (lab, candidates) = found?;
            Some(LabPlace { lab, endpoint: candidates.into_iter().next()? })
        }))
    }

    fn candidates(&mut self, endpoint: &Endpoint) -> Result<Option<Candidates>, Stop> {
        let Control::Zone { lab, domain } = &endpoint.control else { return Ok(None) };
        let lab = self.lab(lab.as_ref(), domain)?;
        let candidates = lookup::candidates(&lab, domain, endpoint.address)?;
        Ok(Some((lab, candidates)))
    }

    fn lab(&mut self, named: Option<&Name>, domain: &Name) -> Result<Arc<Lab>, Stop> {
        let world = self
            .world
            .ok_or_else(|| miette!(code = "no-privilege", "a zone needs the privilege to enter labs"))
            .or_infrastructure()?;
        let name = match named {
            Some(name) => name.clone(),
            None => lookup::lab_of(world, domain)?,
        };
        if let Some(lab) = self.labs.iter().find(|lab| lab.blueprint().lab == name) {
            return Ok(Arc::clone(lab));
        }
        let lab = Arc::new(labs::open(world, &name)?);
        self.labs.push(Arc::clone(&lab));
        Ok(lab)
    }

    fn attach(&mut self, endpoint: &Endpoint, place: Option<LabPlace>) -> Result<Box<dyn Attachment>, Stop> {
        Ok(match (&endpoint.control, place) {
            (Control::Zone { .. }, Some(place)) => place.attach(false).or_infrastructure()?,
            (Control::Ssh(host), _) => Box::new(MachineEnd::Ssh(host.clone())),
            (Control::Libvirt { user, domain }, _) => {
                Box::new(LibvirtEnd::new(self.domain(domain)?, user.as_deref(), endpoint.address))
            }
            (Control::Local | Control::Zone { .. }, _) => Box::new(MachineEnd::Local),
        })
    }

    fn domain(&mut self, name: &str) -> Result<Rc<Domain>, Stop> {
        if let Some(domain) = self.domains.get(name) {
            return Ok(Rc::clone(domain));
        }
        let domain = Rc::new(Domain::find(name)?);
        self.domains.insert(name.to_owned(), Rc::clone(&domain));
        Ok(domain)
    }

    fn agent(&mut self, endpoint: &Endpoint, attachment: &dyn Attachment) -> Result<Arc<Agent>, Stop> {
        let end = if attachment.has_one_agent() { End::Responder } else { endpoint.end };
        let key = (endpoint.control.clone(), end);
        if let Some(agent) = self.agents.get(&key) {
            return Ok(Arc::clone(agent));
        }
        let agent = Arc::new(attachment.start_agent(&endpoint.control.to_string(), self.program, self.events)?);
        self.agents.insert(key, Arc::clone(&agent));
        Ok(agent)
    }
}

fn end(
    endpoint: &Endpoint,
    agent: Arc<Agent>,
    mut attachment: Box<dyn Attachment>,
    [address, peer]: [IpAddr; 2],
) -> Result<ConnectedEnd, Stop> {
    let device = endpoint.device.clone();
    let route = agent.link.route(Some(address), peer, device.clone(), ANSWER).or_infrastructure()?;
    attachment.measure_on(address);
    let (name, cid, pin) = (endpoint.control.to_string(), endpoint.cid, endpoint.pin.clone());
    Ok(ConnectedEnd { agent, name, address, device, attachment, route, cid, pin, cpus: Vec::new() })
}

/// The address of the device to which an end is to be bound, if it is bound to one.
fn on_device(endpoint: &Endpoint, agent: &Agent) -> Result<Option<IpAddr>, Stop> {
    let Some(device) = &endpoint.device else { return Ok(None) };
    let (control, has) = (&endpoint.control, &agent.facts.addresses);
    if let Control::Zone { .. } = control {
        return Err(Stop::input(miette!(
            code = "option-not-for-this",
            "{control}: the wires of a lab tell on which device an end measures; choose one by its address"
        )));
    }
    let of_device = |own: &&LinkAddress| own.link == device.as_str();
    let fits = |own: &&LinkAddress| endpoint.address.is_none_or(|address| address == own.address);
    match has.iter().filter(of_device).find(fits) {
        Some(own) => Ok(Some(own.address)),
        None => {
            let has: Vec<String> = has.iter().map(|own| format!("{} ({})", own.link, own.address)).collect();
            let address = endpoint.address.map(|address| format!("the address {address}"));
            let what = address.unwrap_or("an address".to_owned());
            let has = has.join(", ");
            Err(Stop::input(miette!(
                code = "no-such-link",
                "{control} has no device {device} with {what} to measure on; it has {has}"
            )))
        }
    }
}

/// Refuses an address that an end doesn't have: each of its samples would fail to bind it.
fn check_address(endpoint: &Endpoint, agent: &Agent, address: IpAddr) -> Result<(), Stop> {
    let has = &agent.facts.addresses;
    if address.is_loopback() || has.is_empty() || has.iter().any(|own| own.address == address) {
        return Ok(());
    }
    let has: Vec<String> = has.iter().map(|own| format!("{} ({})", own.address, own.link)).collect();
    let control = &endpoint.control;
    Err(Stop::input(miette!(
        code = "no-such-address",
        "{control} has no address {address} to measure on; it has {}",
        has.join(", ")
    )))
}

/// The addresses of a pair. The kernel chooses an unknown address of an end on this machine.
fn addresses(ends: [&Endpoint; 2], known: [Option<IpAddr>; 2]) -> Result<[IpAddr; 2], Stop> {
    let missing = |endpoint: &Endpoint| {
        let (control, option) =
            (&endpoint.control, if endpoint.end == End::Initiator { "--from-address" } else { "--to-address" });
        Stop::input(miette!(
            code = "no-address",
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
        return Err(Stop::input(miette!(
            code = "address-families",
            "{from} at {initiator} and {to} at {responder} are of two address families; give both ends an `address` of one"
        )));
    }
    Ok([initiator, responder])
}

/// The address by which this machine reaches another. Connecting a UDP socket sends nothing (udp(7)).
fn source_address(peer: IpAddr) -> miette::Result<IpAddr> {
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
    source().coded("no-route", || format!("this machine has no way to {peer}"))
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
