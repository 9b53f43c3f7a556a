//! Hardware of this machine that methods divide among guests.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use vtax_lab::{
    Facts, availability,
    facts::{NoDevice, PciDevice, PciFacts},
    guest_availability,
};
use vtax_model::{
    advice::{Inventory, RequiredDevice, Requirements},
    guest::{Attach, System, VirtioNic},
    method::{DomainKind, IoMethod, MethodVariant, Unsupported},
    topology::Cable,
};

/// Returns the numbers of what is free.
pub(super) fn counts(facts: &Facts, requirements: &Requirements) -> Inventory {
    let is_net = requirements.devices().iter().all(|device| *device != RequiredDevice::Pci);
    let machine = FreeHardware { facts };
    Inventory {
        functions: Some(machine.functions()),
        devices: Some(machine.devices(is_net)),
        root_complexes: Some(machine.root_complexes()),
        wires: Some(machine.wires()),
        ..Inventory::default()
    }
}

/// PCI devices that the host can spare and nobody has.
struct FreeHardware<'a> {
    facts: &'a Facts,
}

impl FreeHardware<'_> {
    fn is_free(&self, device: &PciDevice) -> bool {
        device.kept.is_none() && !self.facts.lent.contains_key(&device.device)
    }

    fn physical(&self) -> impl Iterator<Item = &PciDevice> {
        self.facts.pci.devices.iter().filter(|device| device.physfn.is_none())
    }

    /// Linux changes the number of virtual functions only from 0, so new ones need a NIC none of whose functions is in
    /// use.
    fn functions(&self) -> u32 {
        let of_nic = |nic: &PciDevice| {
            let Some(sriov) = &nic.sriov else { return 0 };
            let existing = nic.virtfns.iter().filter_map(|function| self.facts.pci.device(*function));
            let free = existing.filter(|function| self.is_free(function)).count();
            match self.is_free(nic) && free == nic.virtfns.len() {
                true => sriov.total,
                false if self.facts.lent.contains_key(&nic.device) => 0,
                false => u32::try_from(free).unwrap_or(u32::MAX),
            }
        };
        self.physical().filter(|device| device.is_nic()).map(of_nic).sum()
    }

    /// All devices of an IOMMU group go together. A zone gets a NIC without an IOMMU, too.
    fn devices(&self, is_net: bool) -> u32 {
        let mut groups: BTreeMap<u32, Vec<&PciDevice>> = BTreeMap::new();
        let mut alone = 0;
        let is_wanted = |device: &PciDevice| !is_net || device.is_nic();
        for device in self.physical() {
            match device.group {
                Some(group) => groups.entry(group).or_default().push(device),
                None if self.is_free(device) && is_wanted(device) => alone += 1,
                None => {}
            }
        }
        let is_spare = |group: &&Vec<&PciDevice>| {
            group.iter().all(|device| self.is_free(device)) && group.iter().any(|device| is_wanted(device))
        };
        counted(groups.values().filter(is_spare).count()).saturating_add(alone)
    }

    fn root_complexes(&self) -> u32 {
        let pci = &self.facts.pci;
        let is_spare =
            |root: &&str| pci.below(root).next().is_some() && pci.below(root).all(|device| self.is_free(device));
        let roots: BTreeSet<&str> = pci.roots.iter().map(|root| root.name.as_str()).collect();
        counted(roots.iter().filter(|root| is_spare(root)).count())
    }

    fn wires(&self) -> u32 {
        let nics = self.physical().filter(|device| device.is_nic() && device.netdev.is_some());
        counted(nics.filter(|nic| self.is_free(nic)).count())
    }
}

fn counted(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the driver of the cable's first NIC; without a cable, that of the NICs with virtual functions, if they have
/// the same.
pub(super) fn driver(pci: &PciFacts, cable: Option<&Cable>) -> Result<Option<String>, NoDevice> {
    if let Some(Cable([nic, _])) = cable {
        return pci.find(nic.as_str()).map(|nic| nic.driver.clone());
    }
    let nics = pci.devices.iter().filter(|device| device.is_nic() && device.is_pf());
    let drivers: BTreeSet<Option<&String>> = nics.map(|nic| nic.driver.as_ref()).collect();
    let only = if drivers.len() == 1 { drivers.into_iter().next().flatten() } else { None };
    Ok(only.cloned())
}

/// Returns whether guests, which boot the running kernel unless another one is named, have `net_failover`.
pub(super) fn failover(release: &str) -> Option<bool> {
    if env::var_os("VTAX_KERNEL").is_some() {
        return None;
    }
    let folder = Path::new("/lib/modules").join(release);
    let lists = ["modules.builtin", "modules.dep"].map(|name| fs::read_to_string(folder.join(name)).ok());
    let lists: Vec<String> = lists.into_iter().flatten().collect();
    (!lists.is_empty()).then(|| lists.iter().any(|list| list.contains("/net_failover.ko")))
}

/// Returns the methods that cannot be used here, with the planner's reasons.
pub(super) fn unavailable(facts: &Facts, no_agent: Option<&Unsupported>) -> Vec<(MethodVariant, Unsupported)> {
    let methods = availability(facts);
    let of_method = |method: IoMethod| {
        let found = methods.iter().find(|(known, _)| *known == method);
        found.and_then(|(_, answer)| answer.clone().err())
    };
    let lacking = |variant: MethodVariant| match (variant.domain, variant.virtio) {
        (DomainKind::Primary, _) => None,
        (DomainKind::Guest, _) if no_agent.is_some() => no_agent.cloned(),
        (_, Some(path)) => {
            let nic = VirtioNic { backend: Some(path.backend), vnet: path.vnet, ..VirtioNic::default() };
            guest_availability(&Attach::Paravirtual(nic), &System::default(), facts).err()
        }
        (DomainKind::Guest, None) if variant.method.is_hardware() => {
            of_method(variant.method).or_else(|| facts.pci.for_guests().err())
        }
        _ => of_method(variant.method),
    };
    MethodVariant::all().into_iter().filter_map(|variant| Some((variant, lacking(variant)?))).collect()
}

#[cfg(test)]
mod tests;
