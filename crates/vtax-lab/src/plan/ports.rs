//! The NICs at the ends of cables, and whether they are available to a lab.

use std::collections::{BTreeMap, HashMap};

use vtax_model::{
    guest::Mac,
    topology::{Cable, Name, NicName, Topology, Wire},
};
use vtax_sys::pci::PciAddress;

use super::{
    error::{NicError, PlanError},
    segment::WireEnd,
};
use crate::facts::{Facts, Netdev, PciDevice};

#[derive(Debug, Clone)]
pub(super) struct Port {
    /// Its name as the user wrote it.
    name: NicName,
    pub(super) nic: PciDevice,
    /// Its link, which exists and is unused.
    pub(super) netdev: Netdev,
}

impl Port {
    pub(super) fn mac(&self) -> Option<Mac> {
        self.netdev.mac?.to_string().parse().ok()
    }

    /// The error that this NIC, which is at `end`, can't be used.
    pub(super) fn refuse(&self, end: &WireEnd, error: NicError) -> PlanError {
        nic_error(&end.wire, &self.name, error)
    }
}

/// The NIC of each end that has one.
pub(super) fn ports(topology: &Topology, facts: &Facts) -> Result<HashMap<WireEnd, Port>, PlanError> {
    let mut ports = HashMap::new();
    let mut taken: BTreeMap<PciAddress, &Wire> = BTreeMap::new();
    for wire in &topology.wires {
        let Some(Cable(nics)) = &wire.nics else { continue };
        for (host, name) in wire.ends.iter().zip(nics) {
            let port = port(name, facts).map_err(|error| nic_error(&wire.name, name, error))?;
            if let Some(other) = taken.insert(port.nic.device, wire) {
                return Err(nic_error(&wire.name, name, NicError::Twice(other.name.to_string())));
            }
            ports.insert(WireEnd::of(host, &wire.name), port);
        }
    }
    Ok(ports)
}

fn nic_error(wire: &Name, nic: &NicName, error: NicError) -> PlanError {
    PlanError::Nic { wire: wire.clone(), nic: nic.clone(), error: Box::new(error) }
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
    let used = used.or_else(|| netdev.upper.as_ref().map(|upper| format!("{upper} is on top of it")));
    match used {
        Some(by) => Err(NicError::InUse { link: netdev.name, by }),
        None => Ok(Port { name: name.clone(), nic: nic.clone(), netdev }),
    }
}
