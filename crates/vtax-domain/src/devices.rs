//! PCI devices of the host: taken for a domain, and returned in their previous state.
//!
//! A domain's claim is a file that is created before the device is changed, see [`DeviceClaims`].

use std::time::Duration;

use vtax_change::pci::{DRIVER_PATIENCE, PhysicalLink, VfSettings};
use vtax_guest::launch::Launch;
use vtax_journal::Undone;
use vtax_lab::{
    World,
    io::{DeviceClaim, DeviceClaims},
};
use vtax_model::topology::Name;
use vtax_step::recorded_qemu;
use vtax_sys::pci::{PciAddress, PciTree};

use crate::error::BindError;

/// Driver that passes devices to QEMU.
const VFIO: &str = "vfio-pci";
/// For the first device, QEMU maps all memory of the domain in the IOMMU: in an emulated server page by page.
const PLUGGED: Duration = Duration::from_secs(180);
/// Time within which a domain's system releases a device.
const RELEASED: Duration = Duration::from_secs(30);

pub(crate) fn assign(claims: &DeviceClaims, claim: &DeviceClaim, set: &VfSettings) -> Result<(), BindError> {
    let (tree, device) = (PciTree::live(), claim.device);
    claims.take(claim)?;
    if let Some((physical, index)) = claim.function_of {
        // The driver reads a function's address only when it takes the function.
        tree.rebind(device, None, None, DRIVER_PATIENCE).map_err(BindError::kernel(device))?;
        if let Some(mut link) = PhysicalLink::here(physical)? {
            link.configure_vf(index, set)?;
        }
    }
    tree.bind(device, Some(VFIO), DRIVER_PATIENCE).map_err(BindError::kernel(device))
}

/// Gives a device back to the host, unless another domain has it.
pub(crate) fn give_back(claims: &DeviceClaims, claim: &DeviceClaim) -> Result<Undone, BindError> {
    match claims.find(claim.device)? {
        Some(found) if found.owner == claim.owner => {}
        _ => return Ok(Undone::AlreadyGone),
    }
    let undone = restore(claim)?;
    claims.give_up(claim.device)?;
    Ok(undone)
}

fn restore(claim: &DeviceClaim) -> Result<Undone, BindError> {
    let (tree, device) = (PciTree::live(), claim.device);
    if tree.device(device).map_err(BindError::kernel(device))?.is_none() {
        return Ok(Undone::AlreadyGone);
    }
    let restore_settings = || -> Result<bool, BindError> {
        let Some((physical, index)) = claim.function_of else { return Ok(false) };
        let Some(mut link) = PhysicalLink::here(physical)? else { return Ok(false) };
        Ok(link.restore_vf(index, &claim.was.settings)?)
    };
    let kept = restore_settings()?;
    if kept {
        tree.rebind(device, None, None, DRIVER_PATIENCE).map_err(BindError::kernel(device))?;
    }
    let returned = claim.was.driver.restore(device)?;
    // Meanwhile, the driver has set the function's address in the NIC. The NIC may not have known it before.
    let kept_again = returned == Undone::Reverted && restore_settings()?;
    Ok(if kept || kept_again { Undone::Reverted } else { returned })
}

/// Gives all devices of a domain whose journal cannot be read back to the host.
pub(crate) fn give_back_all(world: &World, domain: &Name) -> Result<(), BindError> {
    let claims = DeviceClaims::of(world);
    let own = claims.all()?.into_iter().filter(|claim| claim.owner == *domain);
    own.into_iter().try_for_each(|claim| give_back(&claims, &claim).map(drop))
}

pub(crate) fn plug(launch: &Launch, process: &str, port: u32, device: PciAddress) -> Result<(), BindError> {
    Ok(recorded_qemu(launch, process)?.plug_device(port, device, PLUGGED)?)
}

pub(crate) fn unplug(launch: &Launch, process: &str, port: u32, device: PciAddress) -> Result<Undone, BindError> {
    let mut qemu = recorded_qemu(launch, process)?;
    match qemu.is_alive() && qemu.unplug_device(port, device, RELEASED)? {
        true => Ok(Undone::Reverted),
        false => Ok(Undone::AlreadyGone),
    }
}
