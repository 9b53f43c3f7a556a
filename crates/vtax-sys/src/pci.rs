//! PCI devices in sysfs: their identity, place and driver, and the changes that hand one over: binding another driver,
//! creating or removing virtual functions.
//!
//! The firmware reassigns bus numbers at each boot, and a new card can change them. So a [`Device`] also records its
//! place: the root complex, and the device and function numbers at each level below.

mod address;
mod behind;
mod changes;
mod device;
mod error;
pub(crate) mod sysfs;

use std::fs;
use std::path::{Path, PathBuf};

pub use address::{PciAddress, Root};
pub use device::{Device, PciLink, PciSlot, Sriov};
pub use error::PciError;

use crate::error::{Result, SysError};
use sysfs::{entries, target_name, text};

/// The machine's PCI devices, as shown by `/sys`.
#[derive(Debug, Clone)]
pub struct PciTree {
    sys: PathBuf,
    bus: PathBuf,
}

impl PciTree {
    /// Returns the devices of this machine.
    pub fn live() -> Self {
        Self::at(Path::new("/sys"))
    }

    /// Returns the devices in a directory with the same structure as `/sys`.
    pub fn at(sys: &Path) -> Self {
        Self { sys: sys.to_owned(), bus: sys.join("bus/pci") }
    }

    /// Returns all devices, including bridges, by address. Empty on a machine without PCI.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let directory = self.bus.join("devices");
        let slots = self.slots();
        let mut addresses: Vec<PciAddress> = match fs::read_dir(&directory) {
            Ok(found) => found.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(SysError::os("list PCI devices in", directory.display(), error)),
        };
        addresses.sort_unstable();
        Ok(addresses.into_iter().filter_map(|address| self.read(address, &slots)).collect())
    }

    /// Returns the device with this address, if there is one.
    pub fn device(&self, address: PciAddress) -> Result<Option<Device>> {
        let directory = self.directory(address);
        match directory.try_exists() {
            Ok(true) => Ok(self.read(address, &self.slots())),
            Ok(false) => Ok(None),
            Err(error) => Err(SysError::os("access", directory.display(), error)),
        }
    }

    /// Returns the slots named by the firmware or the board, including empty ones, by name. Most machines name only
    /// some slots, many name none.
    pub fn slots(&self) -> Vec<PciSlot> {
        let buses = self.sys.join("class/pci_bus");
        let mut slots: Vec<PciSlot> = entries(&self.bus.join("slots"))
            .filter_map(|(name, path)| PciSlot::read(name, &text(&path.join("address"))?, &buses))
            .collect();
        slots.sort_by(|one, other| one.name.cmp(&other.name));
        slots
    }

    /// Returns the name of the device's network link, the first if it has several.
    ///
    /// sysfs shows the links of the network namespace in which it was mounted. A link that was moved to another one
    /// isn't found, whichever namespace the caller is in.
    pub fn netdev(&self, address: PciAddress) -> Option<String> {
        device::netdev(&self.directory(address))
    }

    /// Returns the device's current driver.
    pub fn driver(&self, address: PciAddress) -> Option<String> {
        target_name(&self.directory(address).join("driver"))
    }

    fn directory(&self, address: PciAddress) -> PathBuf {
        self.bus.join("devices").join(address.to_string())
    }

    /// Reads a device. None if it disappears in the meantime.
    fn read(&self, address: PciAddress, slots: &[PciSlot]) -> Option<Device> {
        Device::read(address, &self.directory(address), slots)
    }
}

#[cfg(test)]
mod tests;
