//! A plan in the making.

use std::collections::{HashMap, HashSet};

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use vtax_model::{
    method::{DomainKind, IoMethod},
    topology::{Name, Topology, Wire, Zone},
    units::Mtu,
};

use super::{
    Blueprint, Endpoint, Far, Plan, PlanError, PlannedLink, PlannedWire, Tunnel, TunnelEnd,
    addresses::Layout,
    segment::{self, End, Segment},
    tunnel::{self, Pair},
};
use crate::{
    facts::Facts,
    limit::Limit,
    nic::{self, AddressOf, Attachment, Claim, Nic},
    place::{LinkName, Place},
    step::{LabStep, NewLink},
};

/// A bridge has ten bits for the numbers of its ports (`BR_PORT_BITS`), and none is 0.
const MOST_PORTS: usize = 1023;

/// A plan in the making.
pub(crate) struct Draft<'a> {
    topology: &'a Topology,
    nics: Vec<&'static Nic>,
    segments: Vec<Segment>,
    pairs: Vec<Pair>,
    layout: Layout,
    uplinks: HashMap<End, Uplink>,
    vnets: HashMap<Name, usize>,
    sysctls: HashSet<(Name, &'static str)>,
    /// What tunnels carry, if there are any.
    tunnel_mtu: Option<Mtu>,
    blueprint: Blueprint,
    steps: Vec<LabStep>,
}

/// What a host has on one of its wires.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    /// The wire's end; in the zone if the wire is exclusively its own.
    pub(crate) wire: Place,
    /// The link with the host's address first, then those below it.
    pub(crate) stack: Vec<Place>,
}

impl<'a> Draft<'a> {
    /// Checks all that can be refused.
    pub(super) fn begin(topology: &'a Topology, facts: &Facts) -> Result<Draft<'a>, PlanError> {
        if facts.labs.contains(&topology.name) {
            return Err(PlanError::NameTaken { lab: topology.name.clone() });
        }
        nic::wire(facts).map_err(PlanError::NoWires)?;
        check_shapes(topology, facts)?;
        topology.zones.iter().try_for_each(|zone| check_place(topology, zone))?;
        let nics: Vec<_> = topology.zones.iter().map(|zone| supported(zone, facts)).collect::<Result<_, _>>()?;
        check_clashes(topology, &nics)?;
        check_limits(topology, &nics, facts)?;
        let tunnel_mtu = tunnel_mtu(topology)?;
        let segments = segment::segments(topology)?;
        let pairs = tunnel::pairs(topology, &segments)?;
        check_far_ends(topology, &pairs)?;
        let addresses: Vec<AddressOf> = nics.iter().map(|nic| nic.address).collect();
        let layout = Layout::of(topology, &addresses, &segments, &pairs, facts)?;
        let uplinks = uplinks(topology, &segments);
        let blueprint = blueprint(topology, layout.range);
        let (vnets, sysctls, steps) = Default::default();
        Ok(Draft { topology, nics, segments, pairs, layout, uplinks, vnets, sysctls, tunnel_mtu, blueprint, steps })
    }

    pub(super) fn build(mut self) -> Result<Plan, PlanError> {
        let topology = self.topology;
        topology.hosts.iter().for_each(|host| self.namespace(&host.name));
        self.exclusive_zones().iter().for_each(|zone| self.namespace(zone));
        topology.wires.iter().for_each(|wire| self.wire(wire));
        topology.hosts.iter().filter(|host| host.switch).for_each(|host| self.switch(&host.name));
        for end in self.segments.clone().iter().flat_map(|segment| &segment.ends) {
            self.host_end(end);
        }
        for (zone, nic) in topology.zones.iter().zip(self.nics.clone()) {
            self.attach(zone, nic);
        }
        for segment in self.segments.clone() {
            self.routes(&segment);
        }
        self.limits();
        self.steps.push(LabStep::Verify);
        Ok(Plan { blueprint: self.blueprint, steps: self.steps })
    }

    fn exclusive_zones(&self) -> Vec<Name> {
        let zones = self.topology.zones.iter().zip(&self.nics);
        zones.filter(|(_, nic)| nic.claim == Claim::All).map(|(zone, _)| zone.name.clone()).collect()
    }

    /// Both ends of a wire; those on a switch are enabled with it.
    fn wire(&mut self, wire: &Wire) {
        let ends = wire.ends.clone().map(|host| self.wire_end(&host, wire));
        self.link(&ends[0], NewLink::Veth { peer: ends[1].clone() }, &wire.name);
        let switches = wire.ends.clone().map(|host| self.is_switch(&host).then(|| switch_place(&host)));
        for (end, switch) in ends.iter().zip(&switches) {
            if switch.is_none() && self.bridge_above(end).is_none() {
                self.enable(end, None, &wire.name);
            }
        }
        self.blueprint.wires.push(PlannedWire { name: wire.name.clone(), ends, switches, shape: wire.shape });
    }

    fn wire_end(&self, host: &Name, wire: &Wire) -> Place {
        let end = End { host: host.clone(), wire: wire.name.clone() };
        match self.uplinks.get(&end) {
            Some(uplink) => uplink.wire.clone(),
            None => Place::new(host, LinkName::wire(wire_index(self.topology, host, &wire.name))),
        }
    }

    fn bridge_above(&self, wire_end: &Place) -> Option<Place> {
        let uplink = self.uplinks.values().find(|uplink| uplink.wire == *wire_end)?;
        (uplink.stack[0] != uplink.wire).then(|| uplink.stack[0].clone())
    }

    fn is_switch(&self, host: &Name) -> bool {
        self.topology.hosts.iter().any(|other| other.name == *host && other.switch)
    }

    fn switch(&mut self, host: &Name) {
        let bridge = switch_place(host);
        self.link(&bridge, NewLink::Bridge, host);
        self.enable(&bridge, None, host);
        let topology = self.topology;
        for wire in topology.wires.iter().filter(|wire| wire.ends.contains(host)) {
            let port = self.wire_end(host, wire);
            self.enable(&port, Some(&bridge.link), &wire.name);
        }
    }

    /// The host's bridge if its zones need one, its address and its endpoint.
    fn host_end(&mut self, end: &End) {
        let uplink = self.uplinks[end].clone();
        if let [bridge, port] = uplink.stack.as_slice() {
            self.link(bridge, NewLink::Bridge, &end.wire);
            self.enable(bridge, None, &end.wire);
            self.enable(port, Some(&bridge.link), &end.wire);
        }
        if uplink.wire.namespace != end.host {
            return;
        }
        let address = self.layout.host(end);
        self.address(&uplink.stack[0], address);
        self.blueprint.endpoints.push(Endpoint {
            name: end.host.clone(),
            kind: DomainKind::Primary,
            host: end.host.clone(),
            method: IoMethod::Native,
            wire: end.wire.clone(),
            address: address.addr(),
            interface: uplink.stack[0].link.clone(),
            namespace: end.host.clone(),
            mtu: self.blueprint.mtu,
            stack: uplink.stack,
        });
    }

    fn attach(&mut self, zone: &'a Zone, nic: &'static Nic) {
        let end = End { host: zone.host.clone(), wire: zone.wire.clone() };
        let uplink = self.uplinks[&end].clone();
        let address = self.layout.zone(&zone.name).unwrap_or_else(|| self.layout.host(&end));
        (nic.attach)(&Attachment { zone, uplink: &uplink, address }, self);
    }

    /// Every stack on the segment learns the way to the zones that are routed by a host.
    fn routes(&mut self, segment: &Segment) {
        for end in &segment.ends {
            let Some(block) = self.layout.block(end) else { continue };
            let via = self.layout.host(end).addr();
            for stack in self.stacks(segment, end) {
                self.steps.push(LabStep::AddRoute { namespace: stack, to: block, via });
            }
        }
    }

    /// Both ends of each wire with a rate: each limits what it sends.
    fn limits(&mut self) {
        for wire in &self.blueprint.wires {
            let Some(shape) = &wire.shape else { continue };
            let limit = Limit::of(shape, self.blueprint.mtu);
            self.steps.extend(wire.ends.iter().map(|at| LabStep::LimitRate { at: at.clone(), limit }));
        }
    }

    /// The namespaces with an address on the segment, other than the host of `router`.
    fn stacks(&self, segment: &Segment, router: &End) -> Vec<Name> {
        let on_wire = |zone: &&Zone| segment.ends.iter().any(|end| end.wire == zone.wire && end.host == zone.host);
        let hosts =
            segment.ends.iter().filter(|end| self.uplinks[*end].wire.namespace == end.host).map(|end| &end.host);
        let zones = self.topology.zones.iter().zip(&self.nics).filter(|(zone, nic)| {
            on_wire(zone)
                && matches!(nic.address, AddressOf::Wire | AddressOf::Host)
                && self.blueprint.zone(&zone.name).is_some_and(|endpoint| endpoint.namespace == zone.name)
        });
        let mut seen = HashSet::from([&router.host]);
        let stacks = hosts.chain(zones.map(|(zone, _)| &zone.name));
        stacks.filter(|name| seen.insert(name)).cloned().collect()
    }
}

/// What the methods add to a plan.
impl Draft<'_> {
    pub(crate) fn namespace(&mut self, namespace: &Name) {
        self.steps.push(LabStep::CreateNamespace { namespace: namespace.clone() });
    }

    /// A link; of a veth pair, both ends. `object` is what it is for.
    pub(crate) fn link(&mut self, at: &Place, kind: NewLink, object: &Name) {
        let (less, mtu) = match (&kind, self.tunnel_mtu) {
            (NewLink::Vxlan { .. }, Some(inner)) => (IoMethod::Vxlan.overhead(), inner),
            _ => (0, self.blueprint.mtu),
        };
        let mark = self.mark(object);
        let planned = |place: &Place| PlannedLink {
            place: place.clone(),
            kind: kind.name().to_owned(),
            less,
            mark: mark.clone(),
        };
        let mut links = vec![planned(at)];
        if let NewLink::Veth { peer } = &kind {
            links.push(planned(peer));
        }
        self.blueprint.links.extend(links);
        self.steps.push(LabStep::CreateLink { at: at.clone(), kind, mtu });
    }

    pub(crate) fn enable(&mut self, at: &Place, bridge: Option<&LinkName>, object: &Name) {
        let mark = self.mark(object);
        self.steps.push(LabStep::EnableLink { at: at.clone(), bridge: bridge.cloned(), mark });
    }

    pub(crate) fn address(&mut self, at: &Place, address: Ipv4Net) {
        self.steps.push(LabStep::AddAddress { at: at.clone(), address });
    }

    pub(crate) fn default_route(&mut self, namespace: &Name, via: Ipv4Addr) {
        self.steps.push(LabStep::AddRoute { namespace: namespace.clone(), to: Ipv4Net::default(), via });
    }

    /// Once for each namespace, however many zones need it.
    pub(crate) fn sysctl(&mut self, namespace: &Name, key: &'static str, value: &str) {
        if self.sysctls.insert((namespace.clone(), key)) {
            let (namespace, value) = (namespace.clone(), value.to_owned());
            self.steps.push(LabStep::SetSysctl { namespace, key: key.to_owned(), value });
        }
    }

    /// The host's side of its next zone's veth pair.
    pub(crate) fn vnet(&mut self, host: &Name) -> Place {
        let next = self.vnets.entry(host.clone()).or_default();
        *next += 1;
        Place::new(host, LinkName::vnet(*next - 1))
    }

    /// The host's address towards a routed zone.
    pub(crate) fn routed_gateway(&self, zone: &Name) -> Ipv4Net {
        self.layout.gateway(zone)
    }

    /// The tunnel of a zone.
    pub(crate) fn tunnel(&self, zone: &Name) -> Tunnel {
        let of_zone = |pair: &&Pair| pair.near == *zone || pair.far.as_ref() == Some(zone);
        let found = self.pairs.iter().zip(1..).find(|(pair, _)| of_zone(pair));
        let (pair, vni) = found.expect("begin() made a pair for each zone with a tunnel");
        let [near, far] = [0, 1].map(|end| self.layout.host(&pair.ends[end]).addr());
        let (local, remote) = if pair.near == *zone { (near, far) } else { (far, near) };
        let far = match pair.far {
            Some(_) => Far::Zone,
            None => Far::Host { uplink: self.uplinks[&pair.ends[1]].clone(), address: self.layout.far_host(zone) },
        };
        Tunnel { vni, local, remote, far }
    }

    /// The links of the host at the other end of a zone's tunnel.
    pub(crate) fn far_stack(&mut self, zone: &Name, stack: Vec<Place>) {
        self.blueprint.tunnels.push(TunnelEnd { zone: zone.clone(), stack });
    }

    /// A zone that has one link of its own, directly on the wire.
    pub(crate) fn on_wire(&mut self, zone: &Attachment<'_>, kind: NewLink) {
        let link = zone.link();
        self.namespace(&zone.zone.name);
        self.link(&link, kind, &zone.zone.name);
        self.enable(&link, None, &zone.zone.name);
        self.address(&link, zone.address);
        self.zone_endpoint(zone, vec![link, zone.uplink.wire.clone()]);
    }

    /// The zone's endpoint; the first of its links has the address.
    pub(crate) fn zone_endpoint(&mut self, attachment: &Attachment<'_>, stack: Vec<Place>) {
        let zone = attachment.zone;
        let mtu = match (zone.method, self.tunnel_mtu) {
            (IoMethod::Vxlan, Some(inner)) => inner,
            _ => self.blueprint.mtu,
        };
        self.blueprint.endpoints.push(Endpoint {
            name: zone.name.clone(),
            kind: DomainKind::Zone,
            host: zone.host.clone(),
            method: zone.method,
            wire: zone.wire.clone(),
            address: attachment.address.addr(),
            interface: stack[0].link.clone(),
            namespace: stack[0].namespace.clone(),
            mtu,
            stack,
        });
    }

    fn mark(&self, object: &Name) -> String {
        format!("vtax:{}:{object}", self.blueprint.lab)
    }
}

fn blueprint(topology: &Topology, addresses: Ipv4Net) -> Blueprint {
    Blueprint {
        lab: topology.name.clone(),
        mtu: topology.mtu,
        addresses,
        hosts: topology.hosts.iter().map(|host| host.name.clone()).collect(),
        zones: topology.zones.iter().map(|zone| zone.name.clone()).collect(),
        links: Vec::new(),
        wires: Vec::new(),
        endpoints: Vec::new(),
        tunnels: Vec::new(),
    }
}

fn uplinks(topology: &Topology, segments: &[Segment]) -> HashMap<End, Uplink> {
    let ends = segments.iter().flat_map(|segment| &segment.ends);
    ends.map(|end| (end.clone(), uplink(topology, end))).collect()
}

fn uplink(topology: &Topology, end: &End) -> Uplink {
    let has = |method| zones_at(topology, end).find(|zone| zone.method == method);
    let index = wire_index(topology, &end.host, &end.wire);
    let wire = match has(IoMethod::Exclusive) {
        Some(zone) => Place::new(&zone.name, LinkName::zone()),
        None => Place::new(&end.host, LinkName::wire(index)),
    };
    let bridge = has(IoMethod::Bridge).map(|_| Place::new(&end.host, LinkName::switch(index)));
    let stack = bridge.into_iter().chain([wire.clone()]).collect();
    Uplink { wire, stack }
}

fn switch_place(host: &Name) -> Place {
    Place::new(host, LinkName::switch(0))
}

fn zones_at<'a>(topology: &'a Topology, end: &End) -> impl Iterator<Item = &'a Zone> {
    topology.zones.iter().filter(move |zone| zone.host == end.host && zone.wire == end.wire)
}

/// The place of a wire among those of a host.
fn wire_index(topology: &Topology, host: &Name, wire: &Name) -> usize {
    topology.wires.iter().filter(|other| other.ends.contains(host)).take_while(|other| other.name != *wire).count()
}

fn supported(zone: &Zone, facts: &Facts) -> Result<&'static Nic, PlanError> {
    nic::supported(zone.method, facts).map_err(|unsupported| PlanError::Unsupported {
        zone: zone.name.clone(),
        method: zone.method,
        unsupported,
    })
}

/// Files are checked when they are read; a topology made by a program is checked here.
fn check_place(topology: &Topology, zone: &Zone) -> Result<(), PlanError> {
    let unknown =
        |what, name: &Name, why| Err(PlanError::Unknown { user: zone.name.clone(), what, name: name.clone(), why });
    match topology.hosts.iter().find(|host| host.name == zone.host) {
        None => return unknown("host", &zone.host, "there is no such host"),
        Some(host) if host.switch => return unknown("host", &zone.host, "a switch owns no zones"),
        Some(_) => {}
    }
    match topology.wires.iter().find(|wire| wire.name == zone.wire) {
        None => unknown("wire", &zone.wire, "there is no such wire"),
        Some(wire) if !wire.ends.contains(&zone.host) => {
            unknown("wire", &zone.wire, "it doesn't end at the zone's host")
        }
        Some(_) => Ok(()),
    }
}

fn check_shapes(topology: &Topology, facts: &Facts) -> Result<(), PlanError> {
    let shaped = topology.wires.iter().find(|wire| wire.shape.is_some());
    match (shaped, facts.lacks(Facts::RATE_LIMIT)) {
        (Some(wire), Some(why)) => Err(PlanError::NoRate { wire: wire.name.clone(), why: why.to_owned() }),
        _ => Ok(()),
    }
}

/// Compares each zone with the first of each kind before it on the same end.
fn check_clashes(topology: &Topology, nics: &[&'static Nic]) -> Result<(), PlanError> {
    let mut before: HashMap<(&Name, &Name), Vec<(&Zone, &Nic)>> = HashMap::new();
    for (zone, nic) in topology.zones.iter().zip(nics) {
        let here = before.entry((&zone.host, &zone.wire)).or_default();
        if let Some((first, why)) =
            here.iter().find_map(|(first, other)| Some((first, clash(first, other, zone, nic)?)))
        {
            return Err(PlanError::Clash {
                wire: zone.wire.clone(),
                host: zone.host.clone(),
                first: first.name.clone(),
                first_method: first.method,
                second: zone.name.clone(),
                second_method: zone.method,
                why,
            });
        }
        if here.iter().all(|(first, _)| first.method != zone.method) {
            here.push((zone, nic));
        }
    }
    Ok(())
}

fn clash(first: &Zone, first_nic: &Nic, second: &Zone, second_nic: &Nic) -> Option<&'static str> {
    match (first_nic.claim, second_nic.claim) {
        (Claim::All, _) | (_, Claim::All) => Some("an exclusive zone takes the wire's end away from its host"),
        (Claim::Receive, Claim::Receive) if first.method != second.method => {
            Some("a device can be a bridge's port, or have macvlans, or have ipvlans, but only one of these")
        }
        _ => None,
    }
}

fn check_limits(topology: &Topology, nics: &[&'static Nic], facts: &Facts) -> Result<(), PlanError> {
    let wanted = (topology.hosts.len() + topology.zones.len()) as u64;
    if wanted > facts.most_namespaces {
        return Err(PlanError::TooManyNamespaces { lab: topology.name.clone(), wanted, most: facts.most_namespaces });
    }
    let mut ports: HashMap<(&Name, &Name), usize> = HashMap::new();
    for (zone, _) in topology.zones.iter().zip(nics).filter(|(zone, _)| zone.method == IoMethod::Bridge) {
        // The wire is a port as well.
        *ports.entry((&zone.host, &zone.wire)).or_insert(1) += 1;
    }
    match ports.into_iter().find(|(_, ports)| *ports > MOST_PORTS) {
        Some(((host, _), ports)) => Err(PlanError::BridgeFull { host: host.clone(), ports, most: MOST_PORTS }),
        None => Ok(()),
    }
}

/// The MTU inside tunnels, if there are any.
fn tunnel_mtu(topology: &Topology) -> Result<Option<Mtu>, PlanError> {
    let Some(zone) = topology.zones.iter().find(|zone| zone.method == IoMethod::Vxlan) else { return Ok(None) };
    let too_small =
        |_| PlanError::MtuTooSmall { zone: zone.name.clone(), mtu: topology.mtu, overhead: zone.method.overhead() };
    topology.mtu.less(zone.method.overhead()).map(Some).map_err(too_small)
}

/// A tunnel ends at an address of a host, which has none on a wire that it gave away.
fn check_far_ends(topology: &Topology, pairs: &[Pair]) -> Result<(), PlanError> {
    let exclusive = |end: &End| zones_at(topology, end).any(|zone| zone.method == IoMethod::Exclusive);
    match pairs.iter().find(|pair| pair.ends.iter().any(exclusive)) {
        Some(pair) => Err(PlanError::NoTunnelEnd {
            zone: pair.near.clone(),
            wire: pair.ends[0].wire.clone(),
            why: "the other host gave its end to an exclusive zone; use a wire of its own for that",
        }),
        None => Ok(()),
    }
}
