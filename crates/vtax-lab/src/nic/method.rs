//! Building blocks of zones' I/O methods.

use std::net::IpAddr;

use ipnet::IpNet;
use vtax_model::{method::DomainKind, topology::Zone};
use vtax_step::{LentVf, LinkRecipe, Place};

use crate::{blueprint::LabEndpoint, script::PlanScript};

/// Planning of zones of one method.
pub(crate) struct ZoneMethod {
    /// The kind of link that the kernel must have, in addition to the veth pair of the wire.
    pub(super) link: Option<&'static str>,
    pub(crate) address: AddressOf,
    /// Effect on the wire's end that the zone is attached to.
    pub(crate) claim: Claim,
    /// Adds the steps, the links and the endpoint of one zone.
    pub(crate) attach: AttachZone,
}

/// Adds one zone to a plan. The variants differ in what the planner has to find for the zone before.
pub(crate) enum AttachZone {
    Plain(fn(&ZoneAttachment<'_>, &mut PlanScript)),
    /// The address of the host towards the zone.
    Routed(fn(&ZoneAttachment<'_>, IpNet, &mut PlanScript)),
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
    /// A network of two addresses inside the zone's tunnel.
    Tunnel,
}

/// Effect of a method on the wire's end. It decides which methods can share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nothing that another method would notice.
    Nothing,
    /// It takes the device's only receive handler, for a bridge, macvlans or ipvlans (`netdev_rx_handler_register`).
    Receive(Handler),
    /// It takes the end away from the host.
    All,
}

/// Receiver in place of the device. Macvtaps share the handler of macvlans.
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
    /// The links from these, which stand on the host's, down to the wire.
    pub(super) fn below(&self, links: impl IntoIterator<Item = Place>) -> Vec<Place> {
        links.into_iter().chain(self.stack.iter().cloned()).collect()
    }
}

/// A tunnel as one of its zones sees it.
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
    /// A host. Its end must be made together with the zone's.
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

    /// Adds a zone that has one link, which stands on the wire's end.
    pub(super) fn on_wire(&self, kind: LinkRecipe, script: &mut PlanScript) {
        let (name, link) = (&self.zone.name, self.link());
        script.namespace(name);
        script.link(&link, kind, name);
        script.enable(&link, None, name);
        script.address(&link, self.address);
        self.endpoint(vec![link, self.uplink.wire.clone()], script);
    }

    /// Adds a zone that has the wire's end to itself. That end was made in the zone with the other wires.
    pub(super) fn at_wire(&self, script: &mut PlanScript) {
        script.address(&self.uplink.wire, self.address);
        self.endpoint(vec![self.uplink.wire.clone()], script);
    }

    /// Adds the zone's endpoint. The first of the links has the address.
    pub(super) fn endpoint(&self, stack: Vec<Place>, script: &mut PlanScript) {
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
        });
    }
}
