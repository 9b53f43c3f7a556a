//! Devices that a logical domain can own, and what each includes.

use vtax_model::{domain::DeviceKind, method::Unsupported, spelling::nearest, topology::Name};
use vtax_step::VFIO;

use super::{IoEntry, IoKind, IoList, owners::PRIMARY};
use crate::facts::{NoDevice, PciDevice};

/// A device that a domain can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignableDevice {
    /// Its name in the list.
    pub name: String,
    /// Type under which a domain gets it; a physical function alone has none.
    pub kind: DeviceKind,
    /// All functions that belong to it.
    pub functions: Vec<PciDevice>,
}

/// Reason why a domain cannot have a device.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum AssignError {
    #[error("no device `{name}`; {near}list all devices: vtax ldm list-io")]
    #[diagnostic(code("no-such-device"))]
    Unknown { name: String, near: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Name(#[from] NoDevice),
    #[error("{physical} has no virtual function {function} yet; create it first: vtax ldm create-vf {physical}")]
    #[diagnostic(code("no-functions"))]
    NotMade { physical: String, function: String },
    #[error(
        "{name} is a physical function, which cannot be assigned alone; name {endpoint} for the whole device, or a virtual \
         function (vtax ldm create-vf {name})"
    )]
    #[diagnostic(code("device-not-assignable"))]
    Physical { name: String, endpoint: String },
    #[error("{name} is not a {wanted}; see the type of each device: vtax ldm list-io")]
    #[diagnostic(code("device-not-assignable"))]
    OtherKind { name: String, wanted: &'static str },
    #[error("{name} is empty; choose an occupied slot (STATUS OCC in vtax ldm list-io)")]
    #[diagnostic(code("device-not-assignable"))]
    Empty { name: String },
    #[error("{name} must stay with primary: {device}: {why}")]
    #[diagnostic(code("device-kept"))]
    Kept { name: String, device: String, why: String },
    #[error("cannot assign {name}: {owner} has {device}; remove it there first")]
    #[diagnostic(code("device-taken"))]
    Lent { name: String, device: String, owner: String },
    #[error("cannot assign {name}: {why}")]
    #[diagnostic(code("no-iommu-group"))]
    NoVfio { name: String, why: Unsupported },
    #[error("cannot assign {name}: {device} has no IOMMU group; choose a device in another slot")]
    #[diagnostic(code("no-iommu-group"))]
    NoGroup { name: String, device: String },
    #[error(
        "cannot assign {name} alone: {other} is in the IOMMU group of {device}, and the hardware does not isolate the \
         two; assign an entry that contains both, or neither"
    )]
    #[diagnostic(code("iommu-group-shared"))]
    Shared { name: String, device: String, other: String },
    #[error(
        "cannot assign {name}: {physical} has virtual functions ({functions}); remove them from their domains and \
         destroy them first: vtax ldm destroy-vf {physical}"
    )]
    #[diagnostic(code("functions-in-use"))]
    HasFunctions { name: String, physical: String, functions: String },
}

impl IoList {
    /// Returns the device of this name, PCI address, link or hardware address, if a domain can have it.
    pub fn assignable(&self, name: &str) -> Result<AssignableDevice, AssignError> {
        let entry = self.entry(name)?;
        let owned = |functions: Vec<&PciDevice>, kind| AssignableDevice {
            name: entry.name.clone(),
            kind,
            functions: functions.into_iter().cloned().collect(),
        };
        let function = entry.function.as_ref();
        match (entry.kind, function) {
            (IoKind::Bus, _) => Ok(owned(self.facts.below(&entry.name).collect(), DeviceKind::Bus)),
            (IoKind::Vf, Some(function)) => Ok(owned(vec![function], DeviceKind::Vf)),
            (IoKind::Pf, function) => {
                let endpoint = function.map_or_else(|| entry.name.clone(), |function| function.endpoint.clone());
                Err(AssignError::Physical { name: entry.name.clone(), endpoint })
            }
            (_, Some(function)) => Ok(owned(vec![function], DeviceKind::Pcie)),
            (_, None) => {
                let of = |device: &&PciDevice| device.endpoint == entry.name && device.physfn.is_none();
                let functions: Vec<&PciDevice> = self.facts.devices.iter().filter(of).collect();
                match functions.is_empty() {
                    true => Err(AssignError::Empty { name: entry.name.clone() }),
                    false => Ok(owned(functions, DeviceKind::Pcie)),
                }
            }
        }
    }

    /// The root complex of this name.
    pub fn bus(&self, name: &str) -> Result<String, AssignError> {
        let entry = self.entry(name)?;
        match entry.kind {
            IoKind::Bus => Ok(entry.name.clone()),
            _ => Err(AssignError::OtherKind { name: entry.name.clone(), wanted: "root complex (TYPE BUS)" }),
        }
    }

    fn entry(&self, name: &str) -> Result<&IoEntry, AssignError> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.name == name) {
            return Ok(entry);
        }
        match self.facts.find(name) {
            Ok(device) => {
                let found = self.entries.iter().find(|entry| entry.name == device.name);
                found.ok_or_else(|| self.unknown(name))
            }
            Err(error @ NoDevice::Ambiguous { .. }) => Err(error.into()),
            Err(NoDevice::Unknown { .. }) => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> AssignError {
        let is_pf = |physical: &str| self.entries.iter().any(|it| it.name == physical && it.kind == IoKind::Pf);
        if let Some((physical, function)) = name.rsplit_once('.').filter(|(physical, _)| is_pf(physical)) {
            return AssignError::NotMade { physical: physical.to_owned(), function: function.to_owned() };
        }
        let near = nearest(name, self.entries.iter().map(|entry| entry.name.as_str()));
        let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        AssignError::Unknown { name: name.to_owned(), near }
    }

    /// Checks that the host can spare a device now, and that VFIO can hand it to this domain, which may have it already.
    pub fn check_assignable(&self, wanted: &AssignableDevice, domain: &Name) -> Result<(), AssignError> {
        self.check_spared(wanted, Some(domain))?;
        let name = || wanted.name.clone();
        self.facts.for_guests().map_err(|why| AssignError::NoVfio { name: name(), why })?;
        for function in &wanted.functions {
            let device = || called(wanted, function);
            if function.group.is_none() {
                return Err(AssignError::NoGroup { name: name(), device: device() });
            }
            let goes = |other: &PciDevice| wanted.functions.iter().any(|it| it.device == other.device);
            if let Some(other) = self.facts.group_of(function.device).find(|other| !goes(other)) {
                return Err(AssignError::Shared { name: name(), device: device(), other: other.name.clone() });
            }
        }
        Ok(())
    }

    /// Checks that neither the host nor anybody but this domain uses a device.
    pub fn check_spared(&self, wanted: &AssignableDevice, domain: Option<&Name>) -> Result<(), AssignError> {
        let name = || wanted.name.clone();
        for function in &wanted.functions {
            let device = || called(wanted, function);
            match self.domain(function.device) {
                Some(owner) if domain.is_some_and(|domain| owner == domain.as_str()) => continue,
                Some(owner) => {
                    return Err(AssignError::Lent { name: name(), device: device(), owner: owner.to_owned() });
                }
                None => {}
            }
            let there: Vec<&str> = self.functions_of(function).map(|it| it.name.as_str()).collect();
            if wanted.kind != DeviceKind::Vf && !there.is_empty() {
                let (physical, functions) = (function.name.clone(), there.join(", "));
                return Err(AssignError::HasFunctions { name: name(), physical, functions });
            }
            if let Some(why) = self.use_by_host(function) {
                return Err(AssignError::Kept { name: name(), device: device(), why });
            }
        }
        Ok(())
    }

    fn functions_of(&self, physical: &PciDevice) -> impl Iterator<Item = &PciDevice> {
        physical.virtfns.iter().filter_map(|function| self.facts.device(*function))
    }

    /// Returns why the host cannot spare a device, if so. A device already bound to vfio-pci was spared by an
    /// administrator.
    fn use_by_host(&self, function: &PciDevice) -> Option<String> {
        match function.driver.as_deref() {
            Some(VFIO) => function.kept.clone(),
            _ => self.user(function),
        }
    }

    /// The domain of a lab or the logical domain that has it.
    pub(super) fn domain(&self, device: vtax_sys::pci::PciAddress) -> Option<&str> {
        let of = |function: &Option<PciDevice>| function.as_ref().is_some_and(|function| function.device == device);
        let entry = self.entries.iter().find(|entry| of(&entry.function))?;
        Some(entry.domain.as_str()).filter(|domain| *domain != PRIMARY)
    }
}

/// The function by its own name, and by its address if it has the name of the device.
fn called(wanted: &AssignableDevice, function: &PciDevice) -> String {
    match wanted.name == function.name {
        true => function.device.to_string(),
        false => function.name.clone(),
    }
}
