//! Steps on PCI devices. The previous state is part of the step. So it is on the disk before the first
//! step is taken, and can be restored whenever vtax is killed.

use serde::{Deserialize, Serialize};
use vtax_change::pci::{DriverState, LinkState, VfSettings};
use vtax_sys::pci::PciAddress;

use crate::facts::{Netdev, PciDevice};

/// A virtual function that a zone or guest gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentVf {
    /// The NIC that it is of.
    pub pf: PciAddress,
    pub index: u32,
    pub device: PciAddress,
    /// The driver that it gets on this machine.
    pub driver: String,
    pub set: VfSettings,
    /// The state before. Absent if the same plan makes the function.
    pub was: Option<VfState>,
}

/// A virtual function before a lab has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfState {
    /// The settings that its NIC enforced.
    pub settings: VfSettings,
    /// The driver that it had.
    #[serde(flatten)]
    pub driver: DriverState,
}

impl From<&PciDevice> for DriverState {
    fn from(device: &PciDevice) -> DriverState {
        DriverState {
            driver: device.driver.clone(),
            driver_override: device.driver_override.clone(),
            link: device.netdev.as_ref().map(LinkState::from),
            has_disk: false,
        }
    }
}

impl From<&Netdev> for LinkState {
    fn from(netdev: &Netdev) -> LinkState {
        LinkState { name: netdev.name.clone(), mtu: netdev.mtu, up: netdev.up, mac: netdev.mac }
    }
}
