//! The machine's I/O as `ldm list-io` shows it: root complexes, slots and endpoints, physical and
//! virtual functions, each with the domain that has it.

mod assign;
mod functions;
mod owners;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use vtax_sys::pci::PciAddress;

use self::owners::Owners;
pub use self::owners::PRIMARY;
pub use self::{
    assign::{AssignError, AssignableDevice},
    functions::{NewVfs, Removal, VfError, VfPlan},
};
use crate::{
    error::LabError,
    facts::{NoDevice, PciDevice, PciFacts},
    world::World,
};

/// The whole list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoList {
    /// Root complexes, then slots and endpoints, then functions.
    pub entries: Vec<IoEntry>,
    facts: PciFacts,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoEntry {
    /// Its name, the same at every boot.
    pub name: String,
    /// Type in upper case, e.g. `PCIE`, as in the TYPE column.
    #[serde(rename = "type")]
    pub kind: IoKind,
    /// The name of its root complex.
    pub bus: String,
    /// The domain that has it: `primary`, another logical domain, or `LAB/DOMAIN`. If its functions have several domains, commas separate them.
    pub domain: String,
    /// Its status, if notable.
    pub status: Option<IoStatus>,
    /// For a virtual function: the domain that has its physical function, if that is another one.
    pub depends_on: Option<String>,
    /// The function. A complex, an empty slot and an endpoint of several functions have none here.
    pub function: Option<PciDevice>,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum IoKind {
    /// A root complex.
    Bus,
    /// A slot or endpoint.
    Pcie,
    /// A physical function, which can have virtual ones.
    Pf,
    /// A virtual function.
    Vf,
}

/// The status of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum IoStatus {
    /// An IOMMU is active: the devices below can be assigned.
    Iov,
    /// Something is in it.
    Occ,
    /// Nothing is in it.
    Emp,
    /// Unusable: it has no driver, and without an IOMMU group it can't be assigned to a guest.
    Inv,
}

/// The devices that labs and logical domains have, each with its owner.
pub(crate) fn lent(world: &World) -> Result<BTreeMap<PciAddress, String>, LabError> {
    Owners::look(world).map(|owners| owners.all())
}

impl IoList {
    /// The devices with their owners. An unprivileged user must gather `facts` before the world is entered.
    pub fn new(mut facts: PciFacts, world: &World) -> Result<IoList, LabError> {
        let owners = Owners::look(world)?;
        owners.look_into(world, &mut facts);
        Ok(IoList::of(facts, &owners))
    }

    /// The entries of this name, PCI address, network link or hardware address, and those below them.
    pub fn select(&self, name: &str) -> Result<Vec<&IoEntry>, NoDevice> {
        let named = self.named(name);
        if !named.is_empty() {
            return Ok(named);
        }
        self.facts.find(name).map(|device| self.named(&device.name))
    }

    /// The facts behind the list.
    pub fn facts(&self) -> &PciFacts {
        &self.facts
    }

    fn named(&self, name: &str) -> Vec<&IoEntry> {
        let below = |entry: &&IoEntry| {
            let rest = entry.name.strip_prefix(name);
            entry.bus == name || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
        };
        self.entries.iter().filter(below).collect()
    }

    fn of(facts: PciFacts, owners: &Owners) -> IoList {
        let mut entries: Vec<IoEntry> = facts.roots.iter().map(|root| complex(&root.name, &facts, owners)).collect();
        for root in &facts.roots {
            entries.extend(endpoints(&root.name, &facts, owners));
        }
        let mut physical: Vec<&PciDevice> = facts.devices.iter().filter(|device| device.is_pf()).collect();
        physical.sort_by_key(|device| (rank(&device.endpoint), device.name.clone()));
        for physical in physical {
            entries.push(function(physical, IoKind::Pf, owners));
            let virtuals = physical.virtfns.iter().filter_map(|vf| facts.device(*vf));
            entries.extend(virtuals.map(|device| function(device, IoKind::Vf, owners)));
        }
        IoList { entries, facts }
    }
}

/// A complex belongs to a domain if everything below it does.
fn complex(root: &str, facts: &PciFacts, owners: &Owners) -> IoEntry {
    let domains: BTreeSet<String> = facts.below(root).map(|device| owners.domain(device.device)).collect();
    let only = if domains.len() == 1 { domains.into_iter().next() } else { None };
    let domain = only.unwrap_or_else(|| PRIMARY.to_owned());
    place(root, IoKind::Bus, root, domain, facts.iommu.then_some(IoStatus::Iov))
}

/// An entry that is not a function.
fn place(name: &str, kind: IoKind, bus: &str, domain: String, status: Option<IoStatus>) -> IoEntry {
    let (name, bus) = (name.to_owned(), bus.to_owned());
    IoEntry { name, kind, bus, domain, status, depends_on: None, function: None }
}

/// The empty slots and endpoints of a complex. Functions that can't have virtual ones follow their endpoint.
fn endpoints(root: &str, facts: &PciFacts, owners: &Owners) -> Vec<IoEntry> {
    let physical = || facts.below(root).filter(|device| device.physfn.is_none());
    let names: BTreeSet<&str> = physical().map(|device| device.endpoint.as_str()).collect();
    let mut entries = Vec::new();
    for name in &names {
        let functions: Vec<&PciDevice> = physical().filter(|device| device.endpoint == *name).collect();
        entries.push(endpoint(name, root, &functions, owners));
        let plain = functions.iter().filter(|device| device.name != *name && !device.is_pf());
        entries.extend(plain.map(|device| function(device, IoKind::Pcie, owners)));
    }
    let empty = facts.slots.iter().filter(|slot| slot.root == root && !slot.occupied);
    entries.extend(empty.map(|slot| place(&slot.name, IoKind::Pcie, root, PRIMARY.to_owned(), Some(IoStatus::Emp))));
    entries.sort_by_cached_key(|entry| rank(&entry.name));
    entries
}

fn endpoint(name: &str, root: &str, functions: &[&PciDevice], owners: &Owners) -> IoEntry {
    let domains: BTreeSet<String> = functions.iter().map(|device| owners.domain(device.device)).collect();
    let usable = functions.iter().any(|device| is_usable(device));
    let alone = functions.iter().find(|device| device.name == name);
    let status = if usable { IoStatus::Occ } else { IoStatus::Inv };
    let domains = domains.into_iter().collect::<Vec<_>>().join(",");
    let function = alone.map(|device| (*device).clone());
    IoEntry { function, ..place(name, IoKind::Pcie, root, domains, Some(status)) }
}

fn function(device: &PciDevice, kind: IoKind, owners: &Owners) -> IoEntry {
    let domain = owners.domain(device.device);
    let physical = device.physfn.map(|pf| owners.domain(pf));
    IoEntry {
        name: device.name.clone(),
        kind,
        bus: device.root.clone(),
        depends_on: physical.filter(|physical| *physical != domain),
        domain,
        status: if is_usable(device) { None } else { Some(IoStatus::Inv) },
        function: Some(device.clone()),
    }
}

/// The order of entries: by complex, then devices that are in no slot, then slots by their numbers.
fn rank(name: &str) -> (u32, u32, String) {
    fn number(text: &str) -> u32 {
        text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
    }
    let (root, place) = name.split_once('/').unwrap_or((name, ""));
    let slot = place.strip_prefix("slot").map_or(0, |slot| number(slot).saturating_add(1));
    (root.strip_prefix("pci_").map_or(u32::MAX, number), slot, place.to_owned())
}

fn is_usable(device: &PciDevice) -> bool {
    device.driver.is_some() || device.group.is_some()
}
