//! Devices that guests drive themselves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use vtax_change::pci::{DRIVER_PATIENCE, DriverState, PhysicalLink, VfSettings};
use vtax_guest::launch::Launch;
use vtax_journal::Undone;
use vtax_sys::pci::{PciAddress, PciTree};

use super::{DeviceClaim, DeviceClaims, VFIO, in_place_of};
use crate::{
    error::StepError,
    guest::{recorded_qemu, undone},
    part::{PartStep, StepReceipt},
    site::StepSite,
};

/// Timeout for plugging. For the first device, QEMU maps all memory of the domain in the IOMMU: in an emulated server,
/// page by page.
const PLUGGED: Duration = Duration::from_secs(180);
/// Time within which a domain's operating system must release a device.
const RELEASED: Duration = Duration::from_secs(30);

/// Gives a device to vfio-pci, for a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignDevice {
    pub device: PciAddress,
    pub was: DriverState,
}

impl PartStep for AssignDevice {
    fn describe(&self) -> String {
        format!("driver of {}: {VFIO}{}", self.device, in_place_of(&self.was))
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        hand_over(self.device)
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        Ok(self.was.restore(self.device)?)
    }
}

fn hand_over(device: PciAddress) -> Result<StepReceipt, StepError> {
    let bound = PciTree::live().bind(device, Some(VFIO), DRIVER_PATIENCE);
    bound.map(|()| StepReceipt::default()).map_err(StepError::kernel(device))
}

/// Claims a PCI function, configures it, and binds it to vfio-pci.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignFunction {
    pub claims: DeviceClaims,
    pub claim: Box<DeviceClaim>,
    pub set: VfSettings,
}

impl PartStep for AssignFunction {
    fn describe(&self) -> String {
        format!("{} for {}", self.claim.device, self.claim.owner)
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        let device = self.claim.device;
        self.claims.take(&self.claim)?;
        if let Some((physical, index)) = self.claim.function_of {
            // The driver reads a function's address only when it takes the function.
            PciTree::live().rebind(device, None, None, DRIVER_PATIENCE).map_err(StepError::kernel(device))?;
            if let Some(mut link) = PhysicalLink::here(physical)? {
                link.configure_vf(index, &self.set)?;
            }
        }
        hand_over(device)
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        self.claims.give_back(&self.claim)
    }
}

/// Plugs a PCI function bound to vfio-pci into a running guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlugDevice {
    pub launch: Box<Launch>,
    /// Process of QEMU.
    pub process: String,
    /// Empty slot for the device.
    pub port: u32,
    /// Name of the device in `list-io`.
    pub name: String,
    pub device: PciAddress,
}

impl PartStep for PlugDevice {
    fn describe(&self) -> String {
        format!("{} in slot {} of {}", self.device, self.port, self.launch.name)
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        recorded_qemu(&self.launch, &self.process)?.plug_device(self.port, self.device, PLUGGED)?;
        Ok(StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        unplug(&self.launch, &self.process, self.port, self.device).map(undone)
    }
}

/// Unplugs a device. Returns `true` if the guest runs and had it.
fn unplug(launch: &Launch, process: &str, port: u32, device: PciAddress) -> Result<bool, StepError> {
    let mut qemu = recorded_qemu(launch, process)?;
    Ok(qemu.is_alive() && qemu.unplug_device(port, device, RELEASED)?)
}

/// Unplugs a PCI function from a running guest that was started with it, and returns it to the host. It needs no undo:
/// the undo of the step that took the function finds it returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnFunction {
    pub launch: Box<Launch>,
    /// Process of QEMU.
    pub process: String,
    /// Slot of the device.
    pub port: u32,
    /// Name of the device in `list-io`.
    pub name: String,
    pub claims: DeviceClaims,
    pub claim: Box<DeviceClaim>,
}

impl PartStep for ReturnFunction {
    fn describe(&self) -> String {
        format!("{} back from {}", self.claim.device, self.claim.owner)
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        unplug(&self.launch, &self.process, self.port, self.claim.device)?;
        self.claims.give_back(&self.claim)?;
        Ok(StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        Ok(Undone::AlreadyGone)
    }
}
