//! The lab as planned: its hosts, zones, guests, links, wires and endpoints.
//!
//! It is stored with the lab's journal, so that a later vtax knows the lab's parts.

mod path;

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_guest::{LinkName, launch::Launch, threads::GuestPins};
use vtax_model::{
    guest::{Attach, Flavour, Mac},
    method::{DomainKind, IoMethod},
    station::PublishedPorts,
    topology::{Name, Shape},
    units::Mtu,
};
use vtax_step::Place;

/// Components of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blueprint {
    pub lab: Name,
    pub mtu: Mtu,
    /// Range of all its addresses.
    pub addresses: IpNet,
    /// Its hosts, switches among them.
    pub hosts: Vec<Name>,
    pub zones: Vec<Name>,
    #[serde(default)]
    pub guests: Vec<PlannedGuest>,
    /// Its links. A link comes after its lower links.
    pub links: Vec<PlannedLink>,
    pub wires: Vec<PlannedWire>,
    /// Hosts, zones and guests with their addresses on the wires.
    pub endpoints: Vec<LabEndpoint>,
    /// For each zone whose tunnel ends at a host: the links of the host on that tunnel.
    pub tunnels: Vec<TunnelEnd>,
}

/// A link and its required MTU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedLink {
    pub place: Place,
    /// The kernel's name for its kind.
    pub kind: String,
    /// Bytes by which its MTU is below that of the wire.
    pub less: u32,
    pub mark: String,
}

/// A wire, by its two ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWire {
    /// Name of the wire in the topology that the lab is built from.
    pub name: Name,
    /// The links at its ends. An end is in the zone or guest if it is exclusive to that.
    pub ends: [Place; 2],
    /// For each end that is on a switch: the bridge that it is a port of.
    pub switches: [Option<Place>; 2],
    /// Its limit, if it has one.
    pub shape: Option<Shape>,
}

/// Something that can be addressed: a host on one of its wires, a zone, or a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabEndpoint {
    pub name: Name,
    /// [`DomainKind::Primary`] for a host.
    pub kind: DomainKind,
    /// The host itself, or the host that the zone or guest is on.
    pub host: Name,
    pub method: IoMethod,
    /// For a guest: the kind of its NIC within the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavour: Option<Flavour>,
    pub wire: Name,
    /// The address to bind to. With shared-ip it is the zone's own address and not the host's.
    pub address: IpAddr,
    /// The link that has the address. For a guest, it is the link on the host behind the guest's NIC.
    pub interface: LinkName,
    /// The namespace of its processes. With shared-ip it is the host's; of a guest it is QEMU's.
    pub namespace: Name,
    /// The largest packet. It is the wire's MTU less the overhead of the method.
    pub mtu: Mtu,
    /// The links from here to the wire's end, in this order.
    pub stack: Vec<Place>,
    /// The ports of the host through which others reach a zone that isn't reachable by its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedPorts>,
}

/// A host's links on the tunnel of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// The zone at the other end.
    pub zone: Name,
    /// The host's links from the tunnel to the wire.
    pub stack: Vec<Place>,
}

/// A guest of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedGuest {
    pub name: Name,
    /// The host that it is on, in whose namespace QEMU runs.
    pub host: Name,
    /// NIC definition. For a paravirtual NIC, it names the backend in use.
    pub attach: Attach,
    /// Address of its NIC, by which the guest's agent finds it.
    pub mac: Mac,
    /// The address for the guest's NIC. The lab itself changes nothing inside guests.
    pub address: IpNet,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masters: Vec<Name>,
    #[serde(flatten)]
    pub pins: GuestPins,
    /// Start command of QEMU, with the location of its sockets and logs.
    pub launch: Launch,
}

impl LabEndpoint {
    /// The end of the wire through which its packets leave.
    pub fn wire_end(&self) -> &Place {
        self.stack.last().expect("a stack ends at the wire")
    }
}

impl PlannedLink {
    /// The kind of a NIC's link. The kernel has no name for it.
    pub(crate) const NIC: &str = "nic";
}

impl Blueprint {
    /// Returns true if a link is one end of a cable whose other end is exclusive to a guest.
    pub(crate) fn ends_in_guest(&self, place: &Place) -> bool {
        let far = |wire: &PlannedWire| {
            let end = wire.ends.iter().position(|end| end == place)?;
            Some(wire.ends[1 - end].clone())
        };
        let far = self.wires.iter().find_map(far);
        far.is_some_and(|far| self.guests.iter().any(|guest| guest.name == far.namespace))
    }

    /// The zone's endpoint.
    pub fn zone(&self, zone: &Name) -> Option<&LabEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.kind == DomainKind::Zone && endpoint.name == *zone)
    }

    /// The guest's endpoint. Its namespace is the one of QEMU: a program that is spawned there is not in the guest.
    pub fn guest(&self, guest: &Name) -> Option<&LabEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.kind == DomainKind::Guest && endpoint.name == *guest)
    }

    /// The host's endpoint on a wire. A switch has none, nor a host on a wire that belongs to one zone alone.
    pub fn host(&self, host: &Name, wire: &Name) -> Option<&LabEndpoint> {
        let primary = |endpoint: &&LabEndpoint| endpoint.kind == DomainKind::Primary;
        self.endpoints.iter().filter(primary).find(|endpoint| endpoint.name == *host && endpoint.wire == *wire)
    }
}

impl fmt::Display for Blueprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blueprint { lab, addresses, mtu, hosts, zones, guests, wires, .. } = self;
        let (hosts, wires, zones) = (hosts.len(), wires.len(), zones.len());
        write!(f, "lab {lab}: hosts {hosts}, wires {wires}, zones {zones}, ")?;
        if let [first, ..] = guests.as_slice() {
            write!(f, "guests {} ({}), ", guests.len(), first.launch.accel)?;
        }
        write!(f, "addresses {addresses}, mtu {mtu}")
    }
}

impl fmt::Display for LabEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LabEndpoint { name, method, flavour, address, mtu, stack, published, .. } = self;
        let kind = flavour.map(|flavour| format!(":{flavour}")).unwrap_or_default();
        let stack = stack.iter().map(Place::to_string).collect::<Vec<_>>().join(" > ");
        let published = published.as_ref().map(|ports| format!(", {ports}")).unwrap_or_default();
        write!(f, "{name} {address} {method}{kind} mtu {mtu} by {stack}{published}")
    }
}
