//! What will be done, as data.
//!
//! [`plan()`] is pure: the same topology and facts give the same plan, and nothing is asked of
//! the kernel. Everything that can be refused is refused here, before the first step.

mod addresses;
mod checks;
mod companions;
mod draft;
mod error;
mod functions;
mod guests;
mod member;
mod ports;
mod print;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
mod tunnel;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use vtax_model::{
    guest::Flavour,
    method::{DomainKind, IoMethod},
    topology::{Name, Shape, Topology},
    units::Mtu,
};

use crate::{
    facts::Facts,
    place::{LinkName, Place},
    step::LabStep,
};

pub(crate) use draft::{Draft, Uplink};
pub use error::PlanError;
pub(crate) use functions::driver as driver_of;
pub use guests::PlannedGuest;
pub use ports::NicError;
pub(crate) use ports::{Port, vfio};
pub(crate) use tunnel::{Far, Tunnel};

/// A lab as it will be built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What comes out.
    pub blueprint: Blueprint,
    /// What is done for it, in this order.
    pub steps: Vec<LabStep>,
}

/// What a lab consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blueprint {
    /// The lab's name.
    pub lab: Name,
    /// The MTU of its wires.
    pub mtu: Mtu,
    /// The range that all its addresses are from.
    pub addresses: Ipv4Net,
    /// Its hosts, switches among them.
    pub hosts: Vec<Name>,
    /// Its zones.
    pub zones: Vec<Name>,
    /// Its guests.
    #[serde(default)]
    pub guests: Vec<PlannedGuest>,
    /// Its links, each after those that it stands on.
    pub links: Vec<PlannedLink>,
    /// Its wires.
    pub wires: Vec<PlannedWire>,
    /// Where programs can be started and addressed.
    pub endpoints: Vec<LabEndpoint>,
    /// For a zone with a tunnel to a host: the links that the host has on that tunnel.
    pub tunnels: Vec<TunnelEnd>,
}

/// A link, and what its MTU has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedLink {
    /// Where it is.
    pub place: Place,
    /// Its kind in the kernel's words.
    pub kind: String,
    /// Bytes by which its MTU is below that of the wire.
    pub less: u32,
    /// Its mark.
    pub mark: String,
}

/// A wire, by its two ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWire {
    /// Its name.
    pub name: Name,
    /// Its ends, where they really are: in the zone or guest, if it has the end to itself.
    pub ends: [Place; 2],
    /// The bridge that an end is a port of, if that end is on a switch.
    pub switches: [Option<Place>; 2],
    /// Its limit, if it has one.
    #[serde(default)]
    pub shape: Option<Shape>,
}

/// Something that can be addressed: a host on one of its wires, a zone, or a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabEndpoint {
    /// The host's, the zone's or the guest's name.
    pub name: Name,
    /// [`DomainKind::Primary`] for a host.
    pub kind: DomainKind,
    /// The host that it is, or is on.
    pub host: Name,
    /// How it is attached.
    pub method: IoMethod,
    /// Of a guest, which kind of its method's NIC it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavour: Option<Flavour>,
    /// The wire that it is attached to.
    pub wire: Name,
    /// The address to bind to. For shared-ip that is the zone's own, not the host's.
    pub address: Ipv4Addr,
    /// The link that has the address; of a guest, the one behind its NIC, or that of the host's NIC.
    pub interface: LinkName,
    /// The namespace that its processes live in; for shared-ip the host's, for a guest that of QEMU.
    pub namespace: Name,
    /// The largest packet that goes through, less than the wire's by the method's overhead.
    pub mtu: Mtu,
    /// The links from here to the wire, both included.
    pub stack: Vec<Place>,
}

/// A host's links on the tunnel of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// The zone at the other end.
    pub zone: Name,
    /// The host's links from the tunnel to the wire.
    pub stack: Vec<Place>,
}

/// Plans a lab.
///
/// # Errors
/// Everything about the topology, this machine, or both together that makes the lab
/// impossible; see [`PlanError`].
pub fn plan(topology: &Topology, facts: &Facts) -> Result<Plan, PlanError> {
    Draft::begin(topology, facts)?.build()
}

impl LabEndpoint {
    /// The end of the wire by which its packets leave.
    pub fn wire_end(&self) -> &Place {
        self.stack.last().expect("a stack ends at the wire")
    }
}

impl PlannedLink {
    /// The kind of a NIC's link, of which the kernel says none.
    pub(crate) const NIC: &str = "nic";
}

impl Blueprint {
    /// Of a lab that has no address of any host.
    pub(crate) fn bare(lab: Name) -> Blueprint {
        const NO_ADDRESSES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 32);
        Blueprint {
            lab,
            mtu: Mtu::ETHERNET,
            addresses: NO_ADDRESSES,
            hosts: Vec::new(),
            zones: Vec::new(),
            guests: Vec::new(),
            links: Vec::new(),
            wires: Vec::new(),
            endpoints: Vec::new(),
            tunnels: Vec::new(),
        }
    }

    /// Whether a link is one end of a cable whose other end a guest has to itself.
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

    /// The guest's endpoint.
    pub fn guest(&self, guest: &Name) -> Option<&LabEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.kind == DomainKind::Guest && endpoint.name == *guest)
    }

    /// The host's endpoint on one of its wires. There is none on a wire that is exclusively a
    /// zone's, nor on a switch.
    pub fn host(&self, host: &Name, wire: &Name) -> Option<&LabEndpoint> {
        let primary = |endpoint: &&LabEndpoint| endpoint.kind == DomainKind::Primary;
        self.endpoints.iter().filter(primary).find(|endpoint| endpoint.name == *host && endpoint.wire == *wire)
    }
}
