//! Orders that assign PCI devices to domains, release and configure them.

use vtax_lab::{
    Lifetime, World,
    facts::PciFacts,
    io::{AssignError, IoList, VfError},
};
use vtax_model::{
    domain::{Configuration, DeviceKind, DeviceOwner, DomainError, FunctionChange, PRIMARY},
    topology::Name,
};

use crate::{error::BindError, host_change::HostChange, ldm_host::LdmHost, live_change::LiveObject};

impl LdmHost {
    /// Returns the PCI devices that domains can have. A host of a lab has none.
    pub fn devices(&self) -> Result<IoList, BindError> {
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
        // A conflict between domains says more than a part of the device that is in use.
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
        // A conflict between domains says more than a part of the device that is in use.
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

    use super::*;
    use crate::test_domains::mtu;

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
