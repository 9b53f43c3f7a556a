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
        let list = self.host().devices()?;
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
        let domain = match self.configuration().owner_of(&found.name) {
            DeviceOwner::Domain(domain) => domain.clone(),
            _ => PRIMARY.parse().expect("a name"),
        };
        let object = LiveObject::Device { domain, device: found.name.clone() };
        self.edit_live(&object, |all| all.set_function(&found.name, change))
    }
}
