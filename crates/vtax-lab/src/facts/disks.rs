//! Machine facts for a plan with guests' disks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_guest::{launch::LENT_DRIVERS, vdisk};
use vtax_model::{
    disk::{DiskAttach, DiskDevice},
    method::Unsupported,
    topology::Guest,
};
use vtax_sys::pci::PciAddress;

/// The requested files, block devices and attachment methods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// By requested path: a description, or the reason why it can't be used.
    pub backends: BTreeMap<PathBuf, Result<DiskBackendFacts, String>>,
    /// The ways that QEMU or the kernel can't do.
    pub lacking: Vec<(DiskAttach, Unsupported)>,
}

/// A file or a block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskBackendFacts {
    /// Its path without symbolic links.
    pub path: PathBuf,
    /// True if it is a block device.
    pub is_device: bool,
    /// The PCI devices that it is on.
    pub on: Vec<PciAddress>,
}

impl DiskFacts {
    pub(crate) fn backend(&self, path: &Path) -> Result<&DiskBackendFacts, String> {
        let found = self.backends.get(path).ok_or_else(|| "it was not examined".to_owned())?;
        found.as_ref().map_err(Clone::clone)
    }

    /// Checks that QEMU and the kernel support this, as far as probed.
    pub(crate) fn can(&self, attach: &DiskAttach) -> Result<(), Unsupported> {
        let alike = |other: &DiskAttach| tried(other) == tried(attach);
        match self.lacking.iter().find(|(other, _)| alike(other)) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

/// Part of a disk attachment that depends on the machine: threads and queues any can have.
pub(crate) fn tried(attach: &DiskAttach) -> DiskAttach {
    let device = match attach.device {
        DiskDevice::VhostUserBlk => DiskDevice::VhostUserBlk,
        _ => DiskDevice::Nbd,
    };
    DiskAttach { aio: attach.aio, ..DiskAttach::plain(device) }
}

/// Returns the modules of a guest whose NIC has this driver, including those for its disks and its shared directory.
pub(crate) fn drivers_of_guest(nic: &str, guest: &Guest) -> String {
    let disks = guest.disks.iter().flat_map(|disk| vdisk::drivers(disk.attach.device));
    let mut drivers: Vec<&str> =
        disks.copied().chain(LENT_DRIVERS.into_iter().filter(|_| guest.lent.is_some())).collect();
    drivers.sort_unstable();
    drivers.dedup();
    let nic = Some(nic).filter(|nic| !nic.is_empty());
    nic.into_iter().chain(drivers).collect::<Vec<_>>().join(",")
}
