//! Orders that assign PCI devices to domains, release and configure them.

use std::num::NonZeroU32;

use vtax_lab::{
    Lifetime, World,
    facts::{PciDevice, PciFacts},
    io::{AssignError, IoList, NewVfs, VfError},
};
use vtax_model::{
    domain::{Configuration, DeviceKind, DeviceOwner, DomainError, FunctionChange, PRIMARY, contains},
    topology::Name,
};

use crate::{
    error::BindError, host_change::HostChange, ldm_host::LdmHost, live_change::LiveObject, notice::DomainNotice,
};

impl LdmHost {
    /// Returns the PCI devices that domains can have. A host of a lab has none.
    pub(super) fn devices(&self) -> Result<IoList, BindError> {
        if let Some(within) = self.within() {
            return Err(BindError::LabDevices { host: within.clone() });
        }
        list()
    }
}

/// Returns the PCI devices of this machine.
pub(super) fn list() -> Result<IoList, BindError> {
    Ok(IoList::new(PciFacts::gather()?, &World::enter(Lifetime::Ephemeral)?)?)
}

impl HostChange<'_> {
    pub(super) fn add_device(&self, device: &str, domain: &Name, dry_run: bool) -> Result<(), BindError> {
        let list = self.host().devices()?;
        if domain.as_str() == PRIMARY {
            // The device itself may no longer exist.
            let name = match self.reconfiguring()?.devices.released.contains(device) {
                true => device.to_owned(),
                false => list.assignable(device).map_err(Box::new)?.name,
            };
            return self.change_device(domain, &name, dry_run, |all| all.return_device(&name));
        }
        let found = list.assignable(device).map_err(Box::new)?;
        let add = |all: &mut Configuration| all.add_device(domain, &found.name, found.kind);
        // A conflict between domains is more informative than a part of the device that is in use.
        self.edited(add)?;
        list.check_assignable(&found, domain).map_err(Box::new)?;
        self.change_device(domain, &found.name, dry_run, add)
    }

    /// Changes a domain's devices, or only checks the change.
    fn change_device(
        &self,
        domain: &Name,
        device: &str,
        dry_run: bool,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<(), BindError> {
        match dry_run {
            true => self.edited(edit).map(drop),
            false => self.edit_live(&LiveObject::Device { domain: domain.clone(), device: device.to_owned() }, edit),
        }
    }

    pub(super) fn remove_device(&self, device: &str, domain: &Name, dry_run: bool) -> Result<(), BindError> {
        let list = self.host().devices()?;
        if domain.as_str() == PRIMARY {
            return self.release_device(&list, device, domain, dry_run);
        }
        // The device itself may no longer exist.
        let has = self.configuration().domain(domain)?.io.iter().any(|own| own.name == device);
        let name = if has { device.to_owned() } else { list.assignable(device).map_err(Box::new)?.name };
        self.change_device(domain, &name, dry_run, |all| all.remove_device(domain, &name))
    }

    fn release_device(&self, list: &IoList, device: &str, primary: &Name, dry_run: bool) -> Result<(), BindError> {
        let found = list.assignable(device).map_err(Box::new)?;
        if found.kind == DeviceKind::Vf {
            let (name, wanted) = (found.name, "root complex or slot; virtual functions leave primary without rm-io");
            return Err(Box::new(AssignError::OtherKind { name, wanted }).into());
        }
        // A conflict between domains is more informative than a part of the device that is in use.
        self.reconfiguring()?.remove_device(primary, &found.name)?;
        list.check_spared(&found, None).map_err(Box::new)?;
        self.change_device(primary, &found.name, dry_run, |all| all.remove_device(primary, &found.name))
    }

    /// Returns the pending configuration: primary's own devices only change at its next boot.
    fn reconfiguring(&self) -> Result<Configuration, BindError> {
        let pending = self.state().pending.clone().ok_or(DomainError::NotReconfiguring)?;
        Ok(pending.configuration)
    }

    pub(super) fn set_bus(&self, bus: &str, on: bool) -> Result<(), BindError> {
        let bus = self.host().devices()?.bus(bus).map_err(Box::new)?;
        self.reconfiguring()?;
        self.edit(|all| all.set_iov(&bus, on)).map(drop)
    }

    pub(super) fn set_function(&self, function: &str, change: FunctionChange) -> Result<(), BindError> {
        let function = checked_function(&self.host().devices()?, function, &change)?;
        let domain = match self.configuration().owner_of(&function) {
            DeviceOwner::Domain(domain) => domain.clone(),
            _ => PRIMARY.parse().expect("a name"),
        };
        let object = LiveObject::Device { domain, device: function.clone() };
        self.edit_live(&object, |all| all.set_function(&function, change))
    }

    pub(super) fn create_functions(&self, physical: &str, new: &NewVfs) -> Result<(), BindError> {
        let list = self.changed_devices()?;
        check_owner(self.configuration(), &list, physical).map_err(Box::new)?;
        let plan = list.new_vfs(physical, new).map_err(Box::new)?;
        if let Some(why) = &plan.warning {
            self.tell(DomainNotice::MayInterrupt { device: plan.name.clone().into(), why: why.into() });
        }
        let functions = plan.make(&World::enter(Lifetime::Kept)?)?;
        functions.into_iter().for_each(|function| self.tell(created(function)));
        Ok(())
    }

    pub(super) fn destroy_functions(&self, name: &str, count: Option<NonZeroU32>) -> Result<(), BindError> {
        let list = self.changed_devices()?;
        let physical = freed_functions(self.configuration(), &list, name, count)?;
        let world = World::enter(Lifetime::Kept)?;
        let removal = list.removal(name, &vtax_lab::list(&world)?).map_err(Box::new)?;
        removal.carry_out(&world)?;
        removal.names.into_iter().for_each(|name| self.tell(DomainNotice::FunctionRemoved(name.into())));
        if !self.configuration().devices.functions.is_empty() {
            self.edit(|all| {
                all.forget_functions(&physical);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns the devices of this machine, for changes of the hardware itself.
    fn changed_devices(&self) -> Result<IoList, BindError> {
        self.domains()?;
        self.host().devices()
    }
}

/// Reports a new function to the user.
fn created(function: PciDevice) -> DomainNotice {
    DomainNotice::FunctionCreated { has_driver: function.driver.is_some(), name: function.name.into() }
}

/// Refuses new functions of a physical function that `primary` doesn't have. A device that doesn't exist has no owner.
fn check_owner(all: &Configuration, list: &IoList, physical: &str) -> Result<(), VfError> {
    let Ok(found) = list.facts().find(physical) else { return Ok(()) };
    let owner = match all.owner_of(&found.name) {
        DeviceOwner::Primary => return Ok(()),
        DeviceOwner::Domain(domain) => domain.to_string(),
        DeviceOwner::Nobody => "no domain".to_owned(),
    };
    Err(VfError::Lent { name: found.name.clone(), owner })
}

/// Returns the physical function of a device. Refused if a domain has one of its virtual functions, or if there are more
/// or fewer than `count`.
fn freed_functions(
    all: &Configuration,
    list: &IoList,
    name: &str,
    count: Option<NonZeroU32>,
) -> Result<String, BindError> {
    let facts = list.facts();
    let named = facts.find(name).map_err(|error| Box::new(VfError::Unknown(error)))?;
    let device = named.physfn.and_then(|physical| facts.device(physical)).unwrap_or(named);
    let physical = device.name.clone();
    let there = facts.devices.iter().filter(|function| function.physfn == Some(device.device)).count();
    if let Some(wanted) = count.map(NonZeroU32::get).filter(|wanted| *wanted as usize != there) {
        return Err(BindError::FunctionCount { name: physical, there, wanted });
    }
    match all.all_devices().find(|(_, device)| contains(&physical, &device.name)) {
        Some((domain, device)) => {
            let (name, by) = (device.name.clone(), format!("{domain} has it"));
            Err(Box::new(VfError::InUse { name, by }).into())
        }
        None => Ok(physical),
    }
}

/// Returns the name of a virtual function for which its NIC permits the change.
fn checked_function(list: &IoList, function: &str, change: &FunctionChange) -> Result<String, BindError> {
    let found = list.assignable(function).map_err(Box::new)?;
    let (DeviceKind::Vf, [device]) = (found.kind, found.functions.as_slice()) else {
        let (name, wanted) = (found.name, "virtual function; only those have these properties");
        return Err(Box::new(AssignError::OtherKind { name, wanted }).into());
    };
    let physical = device.physfn.and_then(|physical| list.facts().device(physical));
    let most = physical.and_then(|physical| physical.netdev.as_ref()).and_then(|link| link.max_mtu);
    if let (Some(wanted), Some(most)) = (change.mtu, most)
        && wanted.get() > most
    {
        return Err(Box::new(VfError::Mtu { name: found.name, wanted, most }).into());
    }
    Ok(found.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use vtax_model::domain::{DomainDevice, FunctionSettings};

    use super::*;
    use crate::test_domains::{configuration, mtu, name};

    /// Returns a device of a NIC whose link has this MTU at most.
    fn function(address: &str, name: &str, physical: Option<&str>, most: Option<u32>) -> Value {
        let link = json!({
            "name": "eno1", "mac": null, "mtu": 1500, "max_mtu": most, "up": true, "addresses": [], "upper": null,
        });
        json!({
            "device": address, "name": name, "endpoint": "pci_0/03", "root": "pci_0", "id": "8086:10c9",
            "class": 0x02_0000, "driver": "igb", "driver_override": null, "group": 1, "node": null, "link": null,
            "netdev": if physical.is_none() { link } else { Value::Null }, "physfn": physical, "virtfns": [],
            "sriov": null, "vf": null, "kept": null,
        })
    }

    fn list(most: Option<u32>) -> IoList {
        let physical = function("0000:00:03.0", "pci_0/03", None, most);
        let vf = function("0000:00:10.0", "pci_0/03/VF0", Some("0000:00:03.0"), None);
        let entry = |name: &str, kind: &str, function: &Value| {
            json!({
                "name": name, "type": kind, "bus": "pci_0", "domain": "primary", "status": null, "depends_on": null,
                "function": function,
            })
        };
        let entries =
            [entry("pci_0", "BUS", &Value::Null), entry("pci_0/03", "PF", &physical), entry("pci_0/03/VF0", "VF", &vf)];
        let devices = [physical, vf];
        let facts = json!({ "iommu": true, "vfio": { "Ok": null }, "roots": [], "slots": [], "devices": devices });
        serde_json::from_value(json!({ "entries": entries, "facts": facts })).expect("a list")
    }

    /// mars has the function if these constraints assign it.
    fn owners(device: Option<&str>, released: Option<&str>) -> Configuration {
        let mut all = configuration();
        let settings = FunctionSettings::default();
        let device = device.map(|name| DomainDevice { name: name.to_owned(), kind: DeviceKind::Vf, settings });
        all.domains.get_mut(&name("mars")).expect("it is there").io.extend(device);
        all.devices.released.extend(released.map(str::to_owned));
        all
    }

    #[test]
    fn functions_are_created_only_for_primary() {
        let list = list(None);
        for (all, physical, expected) in [
            (owners(None, None), "pci_0/03", None),
            (owners(Some("pci_0"), None), "pci_0/03", Some("mars")),
            (owners(None, Some("pci_0/03")), "0000:00:03.0", Some("no domain")),
            (owners(None, Some("pci_0")), "pci_9", None),
        ] {
            let owner = check_owner(&all, &list, physical).err().map(|error| match error {
                VfError::Lent { owner, .. } => owner,
                other => panic!("{other}"),
            });
            assert_eq!(owner.as_deref(), expected, "{physical}");
        }
    }

    #[test]
    fn functions_are_removed_all_together_unless_a_domain_has_one() {
        let list = list(None);
        for (all, named, count, expected) in [
            (owners(None, None), "pci_0/03", None, Ok("pci_0/03")),
            (owners(None, None), "pci_0/03/VF0", Some(1), Ok("pci_0/03")),
            (owners(None, None), "pci_0/03", Some(2), Err("has 1 virtual functions")),
            (owners(Some("pci_0/03/VF0"), None), "pci_0/03", None, Err("mars has it")),
            (owners(None, None), "pci_9", None, Err("pci_9")),
        ] {
            match (freed_functions(&all, &list, named, count.and_then(NonZeroU32::new)), expected) {
                (Ok(physical), Ok(expected)) => assert_eq!(physical, expected),
                (Err(error), Err(expected)) => {
                    assert!(error.is_of_input() && error.to_string().contains(expected), "{named}: {error}");
                }
                (found, expected) => panic!("{named}: {found:?}, and not {expected:?}"),
            }
        }
    }

    #[test]
    fn only_a_virtual_function_has_properties_and_its_nic_limits_its_mtu() {
        let of_mtu = |bytes| FunctionChange { mtu: Some(mtu(bytes)), ..FunctionChange::default() };
        for (most, name, change, expected) in [
            (Some(9000), "pci_0/03/VF0", of_mtu(9000), Ok("pci_0/03/VF0")),
            (None, "pci_0/03/VF0", of_mtu(16_000), Ok("pci_0/03/VF0")),
            (Some(9000), "pci_0/03/VF0", of_mtu(9001), Err("9000")),
            (Some(9000), "pci_0", FunctionChange::default(), Err("only those have these properties")),
            (Some(9000), "pci_9", FunctionChange::default(), Err("pci_9")),
        ] {
            match (checked_function(&list(most), name, &change), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(expected)) => {
                    assert!(error.is_of_input() && error.to_string().contains(expected), "{name}: {error}");
                }
                (found, expected) => panic!("{name}: {found:?}, and not {expected:?}"),
            }
        }
    }
}
