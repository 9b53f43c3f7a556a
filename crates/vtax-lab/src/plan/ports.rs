//! The NICs at the ends of wires that are cables: which they are, and whether a lab may have them.

use std::collections::{BTreeMap, HashMap};

use vtax_model::{
    guest::Mac,
    method::Unsupported,
    topology::{Cable, NicName, Topology, Wire},
};
use vtax_sys::pci::PciAddress;

use super::{PlanError, segment::WireEnd};
use crate::facts::{Facts, Netdev, NoDevice, PciDevice};

/// A NIC at an end of a wire.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    /// As the machine has it.
    pub(crate) nic: PciDevice,
    /// Its link, which is there and unused.
    pub(crate) netdev: Netdev,
}

impl Port {
    /// The address of its link.
    pub(crate) fn mac(&self) -> Option<Mac> {
        self.netdev.mac?.to_string().parse().ok()
    }
}

/// Why a NIC can't be an end of a wire, or its functions can't be handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NicError {
    /// Nothing here is called so, or several are.
    #[error("{0}")]
    Unknown(NoDevice),
    /// Another kind of PCI device.
    #[error("it is no network controller; name a NIC (vtax io list shows them)")]
    NotANic,
    /// One can't be at the end of a cable.
    #[error("it is a virtual function; name its physical function {0}")]
    Virtual(PciAddress),
    /// It carries what the user needs.
    #[error("it must not be taken: {0}; use another NIC")]
    Kept(String),
    /// A lab has it.
    #[error(
        "{0} has it, and with it all virtual functions that it can have; take that lab down first (vtax lab down), or use another NIC"
    )]
    Lent(String),
    /// Nothing drives it.
    #[error("it has no driver; load the one of its maker (modprobe), or bind it")]
    NoDriver,
    /// Its driver shows no link here.
    #[error(
        "its driver {0} shows no network link here: a guest or another namespace has it; give it back first (vtax io list says who has it)"
    )]
    NoLink(String),
    /// Somebody uses it.
    #[error("its link {link} is in use: {by}; remove that first")]
    InUse {
        /// The link.
        link: String,
        /// What uses it.
        by: String,
    },
    /// It is at the end of two wires.
    #[error("it is an end of the wire `{0}` already; name another")]
    Twice(String),
    /// No hardware for it.
    #[error("it can't have virtual functions; use a NIC with SR-IOV, or switch SR-IOV on in the firmware")]
    NoSriov,
    /// More than it can have.
    #[error("{wanted} virtual functions are wanted, and it can have {total}; use another NIC for the rest")]
    TooFewVfs {
        /// By the lab.
        wanted: u32,
        /// Of the NIC.
        total: u32,
    },
    /// Those that it has are somebody's.
    #[error(
        "{wanted} virtual functions are wanted, and of the {num} that it has {free} are free; end their users, or remove them all (vtax io destroy-vf) and the lab makes its own"
    )]
    VfsInUse {
        /// By the lab.
        wanted: u32,
        /// That it has.
        num: u32,
        /// Of these.
        free: u32,
    },
    /// Some devices tell only once there are some.
    #[error(
        "it doesn't tell where its virtual functions will be; make them first (vtax io create-vf), and the lab uses those"
    )]
    VfsUnknown,
    /// They would go with its driver.
    #[error(
        "{name} has {num} virtual functions, which are gone when a guest gets it; end their users and remove them first (vtax io destroy-vf {name})"
    )]
    HasVfs {
        /// The NIC, or one that goes with it.
        name: String,
        /// How many.
        num: u32,
    },
    /// Nobody knows what drives the function in a guest.
    #[error("nothing is known of the driver that a guest needs for its virtual functions ({0}); use it in a zone")]
    VfDriver(String),
    /// No guest can have a PCI device here.
    #[error(transparent)]
    NotForGuests(#[from] Unsupported),
    /// What is handed over with it can't be.
    #[error("{member} would go with it, being {bond}, and must stay: {why}; use a NIC elsewhere")]
    Bound {
        /// The other device.
        member: String,
        /// `in the same IOMMU group`, or `below the same root complex`.
        bond: &'static str,
        /// Why not.
        why: String,
    },
}

/// The NIC of each end that has one.
pub(super) fn ports(topology: &Topology, facts: &Facts) -> Result<HashMap<WireEnd, Port>, PlanError> {
    let mut ports = HashMap::new();
    let mut taken: BTreeMap<PciAddress, &Wire> = BTreeMap::new();
    for wire in &topology.wires {
        let Some(Cable(nics)) = &wire.nics else { continue };
        for (host, name) in wire.ends.iter().zip(nics) {
            let port = port(name, facts).map_err(|error| nic_error(wire, name, error))?;
            if let Some(other) = taken.insert(port.nic.device, wire) {
                return Err(nic_error(wire, name, NicError::Twice(other.name.to_string())));
            }
            ports.insert(WireEnd { host: host.clone(), wire: wire.name.clone() }, port);
        }
    }
    Ok(ports)
}

pub(super) fn nic_error(wire: &Wire, nic: &NicName, error: NicError) -> PlanError {
    PlanError::Nic { wire: wire.name.clone(), nic: nic.clone(), error: Box::new(error) }
}

/// A NIC that a lab may have.
fn port(name: &NicName, facts: &Facts) -> Result<Port, NicError> {
    let nic = facts.pci.find(name.as_str()).map_err(NicError::Unknown)?;
    if !nic.is_nic() {
        return Err(NicError::NotANic);
    }
    if let Some(physical) = nic.physfn {
        return Err(NicError::Virtual(physical));
    }
    if let Some(owner) = facts.lent.get(&nic.device) {
        return Err(NicError::Lent(owner.clone()));
    }
    if let Some(why) = &nic.kept {
        return Err(NicError::Kept(why.clone()));
    }
    let driver = nic.driver.clone().ok_or(NicError::NoDriver)?;
    let netdev = nic.netdev.clone().ok_or(NicError::NoLink(driver))?;
    let used = netdev.given_address().map(|address| format!("it has the address {address}"));
    let used = used.or_else(|| netdev.upper.as_ref().map(|upper| format!("{upper} stands on it")));
    match used {
        Some(by) => Err(NicError::InUse { link: netdev.name, by }),
        None => Ok(Port { nic: nic.clone(), netdev }),
    }
}
