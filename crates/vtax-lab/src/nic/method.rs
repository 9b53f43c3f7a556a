//! Building blocks of zones' I/O methods.

use std::net::IpAddr;

use ipnet::IpNet;
use vtax_model::{method::DomainKind, station::PublishedPorts, topology::Zone};
use vtax_step::{LentVf, LinkRecipe, Place, Relay, ZonePorts};

use crate::{blueprint::LabEndpoint, script::PlanScript};

/// Planning of zones of one method.
pub(crate) struct ZoneMethod {
    /// Requirements for the machine, in addition to the veth pair of the wire.
    pub(super) needs: &'static [Need],
    pub(crate) address: AddressOf,
    /// Effect on the wire's end that the zone is attached to.
    pub(crate) claim: Claim,
    /// Adds the steps, the links and the endpoint of one zone.
    pub(crate) attach: AttachZone,
}

/// Something that the machine must have for a method.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    /// A kind of link.
    Link(&'static str),
    /// Address translation by the kernel, and the program that creates its rules.
    Translation,
    /// A program by its name.
    Program(&'static str),
}

/// The host of a zone without an address on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Router {
    /// The host's address towards the zone.
    pub(crate) inner: IpNet,
    /// The host's address on the wire.
    pub(crate) outer: IpAddr,
}

/// Adds one zone to a plan. The variants differ in what the planner has to provide for the zone first.
pub(crate) enum AttachZone {
    Plain(fn(&ZoneAttachment<'_>, &mut PlanScript)),
    /// The host as the zone's router.
    Routed(fn(&ZoneAttachment<'_>, Router, &mut PlanScript)),
    /// The zone's tunnel.
    Tunnel(fn(&ZoneAttachment<'_>, &Tunnel, &mut PlanScript)),
    /// The zone's virtual function.
    Function(fn(&ZoneAttachment<'_>, &LentVf, &mut PlanScript)),
}

/// Source of a zone's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressOf {
    /// A further address of the wire's network.
    Wire,
    /// The address that the host would have on the wire.
    Host,
    /// A network of two addresses for the zone alone. The host routes it.
    Routed,
    /// A network for the zone alone, unknown to other hosts.
    Private(PrivateNet),
    /// A network of two addresses inside the zone's tunnel.
    Tunnel,
}

/// The network of a zone behind its host, whose router has the host's address there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrivateNet {
    /// Two addresses.
    Pair,
    /// The minimum that slirp4netns(1) requires. Its own and the zone's address have fixed places in it.
    Slirp,
}

impl PrivateNet {
    /// Number of addresses, and the offsets of the router and the zone.
    pub(crate) fn layout(self) -> (usize, [u32; 2]) {
        match self {
            PrivateNet::Pair => (2, [0, 1]),
            PrivateNet::Slirp => (128, [2, 100]),
        }
    }
}

/// Effect of a method on the wire's end. It decides which methods can share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// None that another method would notice.
    Nothing,
    /// It uses the device's only receive handler, as for a bridge, macvlans or ipvlans (`netdev_rx_handler_register`).
    Receive(Handler),
    /// It takes the end away from the host.
    All,
}

/// Receive handler of the device. Macvtaps share the handler of macvlans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handler {
    Bridge,
    Macvlan,
    Ipvlan,
}

#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    /// The wire's end. It is in the zone's namespace if the zone has the wire to itself.
    pub(crate) wire: Place,
    /// The link with the host's address first, then the links below it.
    pub(crate) stack: Vec<Place>,
}

impl Uplink {
    /// Returns the links from these, which are on top of the host's, down to the wire.
    pub(super) fn below(&self, links: impl IntoIterator<Item = Place>) -> Vec<Place> {
        links.into_iter().chain(self.stack.iter().cloned()).collect()
    }
}

/// A tunnel as seen by one of its zones.
#[derive(Debug, Clone)]
pub(crate) struct Tunnel {
    pub(crate) vni: u32,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) far: Far,
}

#[derive(Debug, Clone)]
pub(crate) enum Far {
    /// A zone, which makes that end itself.
    Zone,
    /// A host. Its end must be created together with the zone's.
    Host {
        uplink: Uplink,
        /// The host's address in the tunnel.
        address: IpNet,
    },
}

pub(crate) struct ZoneAttachment<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) uplink: &'a Uplink,
    /// The zone's own address; for a tunnel, the address of the zone's end inside it.
    pub(crate) address: IpNet,
}

impl ZoneAttachment<'_> {
    /// The link of a zone with a separate network stack.
    pub(super) fn link(&self) -> Place {
        Place::zone(&self.zone.name)
    }

    /// Adds a zone with a single link on top of the wire's end.
    pub(super) fn on_wire(&self, kind: LinkRecipe, script: &mut PlanScript) {
        let (name, link) = (&self.zone.name, self.link());
        script.namespace(name);
        script.link(&link, kind, name);
        script.enable(&link, None, name);
        script.address(&link, self.address);
        self.endpoint(vec![link, self.uplink.wire.clone()], script);
    }

    /// Adds a zone to which the wire's end is exclusive. That end was created in the zone with the other wires.
    pub(super) fn at_wire(&self, script: &mut PlanScript) {
        script.address(&self.uplink.wire, self.address);
        self.endpoint(vec![self.uplink.wire.clone()], script);
    }

    /// Adds a zone behind a dedicated bridge, like a container network. The host routes and translates the zone's
    /// packets to its own address. Returns the links from the zone to the wire.
    pub(super) fn behind_bridge(
        &self,
        router: Router,
        published: Option<&PublishedPorts>,
        script: &mut PlanScript,
    ) -> Vec<Place> {
        let (name, host, inner) = (&self.zone.name, &self.zone.host, self.link());
        let [bridge, port] = script.inner_bridge(host);
        script.namespace(name);
        script.link(&bridge, LinkRecipe::Bridge { snooping: None }, name);
        script.enable(&bridge, None, name);
        script.link(&port, LinkRecipe::Veth { peer: inner.clone() }, name);
        script.enable(&port, Some(&bridge.link), name);
        script.enable(&inner, None, name);
        script.address(&bridge, router.inner);
        script.address(&inner, self.address);
        script.forward(host);
        script.default_route(name, router.inner.addr());
        let published = published.map(|ports| ZonePorts { ports: ports.clone(), zone: self.address.addr() });
        script.translate(self.zone, self.address.trunc(), &self.uplink.stack[0].link, published);
        self.uplink.below([inner, port, bridge])
    }

    /// Adds a zone on a tap that a program creates.
    pub(super) fn on_tap_of(&self, program: &str, relay: Relay, router: Router, script: &mut PlanScript) {
        let (name, inner) = (&self.zone.name, self.link());
        script.namespace(name);
        script.relay(self.zone, program, relay);
        script.plan_tap(&inner, name);
        script.enable(&inner, None, name);
        script.address(&inner, self.address);
        script.default_route(name, router.inner.addr());
        self.endpoint(self.uplink.below([inner]), script);
    }

    /// Adds the zone's endpoint. The first of the links has the address.
    pub(super) fn endpoint(&self, stack: Vec<Place>, script: &mut PlanScript) {
        self.published_endpoint(stack, None, script);
    }

    /// Adds the endpoint of a zone with published ports.
    pub(super) fn published_endpoint(
        &self,
        stack: Vec<Place>,
        published: Option<PublishedPorts>,
        script: &mut PlanScript,
    ) {
        let zone = self.zone;
        let mtu = script.mtu(zone.method);
        script.blueprint.endpoints.push(LabEndpoint {
            name: zone.name.clone(),
            kind: DomainKind::Zone,
            host: zone.host.clone(),
            method: zone.method,
            flavour: None,
            wire: zone.wire.clone(),
            address: self.address.addr(),
            interface: stack[0].link.clone(),
            namespace: stack[0].namespace.clone(),
            mtu,
            stack,
            published,
        });
    }
}
