//! The steps that a lab is built of, as data.
//!
//! `site` carries them out. Links that a plan makes are in namespaces that the same plan makes. So undoing
//! means to remove the namespaces: the kernel removes what is in them. Guests are stopped before that.
//! Devices of the machine are given back as they were.

mod pci;

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_change::pci::{DriverState, LinkState, VfSettings};
use vtax_model::{
    topology::Name,
    units::{ByteSize, Mtu},
};
use vtax_step::{AddAddress, AddRoute, CreateLink, EnableLink, LimitRate, PartStep, Place, SetSysctl, StartGuest};
use vtax_sys::pci::PciAddress;

pub use pci::{LentVf, VfState};

use crate::facts::VFIO;

/// Step of a plan, as a lab's journal stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum LabStep {
    /// Makes a network namespace, pins it, and switches its `lo` on and IPv6 off.
    CreateNamespace {
        namespace: Name,
    },
    CreateLink(CreateLink),
    EnableLink(EnableLink),
    AddAddress(AddAddress),
    AddRoute(AddRoute),
    SetSysctl(SetSysctl),
    LimitRate(LimitRate),
    /// Moves the link of a NIC or of a virtual function into a namespace, and renames it as the lab names links.
    TakeNic {
        device: PciAddress,
        at: Place,
        mtu: Mtu,
        /// The link's state in this machine's own namespace. Absent for a virtual function, whose link goes
        /// with its driver.
        was: Option<LinkState>,
    },
    /// Makes virtual functions, none of which gets a driver automatically.
    CreateVfs {
        device: PciAddress,
        /// Location of its link, if not in this machine's own namespace. The link is up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
        count: u32,
        /// The addresses that they will have, if the plan relies on them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        functions: Option<Vec<PciAddress>>,
        /// True if the kernel gave new functions a driver before (`sriov_drivers_autoprobe`).
        autoprobe: bool,
    },
    /// Lets the machine's drivers take all virtual functions of a NIC, as the kernel itself does with new ones.
    ProbeVfs {
        device: PciAddress,
        mtu: Option<Mtu>,
    },
    /// Tells a NIC the settings of a virtual function that the same plan makes.
    ConfigureVf {
        /// The NIC, whose link is in this machine's own namespace.
        device: PciAddress,
        index: u32,
        set: VfSettings,
    },
    /// Tells a NIC the settings of a virtual function, and then gives the function to a driver. The driver
    /// reads the function's address when it takes the function.
    LendVf {
        at: Place,
        function: Box<LentVf>,
    },
    /// Gives a device to vfio-pci, for a guest.
    AssignDevice {
        device: PciAddress,
        was: DriverState,
    },
    /// Makes a file of this size that has no data, where none is.
    MakeFile {
        path: PathBuf,
        size: ByteSize,
    },
    StartGuest(StartGuest),
    /// Checks that every link of the lab has its mark and its MTU, and carries packets.
    Verify,
}

impl LabStep {
    /// Returns whether it changes a PCI device of the machine in a way that has to be undone.
    pub(crate) fn changes_device(&self) -> bool {
        matches!(
            self,
            LabStep::TakeNic { .. } | LabStep::CreateVfs { .. } | LabStep::LendVf { .. } | LabStep::AssignDevice { .. }
        )
    }

    /// The step, if it makes a part that isn't a lab's alone.
    pub(crate) fn part(&self) -> Option<&dyn PartStep> {
        Some(match self {
            LabStep::CreateLink(step) => step,
            LabStep::EnableLink(step) => step,
            LabStep::AddAddress(step) => step,
            LabStep::AddRoute(step) => step,
            LabStep::SetSysctl(step) => step,
            LabStep::LimitRate(step) => step,
            LabStep::StartGuest(step) => step,
            _ => return None,
        })
    }
}

impl fmt::Display for LabStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabStep::CreateNamespace { namespace } => write!(f, "namespace {namespace}"),
            LabStep::TakeNic { device, at, mtu, was } => {
                let name = was.as_ref().map(|was| format!(" ({})", was.name)).unwrap_or_default();
                write!(f, "link {at}: NIC {device}{name}, mtu {mtu}")
            }
            LabStep::CreateVfs { device, functions: Some(functions), .. } => {
                let list: Vec<String> = functions.iter().map(PciAddress::to_string).collect();
                write!(f, "virtual functions of {device}: {}", list.join(" "))
            }
            LabStep::CreateVfs { device, count, functions: None, .. } => {
                write!(f, "virtual functions of {device}: {count}")
            }
            LabStep::ProbeVfs { device, mtu: None } => write!(f, "drivers of the virtual functions of {device}"),
            LabStep::ProbeVfs { device, mtu: Some(mtu) } => {
                write!(f, "drivers of the virtual functions of {device}, mtu {mtu}")
            }
            LabStep::ConfigureVf { device, index, set, .. } => write!(f, "function {index} of {device}: {set}"),
            LabStep::LendVf { function, .. } => write!(f, "{function}"),
            LabStep::AssignDevice { device, was } => write!(f, "driver of {device}: {VFIO}{}", InPlaceOf(was)),
            LabStep::MakeFile { path, size } => write!(f, "file {} of {size}", path.display()),
            LabStep::Verify => f.write_str("verify that every link is marked, carries packets and has its mtu"),
            _ => self.part().map_or(Ok(()), |part| part.fmt(f)),
        }
    }
}

impl fmt::Display for LentVf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LentVf { pf, index, device, driver, set, was } = self;
        write!(f, "function {index} of {pf}: {set}; driver of {device}: {driver}")?;
        was.as_ref().map_or(Ok(()), |was| write!(f, "{}", InPlaceOf(&was.driver)))
    }
}

/// The driver that has the device now, if one has it.
struct InPlaceOf<'a>(&'a DriverState);

impl fmt::Display for InPlaceOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.driver.as_ref().map_or(Ok(()), |driver| write!(f, " in place of {driver}"))
    }
}

#[cfg(test)]
mod tests;
