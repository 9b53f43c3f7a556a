//! A plan in the making.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use vtax_model::{
    method::{DomainKind, IoMethod},
    topology::{Guest, Name, Topology, Wire, Zone},
    units::Mtu,
};
use vtax_sys::pci::PciAddress;

use super::{
    Far, Plan, PlanError, Tunnel,
    addresses::Layout,
    checks,
    companions::Companions,
    functions::{Functions, Made},
    guests::{self, Admitted},
    member::{Member, members},
    ports::{self, Port},
    segment::{self, Segment, WireEnd},
    tunnel::{self, TunnelEnds},
};
use crate::{
    blueprint::{Blueprint, LabEndpoint, PlannedGuest, PlannedLink, PlannedWire, TunnelEnd},
    facts::{Facts, PciDevice},
    limit::Limit,
    nic::{self, AddressOf, Claim, GuestAttachment, Handler, ZoneAttachment, ZoneMethod},
    place::{LinkName, Place},
    step::{LabStep, LentVf, LinkRecipe, LinkState},
};

/// A plan in the making.
pub(crate) struct Draft<'a> {
    topology: &'a Topology,
    nics: Vec<&'static ZoneMethod>,
    guests: HashMap<Name, Admitted>,
    /// Where guests of this lab have their sockets and logs.
    guests_directory: PathBuf,
    segments: Vec<Segment>,
    pairs: Vec<TunnelEnds>,
    layout: Layout,
    uplinks: HashMap<WireEnd, Uplink>,
    /// The NICs at the ends of wires that are cables.
    ports: HashMap<WireEnd, Port>,
    functions: Functions,
    companions: Companions,
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
        if topology.wires.iter().any(|wire| wire.nics.is_none()) {
            nic::wire(facts).map_err(PlanError::NoWires)?;
        }
        checks::shapes(topology, facts)?;
        checks::places(topology, topology.zones.iter().map(|zone| (&zone.name, &zone.host, &zone.wire)))?;
        checks::places(topology, topology.guests.iter().map(|guest| (&guest.name, &guest.host, &guest.wire)))?;
        let ports = ports::ports(topology, facts)?;
        let nics: Vec<_> =
            topology.zones.iter().map(|zone| supported(zone, &ports, facts)).collect::<Result<_, _>>()?;
        let members = members(topology, &nics);
        checks::clashes(&members)?;
        checks::limits(topology, &members, facts)?;
        let functions = Functions::of(topology, &ports, facts)?;
        let companions = Companions::of(topology, &ports, &members, facts)?;
        let guests = guests::admit(topology, &ports, &functions, facts)?;
        let tunnel_mtu = checks::tunnel_mtu(topology)?;
        let segments = segment::segments(topology)?;
        let pairs = tunnel::pairs(topology, &segments)?;
        checks::far_ends(&members, &pairs)?;
        let layout = Layout::of(topology, &members, &segments, &pairs, facts)?;
        let uplinks = uplinks(topology, &members, &segments);
        let blueprint = blueprint(topology, layout.range);
        let guests_directory = facts.guests_directory(&topology.name);
        let (vnets, sysctls, steps) = Default::default();
        Ok(Draft {
            topology,
            nics,
            guests,
            guests_directory,
            segments,
            pairs,
            layout,
            uplinks,
            ports,
            functions,
            companions,
            vnets,
            sysctls,
            tunnel_mtu,
            blueprint,
            steps,
        })
    }

    pub(super) fn build(mut self) -> Result<Plan, PlanError> {
        let topology = self.topology;
        topology.hosts.iter().for_each(|host| self.namespace(&host.name));
        self.exclusive_zones().iter().for_each(|zone| self.namespace(zone));
        topology.wires.iter().for_each(|wire| self.wire(wire));
        self.make_functions();
        topology.hosts.iter().filter(|host| host.switch).for_each(|host| self.switch(&host.name));
        for end in self.segments.clone().iter().flat_map(|segment| &segment.ends) {
            self.host_end(end);
        }
        for (zone, nic) in topology.zones.iter().zip(self.nics.clone()) {
            self.attach(zone, nic);
        }
        for guest in topology.guests_by_masters()? {
            self.attach_guest(guest);
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
        match &wire.nics {
            None => self.link(&ends[0], LinkRecipe::Veth { peer: ends[1].clone() }, &wire.name),
            Some(_) => wire.ends.iter().zip(&ends).for_each(|(host, end)| self.cable_end(host, wire, end)),
        }
        let switches = wire.ends.clone().map(|host| self.is_switch(&host).then(|| switch_place(&host)));
        for (end, switch) in ends.iter().zip(&switches) {
            if switch.is_none() && self.bridge_above(end).is_none() && !self.is_in_guest(end) {
                self.enable(end, None, &wire.name);
            }
        }
        self.blueprint.wires.push(PlannedWire { name: wire.name.clone(), ends, switches, shape: wire.shape });
    }

    /// The link of a NIC; that of one which a guest gets is nowhere on the host.
    fn cable_end(&mut self, host: &Name, wire: &Wire, at: &Place) {
        if self.is_in_guest(at) {
            return;
        }
        let port = &self.ports[&WireEnd { host: host.clone(), wire: wire.name.clone() }];
        let (device, was) = (port.nic.device, LinkState::of(&port.netdev));
        self.take_nic(device, at, Some(was), &wire.name);
    }

    fn is_in_guest(&self, end: &Place) -> bool {
        self.topology.guests.iter().any(|guest| guest.name == end.namespace)
    }

    /// Once their NICs are where they belong.
    fn make_functions(&mut self) {
        for made in self.functions.made.clone() {
            let Made { pf: device, end, functions, autoprobe } = made;
            let at = Some(self.uplinks[&end].wire.clone());
            let count = u32::try_from(functions.len()).expect("no more than its NIC can have");
            self.steps.push(LabStep::CreateVfs { device, at, count, functions: Some(functions), autoprobe });
        }
    }

    fn wire_end(&self, host: &Name, wire: &Wire) -> Place {
        let end = WireEnd { host: host.clone(), wire: wire.name.clone() };
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
        self.link(&bridge, LinkRecipe::Bridge, host);
        self.enable(&bridge, None, host);
        let topology = self.topology;
        for wire in topology.wires.iter().filter(|wire| wire.ends.contains(host)) {
            let port = self.wire_end(host, wire);
            self.enable(&port, Some(&bridge.link), &wire.name);
        }
    }

    /// The host's bridge if its zones need one, its address and its endpoint.
    fn host_end(&mut self, end: &WireEnd) {
        let uplink = self.uplinks[end].clone();
        if let [bridge, port] = uplink.stack.as_slice() {
            self.link(bridge, LinkRecipe::Bridge, &end.wire);
            self.enable(bridge, None, &end.wire);
            self.enable(port, Some(&bridge.link), &end.wire);
        }
        if uplink.wire.namespace != end.host {
            return;
        }
        let address = self.layout.host(end);
        self.address(&uplink.stack[0], address);
        self.blueprint.endpoints.push(LabEndpoint {
            name: end.host.clone(),
            kind: DomainKind::Primary,
            host: end.host.clone(),
            method: IoMethod::Native,
            flavour: None,
            wire: end.wire.clone(),
            address: address.addr(),
            interface: uplink.stack[0].link.clone(),
            namespace: end.host.clone(),
            mtu: self.blueprint.mtu,
            stack: uplink.stack,
        });
    }

    fn attach(&mut self, zone: &'a Zone, nic: &'static ZoneMethod) {
        let end = WireEnd { host: zone.host.clone(), wire: zone.wire.clone() };
        let uplink = self.uplinks[&end].clone();
        let address = self.layout.zone(&zone.name).unwrap_or_else(|| self.layout.host(&end));
        (nic.attach)(&ZoneAttachment { zone, uplink: &uplink, address }, self);
    }

    fn attach_guest(&mut self, guest: &'a Guest) {
        let end = WireEnd { host: guest.host.clone(), wire: guest.wire.clone() };
        let uplink = self.uplinks[&end].clone();
        let address = self.layout.zone(&guest.name).unwrap_or_else(|| self.layout.host(&end));
        let Admitted { fitting, mac } = self.guests[&guest.name].clone();
        nic::attach_guest(&GuestAttachment { guest, fitting, uplink: &uplink, address, mac }, self);
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
    fn stacks(&self, segment: &Segment, router: &WireEnd) -> Vec<Name> {
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
    pub(crate) fn link(&mut self, at: &Place, kind: LinkRecipe, object: &Name) {
        let (less, mtu) = match (&kind, self.tunnel_mtu) {
            (LinkRecipe::Vxlan { .. }, Some(inner)) => (IoMethod::Vxlan.overhead(), inner),
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
        if let LinkRecipe::Veth { peer } = &kind {
            links.push(planned(peer));
        }
        self.blueprint.links.extend(links);
        self.steps.push(LabStep::CreateLink { at: at.clone(), kind, mtu });
    }

    /// The link of a NIC or of a virtual function.
    pub(crate) fn take_nic(&mut self, device: PciAddress, at: &Place, was: Option<LinkState>, object: &Name) {
        let planned =
            PlannedLink { place: at.clone(), kind: PlannedLink::NIC.to_owned(), less: 0, mark: self.mark(object) };
        self.blueprint.links.push(planned);
        self.steps.push(LabStep::TakeNic { device, at: at.clone(), mtu: self.blueprint.mtu, was });
    }

    /// The virtual function of a zone or guest.
    pub(crate) fn function(&self, domain: &Name) -> &LentVf {
        self.functions.get(domain).expect("begin() found one for each that is to have one")
    }

    /// The NIC at the end of the wire that a guest hangs on.
    pub(crate) fn port_of(&self, guest: &Guest) -> &Port {
        &self.ports[&WireEnd { host: guest.host.clone(), wire: guest.wire.clone() }]
    }

    /// What a guest with a whole NIC gets beside it.
    pub(crate) fn companions(&self, guest: &Name) -> &[PciDevice] {
        self.companions.get(guest)
    }

    pub(crate) fn step(&mut self, step: LabStep) {
        self.steps.push(step);
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

    /// The host's side of its next vnet.
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
        let of_zone = |pair: &&TunnelEnds| pair.near == *zone || pair.far.as_ref() == Some(zone);
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
    pub(crate) fn on_wire(&mut self, zone: &ZoneAttachment<'_>, kind: LinkRecipe) {
        let link = zone.link();
        self.namespace(&zone.zone.name);
        self.link(&link, kind, &zone.zone.name);
        self.enable(&link, None, &zone.zone.name);
        self.address(&link, zone.address);
        self.zone_endpoint(zone, vec![link, zone.uplink.wire.clone()]);
    }

    /// The zone's endpoint; the first of its links has the address.
    pub(crate) fn zone_endpoint(&mut self, attachment: &ZoneAttachment<'_>, stack: Vec<Place>) {
        let zone = attachment.zone;
        let mtu = match (zone.method, self.tunnel_mtu) {
            (IoMethod::Vxlan, Some(inner)) => inner,
            _ => self.blueprint.mtu,
        };
        self.blueprint.endpoints.push(LabEndpoint {
            name: zone.name.clone(),
            kind: DomainKind::Zone,
            host: zone.host.clone(),
            method: zone.method,
            flavour: None,
            wire: zone.wire.clone(),
            address: attachment.address.addr(),
            interface: stack[0].link.clone(),
            namespace: stack[0].namespace.clone(),
            mtu,
            stack,
        });
    }

    pub(super) fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    pub(super) fn guests_directory(&self) -> &Path {
        &self.guests_directory
    }

    pub(super) fn add_guest(&mut self, guest: PlannedGuest, start: LabStep, endpoint: LabEndpoint) {
        self.steps.push(start);
        self.blueprint.guests.push(guest);
        self.blueprint.endpoints.push(endpoint);
    }

    fn mark(&self, object: &Name) -> String {
        format!("vtax:{}:{object}", self.blueprint.lab)
    }
}

fn blueprint(topology: &Topology, addresses: Ipv4Net) -> Blueprint {
    Blueprint {
        mtu: topology.mtu,
        addresses,
        hosts: topology.hosts.iter().map(|host| host.name.clone()).collect(),
        zones: topology.zones.iter().map(|zone| zone.name.clone()).collect(),
        ..Blueprint::bare(topology.name.clone())
    }
}

fn uplinks(topology: &Topology, members: &[Member<'_>], segments: &[Segment]) -> HashMap<WireEnd, Uplink> {
    let ends = segments.iter().flat_map(|segment| &segment.ends);
    ends.map(|end| (end.clone(), uplink(topology, members, end))).collect()
}

fn uplink(topology: &Topology, members: &[Member<'_>], end: &WireEnd) -> Uplink {
    let claimed = |claim| members.iter().find(|member| member.is_at(end) && member.claim == claim);
    let index = wire_index(topology, &end.host, &end.wire);
    let wire = match claimed(Claim::All) {
        Some(zone) => Place::new(zone.name, LinkName::zone()),
        None => Place::new(&end.host, LinkName::wire(index)),
    };
    let bridge = claimed(Claim::Receive(Handler::Bridge)).map(|_| Place::new(&end.host, LinkName::switch(index)));
    let stack = bridge.into_iter().chain([wire.clone()]).collect();
    Uplink { wire, stack }
}

fn switch_place(host: &Name) -> Place {
    Place::new(host, LinkName::switch(0))
}

/// The place of a wire among those of a host.
fn wire_index(topology: &Topology, host: &Name, wire: &Name) -> usize {
    topology.wires.iter().filter(|other| other.ends.contains(host)).take_while(|other| other.name != *wire).count()
}

fn supported(zone: &Zone, ports: &HashMap<WireEnd, Port>, facts: &Facts) -> Result<&'static ZoneMethod, PlanError> {
    let cable = ports.contains_key(&WireEnd { host: zone.host.clone(), wire: zone.wire.clone() });
    nic::supported(zone.method, cable, facts).map_err(|unsupported| PlanError::Unsupported {
        kind: "zone",
        name: zone.name.clone(),
        method: zone.method,
        unsupported,
    })
}
