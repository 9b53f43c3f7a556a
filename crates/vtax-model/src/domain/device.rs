//! PCI devices of the host that are assigned to domains.
//!
//! A device is identified by its name in `list-io`, which is the same at every boot. The names show the hierarchy:
//! `pci_1` is a root complex, `pci_1/slot0` a slot below it, `pci_1/slot0/PF0.VF0` a virtual function of the device in
//! it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumString, IntoStaticStr};

use super::{Configuration, DomainError, PRIMARY, configuration::check_room, mac_addresses::MacOwners};
use crate::{
    guest::Mac,
    is_default,
    method::{Capabilities, DomainKind, Failover, IoMethod, MethodVariant},
    topology::Name,
    units::Mtu,
    vf::Vlan,
};

/// PCI device of the host that is assigned to a domain, whether the domain is bound or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainDevice {
    /// Its name in `list-io`.
    pub name: String,
    /// Type in upper case, as in `list-io`: `BUS`, `PCIE` or `VF`.
    #[serde(rename = "type")]
    pub kind: DeviceKind,
    /// The settings of a virtual function.
    #[serde(flatten)]
    pub settings: FunctionSettings,
}

/// Type of an assignable device; a physical function is assigned only with its whole endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, IntoStaticStr)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE", parse_err_ty = DomainError, parse_err_fn = unknown_kind)]
pub enum DeviceKind {
    /// A root complex with everything below it.
    Bus,
    /// The device in a slot, or an onboard endpoint.
    Pcie,
    /// A virtual function.
    Vf,
}

impl DeviceKind {
    /// The I/O method of such a device.
    pub fn method(self) -> IoMethod {
        match self {
            DeviceKind::Bus => IoMethod::RootDomain,
            DeviceKind::Pcie => IoMethod::Assigned,
            DeviceKind::Vf => IoMethod::SrIov,
        }
    }

    /// Returns true if it can be added and removed while its domain runs.
    pub fn is_hot_pluggable(self) -> bool {
        self.capabilities().hot_plug.is_yes()
    }

    /// Returns true if its domain depends on `primary`, apart from the host's kernel.
    pub(super) fn depends_on_primary(self) -> bool {
        self.capabilities().failover != Failover::Nobody
    }

    /// Returns the capabilities of a domain with such a device.
    pub fn capabilities(self) -> Capabilities {
        MethodVariant { method: self.method(), domain: DomainKind::Guest, virtio: None }.capabilities()
    }
}

fn unknown_kind(text: &str) -> DomainError {
    DomainError::value("device type", text, "BUS, PCIE or VF")
}

/// Settings of a virtual function.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct FunctionSettings {
    /// Its Ethernet address.
    pub mac_addr: Option<Mac>,
    /// The VLAN of all its frames. The NIC adds and removes the tag.
    pub pvid: Option<Vlan>,
    /// The MTU that its domain should use. Only the domain itself sets it.
    pub mtu: Option<Mtu>,
}

/// Settings of the host's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostDevices {
    /// Devices released by `primary`, available to other domains.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub released: BTreeSet<String>,
    /// Root complexes for which it is set whether domains may have the devices below.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub iov: BTreeMap<String, bool>,
    /// The settings of virtual functions, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, FunctionSettings>,
}

/// The owner of a PCI device: the host, a domain, or nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceOwner<'a> {
    /// The host.
    Primary,
    /// Nobody: `primary` has released it.
    Nobody,
    /// A domain other than `primary` that is assigned the device, or one above it, such as its slot.
    Domain(&'a Name),
}

/// Returns true if one device is the other, or contains it.
pub fn contains(device: &str, other: &str) -> bool {
    other.strip_prefix(device).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}

/// Checks that a device can have this name. Parts of it are slot names, which the firmware assigns.
fn check_name(name: &str) -> Result<(), DomainError> {
    let is_fine = |letter: char| (letter.is_ascii_graphic() && letter != '|') || letter == ' ';
    match (1..=128).contains(&name.len()) && name.chars().all(is_fine) {
        true => Ok(()),
        false => Err(DomainError::value("device name", name, "1 to 128 ASCII characters, and no |")),
    }
}

/// The physical function of a virtual one.
fn physical(function: &str) -> &str {
    function.rsplit_once('.').map_or(function, |(physical, _)| physical)
}

/// Changes of a virtual function: only present fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionChange {
    pub mac_addr: Option<Mac>,
    /// `Some(None)` removes the VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_with::rust::double_option")]
    pub pvid: Option<Option<Vlan>>,
    pub mtu: Option<Mtu>,
}

impl FunctionSettings {
    /// Returns the settings after a change.
    pub fn changed_by(self, change: FunctionChange) -> FunctionSettings {
        FunctionSettings {
            mac_addr: change.mac_addr.or(self.mac_addr),
            pvid: change.pvid.unwrap_or(self.pvid),
            mtu: change.mtu.or(self.mtu),
        }
    }
}

impl From<FunctionSettings> for FunctionChange {
    fn from(settings: FunctionSettings) -> FunctionChange {
        FunctionChange { mac_addr: settings.mac_addr, pvid: Some(settings.pvid), mtu: settings.mtu }
    }
}

impl Configuration {
    /// Returns the owner of the device of this name. A virtual function that no domain has belongs to the owner of its
    /// physical function.
    pub fn owner_of(&self, device: &str) -> DeviceOwner<'_> {
        let has = |(_, device_of): &(&Name, &DomainDevice)| contains(&device_of.name, device);
        if let Some((domain, _)) = self.all_devices().find(has) {
            return DeviceOwner::Domain(domain);
        }
        match self.devices.released.iter().any(|released| contains(released, device)) {
            true => DeviceOwner::Nobody,
            false => DeviceOwner::Primary,
        }
    }

    /// Returns all devices in the constraints of domains.
    pub fn all_devices(&self) -> impl Iterator<Item = (&Name, &DomainDevice)> {
        self.domains.iter().flat_map(|(name, domain)| domain.io.iter().map(move |device| (name, device)))
    }

    /// Assigns a device to a domain. The caller has checked that the host has it and can spare it.
    pub fn add_device(&mut self, domain: &Name, name: &str, kind: DeviceKind) -> Result<(), DomainError> {
        let mut macs = self.mac_owners();
        self.add_device_beside(domain, name, kind, &mut macs)
    }

    fn add_device_beside(
        &mut self,
        domain: &Name,
        name: &str,
        kind: DeviceKind,
        macs: &mut MacOwners,
    ) -> Result<(), DomainError> {
        self.domain(domain)?;
        check_name(name)?;
        if domain.as_str() == PRIMARY {
            return self.return_device(name);
        }
        check_room("devices of domains", self.all_devices().count(), Configuration::MOST_DEVICES)?;
        self.check_free(name, domain)?;
        self.check_released(name, kind)?;
        let bus = name.split('/').next().unwrap_or(name);
        if self.devices.iov.get(bus) == Some(&false) {
            return Err(DomainError::IovOff { name: name.to_owned(), bus: bus.to_owned() });
        }
        let mut settings = self.devices.functions.get(name).copied().unwrap_or_default();
        if kind == DeviceKind::Vf && settings.mac_addr.is_none() {
            // It belongs to the function, whoever has that.
            let primary: Name = PRIMARY.parse().expect("a name");
            settings.mac_addr = Some(macs.free(name, &primary, &[]));
        }
        settings.mac_addr.into_iter().for_each(|mac| macs.insert(mac, name, domain));
        self.domain_mut(domain)?.io.push(DomainDevice { name: name.to_owned(), kind, settings });
        Ok(())
    }

    /// Checks that no domain has it, or a device above or below it.
    fn check_free(&self, name: &str, wanted_by: &Name) -> Result<(), DomainError> {
        let meets = |has: &str| contains(has, name) || contains(name, has);
        match self.all_devices().find(|(_, device)| meets(&device.name)) {
            Some((domain, device)) if domain == wanted_by && device.name == name => {
                Err(DomainError::DeviceThere { name: name.to_owned(), domain: domain.clone() })
            }
            Some((domain, device)) => {
                let (name, has) = (name.to_owned(), device.name.clone());
                Err(DomainError::DeviceTaken { name, domain: domain.clone(), has })
            }
            None => Ok(()),
        }
    }

    /// `primary` keeps the physical function of a virtual one, but must release every other device
    /// first.
    fn check_released(&self, name: &str, kind: DeviceKind) -> Result<(), DomainError> {
        let has_it = |device: &str| self.owner_of(device) == DeviceOwner::Primary;
        match kind {
            DeviceKind::Vf if !has_it(physical(name)) => {
                Err(DomainError::NoPhysical { name: name.to_owned(), physical: physical(name).to_owned() })
            }
            DeviceKind::Bus | DeviceKind::Pcie if has_it(name) => Err(DomainError::OfPrimary { name: name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Removes a device from a domain, or from `primary`, so that others can have it.
    pub fn remove_device(&mut self, domain: &Name, name: &str) -> Result<(), DomainError> {
        if domain.as_str() == PRIMARY {
            return self.release_device(name);
        }
        let devices = &self.domain(domain)?.io;
        if devices.iter().all(|device| device.name != name) {
            let has: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
            let has = if has.is_empty() { "no device".to_owned() } else { has.join(", ") };
            return Err(DomainError::NoDevice { name: name.to_owned(), domain: domain.clone(), has });
        }
        self.domain_mut(domain)?.io.retain(|device| device.name != name);
        Ok(())
    }

    fn release_device(&mut self, name: &str) -> Result<(), DomainError> {
        let primary: Name = PRIMARY.parse().expect("a name");
        check_name(name)?;
        self.check_free(name, &primary)?;
        if self.owner_of(name) != DeviceOwner::Primary {
            return Err(DomainError::Released { name: name.to_owned() });
        }
        check_room("devices released by primary", self.devices.released.len(), Configuration::MOST_DEVICES)?;
        self.devices.released.retain(|released| !contains(name, released));
        self.devices.released.insert(name.to_owned());
        Ok(())
    }

    /// Returns devices to `primary` that it has released.
    pub fn return_device(&mut self, name: &str) -> Result<(), DomainError> {
        let primary: Name = PRIMARY.parse().expect("a name");
        self.check_free(name, &primary)?;
        match self.devices.released.remove(name) {
            true => Ok(()),
            false => Err(DomainError::DeviceThere { name: name.to_owned(), domain: primary }),
        }
    }

    /// Sets whether domains may have the devices below a root complex.
    pub fn set_iov(&mut self, bus: &str, on: bool) -> Result<(), DomainError> {
        check_name(bus)?;
        if self.devices.iov.get(bus) == Some(&on) {
            return Err(DomainError::IovThere { bus: bus.to_owned(), iov: if on { "on" } else { "off" } });
        }
        if let Some((domain, device)) = self.all_devices().find(|(_, device)| !on && contains(bus, &device.name)) {
            let (bus, has) = (bus.to_owned(), device.name.clone());
            return Err(DomainError::IovUsed { bus, domain: domain.clone(), has });
        }
        if !self.devices.iov.contains_key(bus) {
            check_room("root complexes with iov", self.devices.iov.len(), Configuration::MOST_DEVICES)?;
        }
        self.devices.iov.insert(bus.to_owned(), on);
        Ok(())
    }

    /// Configures a virtual function, whoever has it.
    pub fn set_function(&mut self, name: &str, change: FunctionChange) -> Result<(), DomainError> {
        let mut macs = self.mac_owners();
        self.set_function_beside(name, change, &mut macs)
    }

    fn set_function_beside(
        &mut self,
        name: &str,
        change: FunctionChange,
        macs: &mut MacOwners,
    ) -> Result<(), DomainError> {
        check_name(name)?;
        if !self.devices.functions.contains_key(name) {
            check_room("functions with settings", self.devices.functions.len(), Configuration::MOST_DEVICES)?;
        }
        let owner = match self.owner_of(name) {
            DeviceOwner::Domain(domain) => Some(domain.clone()),
            _ => None,
        };
        if let Some(mac) = change.mac_addr {
            let primary: Name = PRIMARY.parse().expect("a name");
            let domain = owner.as_ref().unwrap_or(&primary);
            macs.check(mac, name, domain)?;
            macs.insert(mac, name, domain);
        }
        let settings = self.devices.functions.get(name).copied().unwrap_or_default().changed_by(change);
        self.devices.functions.insert(name.to_owned(), settings);
        let own = owner.map(|domain| self.domain_mut(&domain)).transpose()?;
        if let Some(device) = own.and_then(|domain| domain.io.iter_mut().find(|device| device.name == name)) {
            device.settings = device.settings.changed_by(change);
        }
        Ok(())
    }

    /// Forgets the settings of removed virtual functions.
    pub fn forget_functions(&mut self, physical: &str) {
        self.devices.functions.retain(|function, _| !contains(physical, function));
    }

    /// Adopts the device settings of another configuration, for one that is being rebuilt.
    pub(super) fn rebuild_devices(&mut self, from: &HostDevices, macs: &mut MacOwners) -> Result<(), DomainError> {
        from.released.iter().try_for_each(|name| self.release_device(name))?;
        from.iov.iter().try_for_each(|(bus, on)| self.set_iov(bus, *on))?;
        let mut set = |name: &str, settings: FunctionSettings| self.set_function_beside(name, settings.into(), macs);
        from.functions.iter().try_for_each(|(name, settings)| set(name, *settings))
    }

    pub(super) fn rebuild_device(
        &mut self,
        domain: &Name,
        device: &DomainDevice,
        macs: &mut MacOwners,
    ) -> Result<(), DomainError> {
        self.add_device_beside(domain, &device.name, device.kind, macs)?;
        self.set_function_of(domain, device, macs)
    }

    fn set_function_of(
        &mut self,
        domain: &Name,
        device: &DomainDevice,
        macs: &mut MacOwners,
    ) -> Result<(), DomainError> {
        if is_default(&device.settings) {
            return Ok(());
        }
        if let Some(mac) = device.settings.mac_addr {
            macs.check(mac, &device.name, domain)?;
            macs.insert(mac, &device.name, domain);
        }
        let own = self.domain_mut(domain)?.io.iter_mut().find(|own| own.name == device.name);
        if let Some(own) = own {
            own.settings = device.settings;
        }
        Ok(())
    }
}
