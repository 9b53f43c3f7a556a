//! Resources of a bound domain.

use std::{collections::BTreeSet, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_model::{
    domain::{Constraints, DeviceKind, VirtualDisk, VolumeFormat, VolumeName, VolumeOption},
    guest::{GuestSize, Mac},
    topology::Name,
    units::{ByteSize, Mtu},
};
use vtax_sys::pci::PciAddress;

use crate::backend::BackendPart;

/// Resources of a domain. They are stored with the domain's journal, and lost at the next boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// Name of the bound domain, as in the configuration.
    pub domain: Name,
    /// Its number, which no other bound domain has.
    pub id: u32,
    /// Constraints at the time of binding. Later changes are pending.
    pub constraints: Constraints,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// Host CPUs dedicated to it; empty if it shares CPUs.
    pub cpus: BTreeSet<u32>,
    /// Main memory of the domain while it is bound.
    pub memory: ByteSize,
    /// Host side of its virtual NICs.
    pub nics: Vec<BoundNic>,
    /// Host side of the NICs that connect it with the switches that it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<ServedSwitch>,
    /// Backends of its virtual disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<BoundDisk>,
    /// PCI devices of the host that are assigned to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<BoundDevice>,
    /// Address of its console.
    pub console: Option<BoundConsole>,
}

/// Backend of a virtual disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundDisk {
    /// The disk as seen by the domain.
    #[serde(flatten)]
    pub disk: VirtualDisk,
    /// Group of volumes that are its paths. In this case each path has its own storage daemon; otherwise the domain's
    /// QEMU opens the backend itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpgroup: Option<Name>,
    /// Export options.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub options: BTreeSet<VolumeOption>,
    /// Size of the volume at the time of binding.
    pub size: ByteSize,
    /// Its paths; the first is that of its own volume.
    pub paths: Vec<BoundPath>,
}

/// One path to the blocks of a virtual disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundPath {
    /// Volume and the disk service that exports it, e.g. `vol1@primary-vds0`.
    pub volume: VolumeName,
    /// File or device, without symbolic links.
    pub backend: PathBuf,
    /// True for a block device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_device: bool,
    /// Format of the backend's contents, as configured for the volume.
    pub format: VolumeFormat,
    /// File or device, and the part of it.
    #[serde(flatten)]
    pub part: BackendPart,
}

/// PCI device assigned to a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundDevice {
    /// Its name in `list-io`.
    pub name: String,
    /// Its functions, by their addresses at this boot.
    pub functions: Vec<PciAddress>,
    /// Its hot-plug slot, if it can be unplugged while the domain runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

/// Host side of a virtual NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundNic {
    /// Name of the vnet, unique in its domain.
    pub vnet: Name,
    /// Its link on the host.
    pub tap: String,
    /// Link of its switch.
    pub switch: String,
}

impl BoundNic {
    /// Returns the host side of the vnet with this number, of the domain with this number.
    pub(crate) fn new(domain: u32, number: u32, vnet: Name, switch: String) -> BoundNic {
        BoundNic { vnet, tap: format!("vnet{domain}.{number}"), switch }
    }

    /// Number of the vnet in the domain.
    pub(crate) fn number(&self) -> Option<u32> {
        self.tap.rsplit_once('.')?.1.parse().ok()
    }
}

/// Switch in a guest: there, a bridge connects a NIC on the host side of the switch with a link of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedSwitch {
    pub switch: Name,
    /// Host link of the switch.
    pub link: String,
    /// Host side of the NIC.
    pub tap: String,
    /// Address of the NIC.
    pub mac: Mac,
    pub mtu: Mtu,
    /// Link in the guest.
    pub net_dev: String,
}

impl ServedSwitch {
    /// Returns the parameter of the guest's kernel that describes the switch to the agent (`vtax_agent::guest`).
    pub(crate) fn for_kernel(&self) -> String {
        let ServedSwitch { link, mac, mtu, net_dev, .. } = self;
        let net_dev = net_dev.parse::<Mac>().map_or_else(|_| net_dev.clone(), |mac| mac.to_string());
        format!("vtax.switch={link},{mac},{net_dev},{mtu}")
    }
}

/// Address of a console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundConsole {
    pub service: Name,
    pub group: Name,
    /// Port of the group.
    pub port: u16,
}

impl Bindings {
    /// Returns its virtual functions, with their names in measurements: `vf0`, `vf1` and so on.
    pub fn functions(&self) -> impl Iterator<Item = (Name, &BoundDevice)> {
        // Only virtual functions can be hot-plugged, so only they have slots for that.
        let is_bound_so = |device: &BoundDevice| {
            self.constraints.io.iter().any(|own| own.name == device.name && own.kind == DeviceKind::Vf)
        };
        let functions = self.devices.iter().filter(move |device| device.port.is_some() || is_bound_so(device));
        (0..).zip(functions).map(|(number, device)| (format!("vf{number}").parse().expect("a name"), device))
    }

    /// Returns its machine. Its vCPUs run on its dedicated CPUs, if it has any.
    pub fn size(&self) -> GuestSize {
        let cpus = self.cpus.iter().copied().collect();
        GuestSize { vcpus: self.vcpus, memory: self.memory, cpus, ..GuestSize::default() }
    }
}
