//! Names that persist across reboots.
//!
//! Bus numbers, IOMMU groups and the names of links may change. The wiring of the machine doesn't: root complexes are
//! numbered in the order of their buses, and below one of them a device is known by its slot (`pci_0/slot2`) or, where
//! the board doesn't name slots, by device and function of each bridge on the way to it, and its own device number
//! (`pci_1/01.0-00`). A device's functions are `PF0`, `PF1`, … if they can have virtual functions and `F0`, `F1`, …
//! otherwise; the only function of a device without virtual ones has the device's own name. Virtual functions are
//! counted below their physical one: `pci_1/01.0-00/PF0.VF3`.

use std::collections::{BTreeMap, BTreeSet};

use vtax_sys::pci::{Device, PciAddress, PciSlot, Root};

use super::seen::Seen;
use crate::facts::pci::{RootComplex, SlotFacts};

pub(super) struct Names<'a> {
    seen: &'a Seen,
    roots: Vec<Root>,
    endpoints: BTreeMap<PciAddress, String>,
    /// Number of physical functions at each endpoint.
    functions: BTreeMap<String, usize>,
}

impl<'a> Names<'a> {
    pub(super) fn of(seen: &'a Seen) -> Names<'a> {
        let of_devices = seen.devices.iter().map(|device| device.root);
        let roots: BTreeSet<Root> = of_devices.chain(seen.slots.iter().filter_map(|slot| slot.root)).collect();
        let mut names =
            Names { seen, roots: roots.into_iter().collect(), endpoints: BTreeMap::new(), functions: BTreeMap::new() };
        for device in seen.devices.iter().filter(|device| device.physfn.is_none()) {
            let endpoint = names.place(device);
            *names.functions.entry(endpoint.clone()).or_default() += 1;
            names.endpoints.insert(device.address, endpoint);
        }
        names
    }

    pub(super) fn roots(&self) -> Vec<RootComplex> {
        let named = |root: &Root| RootComplex { name: self.root(*root), domain: root.domain, bus: root.bus };
        self.roots.iter().map(named).collect()
    }

    pub(super) fn root(&self, root: Root) -> String {
        let number = self.roots.iter().position(|known| *known == root);
        format!("pci_{}", number.expect("the roots are those of all devices and slots"))
    }

    /// The slots whose bus is known.
    pub(super) fn slots(&self) -> Vec<SlotFacts> {
        let slot = |slot: &PciSlot| {
            let root = self.root(slot.root?);
            let in_it = |device: &Device| device.slot.as_ref() == Some(&slot.name);
            let occupied = self.seen.devices.iter().any(in_it);
            Some(SlotFacts { name: format!("{root}/{}", label(&slot.name)), root, occupied })
        };
        self.seen.slots.iter().filter_map(slot).collect()
    }

    /// The name of the endpoint. A virtual function has the endpoint of its physical function.
    pub(super) fn endpoint(&self, device: &Device) -> String {
        let known = self.endpoints.get(&device.physfn.unwrap_or(device.address));
        known.cloned().unwrap_or_else(|| self.place(device))
    }

    pub(super) fn function(&self, device: &Device) -> String {
        let endpoint = self.endpoint(device);
        let physical = device.physfn.and_then(|pf| self.seen.devices.iter().find(|device| device.address == pf));
        if let Some(pf) = physical {
            let number = pf.virtfns.iter().position(|vf| *vf == device.address);
            // Its physical function doesn't list it only while it is being removed.
            return format!("{}.VF{}", self.function(pf), number.map_or("?".to_owned(), |number| number.to_string()));
        }
        let function = device.address.function;
        match (&device.sriov, self.functions.get(&endpoint)) {
            (Some(_), _) => format!("{endpoint}/PF{function}"),
            (None, Some(2..)) => format!("{endpoint}/F{function}"),
            (None, _) => endpoint,
        }
    }

    fn place(&self, device: &Device) -> String {
        let root = self.root(device.root);
        match &device.slot {
            Some(slot) if self.is_alone(device, slot) => format!("{root}/{}", label(slot)),
            _ => format!("{root}/{}", way(&device.path)),
        }
    }

    /// A slot may be a whole bus with several devices on it.
    fn is_alone(&self, device: &Device, slot: &str) -> bool {
        let of = |device: &Device| (device.root, device.address.bus, device.address.device);
        let physical = |other: &&Device| other.physfn.is_none() && other.slot.as_deref() == Some(slot);
        self.seen.devices.iter().filter(physical).all(|other| of(other) == of(device))
    }
}

/// Firmware may put anything into the name of a slot.
fn label(slot: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    format!("slot{}", slot.chars().map(plain).collect::<String>())
}

fn way(path: &[(u8, u8)]) -> String {
    let Some((own, above)) = path.split_last() else { return String::new() };
    let above = above.iter().map(|(device, function)| format!("{device:02x}.{function}-"));
    format!("{}{:02x}", above.collect::<String>(), own.0)
}
