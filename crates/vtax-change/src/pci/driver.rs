//! The driver of a device.

use serde::{Deserialize, Serialize};
use vtax_journal::Undone;
use vtax_sys::pci::{PciAddress, PciTree};

use super::{DRIVER_PATIENCE, LinkState, PciChangeError};

/// The driver of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverState {
    /// Name of the bound driver; none if no driver has the device.
    pub driver: Option<String>,
    /// The only driver that may take it, if `driver_override` is set.
    pub driver_override: Option<String>,
    /// The link that its driver provides, if it is a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkState>,
    /// True if its driver provides a block device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_disk: bool,
}

impl DriverState {
    /// Returns the device to its previous driver and restores its link. If the device had a disk, waits until the disk
    /// can be used again.
    pub fn restore(&self, device: PciAddress) -> Result<Undone, PciChangeError> {
        let (tree, wrong) = (PciTree::live(), PciChangeError::kernel(device));
        let Some(found) = tree.device(device).map_err(&wrong)? else { return Ok(Undone::AlreadyGone) };
        let same = found.driver == self.driver && found.driver_override == self.driver_override;
        if !same {
            let (driver, only) = (self.driver.as_deref(), self.driver_override.as_deref());
            tree.rebind(device, driver, only, DRIVER_PATIENCE).map_err(&wrong)?;
            if self.has_disk {
                // The disk may no longer exist: whoever had the device in the meantime may have removed it.
                tree.await_block(device, DRIVER_PATIENCE);
            }
        }
        let Some(link) = &self.link else { return Ok(if same { Undone::AlreadyGone } else { Undone::Reverted }) };
        let name = tree.await_netdev(device, DRIVER_PATIENCE).map_err(&wrong)?;
        let changed = link.restore(&name).map_err(&wrong)?;
        Ok(if same && !changed { Undone::AlreadyGone } else { Undone::Reverted })
    }
}
