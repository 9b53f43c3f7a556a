//! Lays a lab out, and has every host, wire, zone and guest add its steps.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;
use vtax_change::pci::LinkState;
use vtax_model::{
    address_family::AddressFamily,
    guest::Attach,
    method::{DomainKind, IoMethod},
    topology::{Guest, Host, Name, Topology, Wire, Zone},
};
use vtax_step::{AddRoute, CreateVfs, LimitRate, LinkRecipe, Place, bucket};

use super::{
    addresses::Layout,
    checks,
    companions::Companions,
    error::PlanError,
    functions::{Functions, Made},
    guests::{self, Admitted},
    member::{Member, members},
    ports::{self, Port},
    segment::{self, Segment, WireEnd},
    tunnel::{self, TunnelEnds},
};
use crate::{
    blueprint::{Blueprint, LabEndpoint, PlannedWire},
    facts::Facts,
    nic::{
        self, AddressOf, AttachZone, Claim, Far, GuestAttachment, Handler, Router, Tunnel, Uplink, ZoneAttachment,
        ZoneMethod,
    },
    script::PlanScript,
    step::LabStep,
};

/// A lab that is laid out: nothing about it can be refused from here on.
pub(super) struct Draft<'a> {
    topology: &'a Topology,
    nics: Vec<&'static ZoneMethod>,
    guests: HashMap<Name, Admitted>,
    segments: Vec<Segment>,
    pairs: Vec<TunnelEnds>,
    layout: Layout,
    uplinks: HashMap<WireEnd, Uplink>,
    /// The NICs at the ends of cables.
    ports: HashMap<WireEnd, Port>,
    functions: Functions,
    companions: Companions,
    script: PlanScript,
}

impl<'a> Draft<'a> {
    /// Checks everything that can be refused.
    pub(super) fn begin(topology: &'a Topology, facts: &Facts) -> Result<Draft<'a>, PlanError> {
        if facts.labs.contains(&topology.name) {
            return Err(PlanError::NameTaken { lab: topology.name.clone() });
        }
        if topology.wires.iter().any(|wire| wire.nics.is_none()) {
            nic::wire(facts).map_err(PlanError::NoWires)?;
        }
        checks::shapes(topology, facts)?;
        checks::places(topology)?;
        let ports = ports::ports(topology, facts)?;
        let nics: Vec<_> = topology
            .zones
            .iter()
            .map(|zone| supported(zone, topology.family, &ports, facts))
            .collect::<Result<_, _>>()?;
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
        checks::snooping(topology, |host| {
            uplinks.iter().any(|(end, uplink)| end.host == *host && uplink.stack.len() > 1)
        })?;
        let script = PlanScript::new(blueprint(topology, layout.range), tunnel_mtu, &facts.programs);
        Ok(Draft { topology, nics, guests, segments, pairs, layout, uplinks, ports, functions, companions, script })
    }

    /// Adds all steps in the order of execution.
    pub(super) fn build(mut self) -> Result<PlanScript, PlanError> {
        let topology = self.topology;
        topology.hosts.iter().for_each(|host| self.script.namespace(&host.name));
        self.exclusive_zones().iter().for_each(|zone| self.script.namespace(zone));
        topology.wires.iter().for_each(|wire| self.wire(wire));
        self.make_functions();
        topology.hosts.iter().filter(|host| host.switch).for_each(|host| self.switch(host));
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
        self.script.step(LabStep::Verify);
        Ok(self.script)
    }

    fn exclusive_zones(&self) -> Vec<Name> {
        let zones = self.topology.zones.iter().zip(&self.nics);
        zones.filter(|(_, nic)| nic.claim == Claim::All).map(|(zone, _)| zone.name.clone()).collect()
    }

    /// Adds both ends of a wire; those on a switch are enabled with it.
    fn wire(&mut self, wire: &Wire) {
        let ends = wire.ends.clone().map(|host| self.wire_end(&host, wire));
        match &wire.nics {
            None => self.script.link(&ends[0], LinkRecipe::Veth { peer: ends[1].clone() }, &wire.name),
            Some(_) => wire.ends.iter().zip(&ends).for_each(|(host, end)| self.cable_end(host, wire, end)),
        }
        let switches = wire.ends.clone().map(|host| self.is_switch(&host).then(|| switch_place(&host)));
        for (end, switch) in ends.iter().zip(&switches) {
            if switch.is_none() && self.bridge_above(end).is_none() && !self.is_in_guest(end) {
                self.script.enable(end, None, &wire.name);
            }
        }
        self.script.blueprint.wires.push(PlannedWire { name: wire.name.clone(), ends, switches, shape: wire.shape });
    }

    /// The link of a NIC. If the NIC is assigned to a guest, the host has no link for it.
    fn cable_end(&mut self, host: &Name, wire: &Wire, at: &Place) {
        if self.is_in_guest(at) {
            return;
        }
        let port = &self.ports[&WireEnd::of(host, &wire.name)];
        let (device, was) = (port.nic.device, LinkState::from(&port.netdev));
        self.script.take_nic(device, at, Some(was), &wire.name);
    }

    fn is_in_guest(&self, end: &Place) -> bool {
        self.topology.guests.iter().any(|guest| guest.name == end.namespace)
    }

    /// Makes virtual functions. Their NICs must be in the hosts' namespaces before.
    fn make_functions(&mut self) {
        for made in self.functions.made.clone() {
            let Made { pf: device, end, functions, autoprobe } = made;
            let at = Some(self.uplinks[&end].wire.clone());
            let count = u32::try_from(functions.len()).expect("no more than its NIC can have");
            let create = CreateVfs { device, at, count, functions: Some(functions), autoprobe };
            self.script.step(LabStep::CreateVfs(create));
        }
    }

    fn wire_end(&self, host: &Name, wire: &Wire) -> Place {
        let end = WireEnd::of(host, &wire.name);
        match self.uplinks.get(&end) {
            Some(uplink) => uplink.wire.clone(),
            None => Place::wire(host, wire_index(self.topology, host, &wire.name)),
        }
    }

    fn bridge_above(&self, wire_end: &Place) -> Option<Place> {
        let uplink = self.uplinks.values().find(|uplink| uplink.wire == *wire_end)?;
        (uplink.stack[0] != uplink.wire).then(|| uplink.stack[0].clone())
    }

    fn is_switch(&self, host: &Name) -> bool {
        self.topology.hosts.iter().any(|other| other.name == *host && other.switch)
    }

    fn switch(&mut self, host: &Host) {
        let Host { name: host, snooping, .. } = host;
        let bridge = switch_place(host);
        self.script.link(&bridge, LinkRecipe::Bridge { snooping: *snooping }, host);
        self.script.enable(&bridge, None, host);
        let topology = self.topology;
        for wire in topology.wires.iter().filter(|wire| wire.ends.contains(host)) {
            let port = self.wire_end(host, wire);
            self.script.enable(&port, Some(&bridge.link), &wire.name);
        }
    }

    /// The host's bridge if its zones need one, its address and its endpoint.
    fn host_end(&mut self, end: &WireEnd) {
        let uplink = self.uplinks[end].clone();
        if let [bridge, port] = uplink.stack.as_slice() {
            let host = self.topology.hosts.iter().find(|host| host.name == end.host);
            let snooping = host.and_then(|host| host.snooping);
            self.script.link(bridge, LinkRecipe::Bridge { snooping }, &end.wire);
            self.script.enable(bridge, None, &end.wire);
            self.script.enable(port, Some(&bridge.link), &end.wire);
        }
        if uplink.wire.namespace != end.host {
            return;
        }
        let address = self.layout.host(end);
        self.script.address(&uplink.stack[0], address);
        self.script.blueprint.endpoints.push(LabEndpoint {
            name: end.host.clone(),
            kind: DomainKind::Primary,
            host: end.host.clone(),
            method: IoMethod::Native,
            flavour: None,
            wire: end.wire.clone(),
            address: address.addr(),
            interface: uplink.stack[0].link.clone(),
            namespace: end.host.clone(),
            mtu: self.topology.mtu,
            stack: uplink.stack,
            published: None,
        });
    }

    fn attach(&mut self, zone: &Zone, nic: &ZoneMethod) {
        let end = WireEnd::of(&zone.host, &zone.wire);
        let address = self.layout.zone(&zone.name).unwrap_or_else(|| self.layout.host(&end));
        let attachment = ZoneAttachment { zone, uplink: &self.uplinks[&end], address };
        match nic.attach {
            AttachZone::Plain(attach) => attach(&attachment, &mut self.script),
            AttachZone::Routed(attach) => {
                let router = Router { inner: self.layout.gateway(&zone.name), outer: self.layout.host(&end).addr() };
                attach(&attachment, router, &mut self.script);
            }
            AttachZone::Tunnel(attach) => attach(&attachment, &self.tunnel(&zone.name), &mut self.script),
            AttachZone::Function(attach) => attach(&attachment, self.functions.get(&zone.name), &mut self.script),
        }
    }

    fn attach_guest(&mut self, guest: &Guest) {
        let end = WireEnd::of(&guest.host, &guest.wire);
        let address = self.layout.zone(&guest.name).unwrap_or_else(|| self.layout.host(&end));
        let Admitted { fitting, mac, directory, disks } = self.guests[&guest.name].clone();
        let (attach, uplink) = (fitting.attach, &self.uplinks[&end]);
        let attachment = GuestAttachment { guest, fitting, uplink, address, mac, directory, disks };
        match attach {
            Attach::Paravirtual(nic) => attachment.with_virtio(nic, &mut self.script),
            Attach::Emulated { model } => attachment.with_model(model, &mut self.script),
            Attach::SrIov(_) => attachment.with_function(self.functions.get(&guest.name), &mut self.script),
            Attach::Assigned | Attach::RootDomain => {
                let companions = self.companions.get(&guest.name);
                attachment.with_devices(&self.ports[&end].nic, companions, &mut self.script);
            }
        }
    }

    /// Gives every stack on the segment a route to the zones that a host routes.
    fn routes(&mut self, segment: &Segment) {
        for end in &segment.ends {
            let Some(block) = self.layout.block(end) else { continue };
            let via = self.layout.host(end).addr();
            for stack in self.stacks(segment, end) {
                self.script.step(LabStep::AddRoute(AddRoute { namespace: stack, to: block, via }));
            }
        }
    }

    /// Limits the send rate of each end of a wire with a rate.
    fn limits(&mut self) {
        let Blueprint { wires, mtu, .. } = self.script.blueprint.clone();
        for wire in wires {
            let Some(shape) = &wire.shape else { continue };
            let limit = bucket(shape, mtu);
            let step = |at| LabStep::LimitRate(LimitRate { at, limit });
            wire.ends.into_iter().for_each(|at| self.script.step(step(at)));
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
                && self.script.blueprint.zone(&zone.name).is_some_and(|endpoint| endpoint.namespace == zone.name)
        });
        let mut seen = HashSet::from([&router.host]);
        let stacks = hosts.chain(zones.map(|(zone, _)| &zone.name));
        stacks.filter(|name| seen.insert(name)).cloned().collect()
    }

    fn tunnel(&self, zone: &Name) -> Tunnel {
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
}

fn blueprint(topology: &Topology, addresses: IpNet) -> Blueprint {
    Blueprint {
        lab: topology.name.clone(),
        mtu: topology.mtu,
        addresses,
        hosts: topology.hosts.iter().map(|host| host.name.clone()).collect(),
        zones: topology.zones.iter().map(|zone| zone.name.clone()).collect(),
        guests: Vec::new(),
        links: Vec::new(),
        wires: Vec::new(),
        endpoints: Vec::new(),
        tunnels: Vec::new(),
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
        Some(zone) => Place::zone(zone.name),
        None => Place::wire(&end.host, index),
    };
    let bridge = claimed(Claim::Receive(Handler::Bridge)).map(|_| Place::switch(&end.host, index));
    let stack = bridge.into_iter().chain([wire.clone()]).collect();
    Uplink { wire, stack }
}

fn switch_place(host: &Name) -> Place {
    Place::switch(host, 0)
}

/// The place of a wire among those of a host.
fn wire_index(topology: &Topology, host: &Name, wire: &Name) -> usize {
    topology.wires.iter().filter(|other| other.ends.contains(host)).take_while(|other| other.name != *wire).count()
}

fn supported(
    zone: &Zone,
    family: AddressFamily,
    ports: &HashMap<WireEnd, Port>,
    facts: &Facts,
) -> Result<&'static ZoneMethod, PlanError> {
    let cable = ports.contains_key(&WireEnd::of(&zone.host, &zone.wire));
    let of_family = |nic| nic::family_support(zone.method, family).map(|()| nic);
    let found = nic::supported(zone.method, cable, facts).and_then(of_family);
    found.map_err(PlanError::unsupported("zone", &zone.name, zone.method))
}
