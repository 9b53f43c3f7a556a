//! What a domain has while it is bound.

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

/// What a domain has. It is stored with the domain's journal, and gone with the next boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// Name of the domain that is bound, as in the configuration.
    pub domain: Name,
    /// Its number, which no other bound domain has.
    pub id: u32,
    /// What it was to have when it was bound. What was changed since is pending.
    pub constraints: Constraints,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// The host's CPUs that it has for itself; it shares CPUs if there are none.
    pub cpus: BTreeSet<u32>,
    /// Main memory of the domain while it is bound.
    pub memory: ByteSize,
    /// The host's ends of its virtual NICs.
    pub nics: Vec<BoundNic>,
    /// The host's ends of the NICs by which it is at the switches that it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<ServedSwitch>,
    /// What is behind its virtual disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<BoundDisk>,
    /// The PCI devices of the host that it has for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<BoundDevice>,
    /// Where its console is.
    pub console: Option<BoundConsole>,
}

/// What is behind a virtual disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundDisk {
    /// The disk as the domain has it.
    #[serde(flatten)]
    pub disk: VirtualDisk,
    /// The group of volumes that are its paths. Each path has a storage daemon of its own then; otherwise the domain's QEMU has
    /// the backend itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpgroup: Option<Name>,
    /// How it is exported.
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
    /// The file or device, without symbolic links.
    pub backend: PathBuf,
    /// Whether it is a block device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_device: bool,
    /// Format of the backend's contents, as configured for the volume.
    pub format: VolumeFormat,
    /// What part of which file or device it is.
    #[serde(flatten)]
    pub part: BackendPart,
}

/// A PCI device that a domain has for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundDevice {
    /// Its name in `list-io`.
    pub name: String,
    /// The functions that it is made of, by their addresses at this boot.
    pub functions: Vec<PciAddress>,
    /// The slot for plugging that it is in, if it can be pulled out while the domain runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

/// The host's end of a virtual NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundNic {
    /// Name of the vnet, unique in its domain.
    pub vnet: Name,
    /// Its link on the host.
    pub tap: String,
    /// The link of its switch.
    pub switch: String,
}

impl BoundNic {
    /// The host's end of the vnet with this number, of the domain with this number.
    pub(crate) fn new(domain: u32, number: u32, vnet: Name, switch: String) -> BoundNic {
        BoundNic { vnet, tap: format!("vnet{domain}.{number}"), switch }
    }

    /// The number of the vnet as the domain has it.
    pub(crate) fn number(&self) -> Option<u32> {
        self.tap.rsplit_once('.')?.1.parse().ok()
    }
}

/// A switch that a guest serves: in it, a bridge connects a NIC at the host's end of the switch with a link of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ServedSwitch {
    pub switch: Name,
    /// The host's link of the switch.
    pub link: String,
    /// The host's end of the NIC.
    pub tap: String,
    /// The NIC's address.
    pub mac: Mac,
    pub mtu: Mtu,
    /// The link in the guest.
    pub net_dev: String,
}

impl ServedSwitch {
    /// The parameter of the guest's kernel by which the agent knows it (`vtax_agent::guest`).
    pub(crate) fn for_kernel(&self) -> String {
        let ServedSwitch { link, mac, mtu, net_dev, .. } = self;
        let net_dev = net_dev.parse::<Mac>().map_or_else(|_| net_dev.clone(), |mac| mac.to_string());
        format!("vtax.switch={link},{mac},{net_dev},{mtu}")
    }
}

/// Where a console is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundConsole {
    /// The console service.
    pub service: Name,
    /// The group of consoles.
    pub group: Name,
    /// The port of the group.
    pub port: u16,
}

impl Bindings {
    /// Its virtual functions, with the names by which they are measured: `vf0`, `vf1` and so on.
    pub fn functions(&self) -> impl Iterator<Item = (Name, &BoundDevice)> {
        // Only virtual functions come while a domain runs, so only they have slots for that.
        let is_bound_so = |device: &BoundDevice| {
            self.constraints.io.iter().any(|own| own.name == device.name && own.kind == DeviceKind::Vf)
        };
        let functions = self.devices.iter().filter(move |device| device.port.is_some() || is_bound_so(device));
        (0..).zip(functions).map(|(number, device)| (format!("vf{number}").parse().expect("a name"), device))
    }

    /// Its machine. Its vCPUs run on its own CPUs, if it has some.
    pub fn size(&self) -> GuestSize {
        let cpus = self.cpus.iter().copied().collect();
        GuestSize { vcpus: self.vcpus, memory: self.memory, cpus, ..GuestSize::default() }
    }
}
