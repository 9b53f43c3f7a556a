//! I/O methods: ways of attaching a domain to its host's wire.

mod capability;
mod family;
mod table;
mod variant;
mod vf_migration;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

pub use capability::{
    Ability, Capabilities, Capability, CapabilityAnswer, Devices, Failover, GuestCount, HostWork, Isolation,
    TrafficControl,
};
pub use family::{Advice, Family};
pub use variant::{MethodVariant, VirtioPath};
pub use vf_migration::VfMigration;

use crate::{address_family::AddressFamily, spelling::available};

/// Method of attaching a domain to its host's wire.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownMethod, parse_err_fn = UnknownMethod::new)]
pub enum IoMethod {
    /// The host's own stack on the wire. The other methods are compared with it.
    Native,
    /// A whole PCI endpoint assigned to the domain.
    Assigned,
    /// A virtual function of the NIC.
    SrIov,
    /// virtio-net to a virtual switch of the host.
    Paravirtual,
    /// A NIC that the hypervisor emulates.
    Emulated,
    /// Everything below one PCIe root complex.
    RootDomain,
    /// A zone on the host's stack with its own address.
    SharedIp,
    /// A zone with its own stack behind a veth pair; the host routes.
    Veth,
    /// A zone with its own stack on a bridge that has the wire as a port.
    Bridge,
    /// A zone with its own stack and its own MAC address on the wire.
    Macvlan,
    /// A zone with its own stack that shares the wire's MAC address (l2 mode).
    Ipvlan,
    /// A zone with its own stack on a tunnel over the wire.
    Vxlan,
    /// A zone with its own stack and a dedicated wire: the wire's end is moved into it.
    Exclusive,
    /// A zone with its own stack behind a dedicated bridge, whose packets leave with the host's address.
    Nat,
    /// The same, and the host forwards packets to some of its ports.
    Published,
    /// The same, and a process accepts connections to some of the host's ports and makes others to the zone.
    PublishedProxy,
    /// A zone with its own stack on a tap of pasta, which opens the zone's connections again as the host.
    Pasta,
    /// A zone with its own stack on a tap of slirp4netns, whose stack opens the zone's connections again as the host.
    Slirp4netns,
}

/// Way in which another host opens a connection to a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// To the domain's own address.
    Directly,
    /// To published ports of the domain's host.
    ByPublishedPorts,
    /// Not at all: the domain opens all connections.
    Never,
}

/// Owner of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainKind {
    /// The host itself.
    Primary,
    /// Processes in a network stack.
    Zone,
    /// A virtual machine: the default of methods that can also attach zones, unless a study says otherwise.
    #[default]
    Guest,
}

use DomainKind::{Guest, Primary, Zone};

impl IoMethod {
    /// Every method, in the order of tables.
    pub const ALL: [IoMethod; 18] = *IoMethod::VARIANTS.as_array().expect("there are eighteen");

    /// Returns one line for people.
    pub fn summary(self) -> &'static str {
        self.facts().0
    }

    /// Returns the kinds of domain that can be attached this way.
    pub fn domains(self) -> &'static [DomainKind] {
        self.facts().1
    }

    /// Returns true if the domain is assigned a PCI device.
    pub fn is_hardware(self) -> bool {
        matches!(self, IoMethod::Assigned | IoMethod::SrIov | IoMethod::RootDomain)
    }

    /// Returns how others open connections to a domain that is attached this way.
    pub fn reached(self) -> Reached {
        match self {
            IoMethod::Nat | IoMethod::Pasta | IoMethod::Slirp4netns => Reached::Never,
            IoMethod::Published | IoMethod::PublishedProxy => Reached::ByPublishedPorts,
            _ => Reached::Directly,
        }
    }

    /// Returns true if the host's kernel translates addresses, which costs all packets of its network stack.
    pub fn translates(self) -> bool {
        matches!(self, IoMethod::Nat | IoMethod::Published | IoMethod::PublishedProxy)
    }

    /// Returns the bytes of each packet that the domain can't use. VXLAN: Ethernet 14, VXLAN 8, UDP 8, and IP 20 or 40
    /// (RFC 7348).
    pub fn overhead(self, family: AddressFamily) -> u32 {
        match self {
            IoMethod::Vxlan => 30 + family.header(),
            _ => 0,
        }
    }

    fn facts(self) -> (&'static str, &'static [DomainKind]) {
        match self {
            IoMethod::Native => ("the host's own stack on the wire", &[Primary]),
            IoMethod::Assigned => ("a whole PCI endpoint assigned to the domain", &[Guest, Zone]),
            IoMethod::SrIov => ("a virtual function of the NIC", &[Guest, Zone]),
            IoMethod::Paravirtual => ("virtio-net to a virtual switch of the host", &[Guest]),
            IoMethod::Emulated => ("a NIC emulated by the hypervisor", &[Guest]),
            IoMethod::RootDomain => ("everything below one PCIe root complex", &[Guest]),
            IoMethod::SharedIp => ("the host's stack, with its own address", &[Zone]),
            IoMethod::Veth => ("own stack behind a veth pair, routed by the host", &[Zone]),
            IoMethod::Bridge => ("own stack, bridged to the wire", &[Zone]),
            IoMethod::Macvlan => ("own stack, own MAC address on the wire", &[Zone]),
            IoMethod::Ipvlan => ("own stack, the wire's MAC address (l2)", &[Zone]),
            IoMethod::Vxlan => ("own stack on a tunnel over the wire", &[Zone]),
            IoMethod::Exclusive => ("own stack, a wire's end moved into the zone", &[Zone]),
            IoMethod::Nat => ("own stack behind a bridge, the host's address (masquerade)", &[Zone]),
            IoMethod::Published => ("like nat, reached by ports of the host (DNAT)", &[Zone]),
            IoMethod::PublishedProxy => ("like nat, reached by ports of a process (docker-proxy)", &[Zone]),
            IoMethod::Pasta => ("own stack, connections terminated by pasta", &[Zone]),
            IoMethod::Slirp4netns => ("own stack, connections terminated by slirp4netns", &[Zone]),
        }
    }
}

/// Unknown I/O method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("unknown I/O method `{name}`; {}", available(name, &IoMethod::ALL.map(<&str>::from)))]
#[diagnostic(code("unknown-name"))]
pub struct UnknownMethod {
    pub name: String,
}

impl UnknownMethod {
    fn new(name: &str) -> UnknownMethod {
        UnknownMethod { name: name.to_owned() }
    }
}

/// Reason why a method can't be used here, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, miette::Diagnostic)]
#[error("{why}; {remedy}")]
#[diagnostic(code("method-unavailable"))]
pub struct Unsupported {
    pub why: String,
    pub remedy: String,
}

impl Unsupported {
    /// A reason with its remedy.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Unsupported {
        Unsupported { why: why.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_one_name_everywhere() {
        for method in IoMethod::ALL {
            let name: &str = method.into();
            assert_eq!(name.parse(), Ok(method));
            let json = serde_json::to_string(&method).expect("a unit variant is a string");
            assert_eq!(json, format!("\"{}\"", name));
            assert!(!method.summary().is_empty() && !method.domains().is_empty());
        }
    }
}
