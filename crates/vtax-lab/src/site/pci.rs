//! Devices of the machine as steps of a lab. They are taken, and given back as they were.
//!
//! sysfs shows a device's link only to a reader in the link's own namespace. So a link that is in the lab is looked for
//! there.

use vtax_change::pci::{DRIVER_PATIENCE, LinkState, PciChangeError, PhysicalLink, VfSettings};
use vtax_journal::Undone;
use vtax_model::units::Mtu;
use vtax_step::Place;
use vtax_sys::{
    netlink::{IfName, LinkChange, Rtnl},
    netns::NetNs,
    pci::{PciAddress, PciTree},
};

use super::Site;
use crate::{
    error::LabError,
    facts::VFIO,
    step::{LentVf, VfState},
};

impl Site {
    pub(super) fn take_nic(&mut self, device: PciAddress, at: &Place, mtu: Mtu) -> Result<(), LabError> {
        let wrong = LabError::kernel(device);
        let found = PciTree::live().await_netdev(device, DRIVER_PATIENCE).map_err(&wrong)?;
        let (found, name): (IfName, IfName) = (found.parse().map_err(&wrong)?, self.kernel_name(at)?);
        let target = self.namespace(&at.namespace)?;
        let mut own = Rtnl::open().map_err(&wrong)?;
        own.set_link(&found, &LinkChange { up: Some(false), ..LinkChange::default() }).map_err(&wrong)?;
        let into = LinkChange { rename: Some(name), into_ns: Some(&target), ..LinkChange::default() };
        own.set_link(&found, &into).map_err(&wrong)?;
        self.set_mtu(at, mtu.get())
    }

    /// A virtual function has no saved state: its link goes with its driver.
    pub(super) fn return_nic(
        &mut self,
        device: PciAddress,
        at: &Place,
        was: Option<&LinkState>,
    ) -> Result<Undone, LabError> {
        let Some(was) = was else { return Ok(Undone::Contained) };
        let wrong = LabError::kernel(device);
        let mut undone = Undone::AlreadyGone;
        if PciTree::live().netdev(device).is_none() {
            self.fetch(at, was)?;
            undone = Undone::Reverted;
        }
        let found = PciTree::live().await_netdev(device, DRIVER_PATIENCE).map_err(&wrong)?;
        let changed = was.restore(&found).map_err(&wrong)?;
        Ok(if changed { Undone::Reverted } else { undone })
    }

    /// Moves the link back. If its namespace is gone, the kernel has done it already (`default_device_exit_net`).
    fn fetch(&mut self, at: &Place, was: &LinkState) -> Result<(), LabError> {
        let home = NetNs::current().map_err(LabError::kernel(at))?;
        let Ok(stack) = self.parts.at(at) else { return Ok(()) };
        let (name, old) = (at.link.as_str(), stack.if_name(&was.name)?);
        stack.forget(name);
        if stack.link(name)?.is_none() {
            return Ok(());
        }
        let down = LinkChange { up: Some(false), alias: Some(String::new()), ..LinkChange::default() };
        stack.change(name, &down)?;
        Ok(stack.change(name, &LinkChange { rename: Some(old), into_ns: Some(&home), ..LinkChange::default() })?)
    }

    fn kernel_name(&mut self, at: &Place) -> Result<IfName, LabError> {
        Ok(self.parts.at(at)?.if_name(at.link.as_str())?)
    }

    pub(super) fn create_vfs(
        &mut self,
        device: PciAddress,
        at: Option<&Place>,
        count: u32,
        functions: Option<&[PciAddress]>,
    ) -> Result<(), LabError> {
        Ok(self.physical(device, at)?.create_vfs(count, functions, at.is_some())?)
    }

    pub(super) fn configure_vf(
        &mut self,
        device: PciAddress,
        at: Option<&Place>,
        index: u32,
        set: &VfSettings,
    ) -> Result<(), LabError> {
        Ok(self.physical(device, at)?.configure_vf(index, set)?)
    }

    pub(super) fn has_vf(
        &mut self,
        device: PciAddress,
        at: Option<&Place>,
        index: u32,
        set: &VfSettings,
    ) -> Result<(), LabError> {
        Ok(self.physical(device, at)?.check_vf(index, set)?)
    }

    pub(super) fn lend_vf(&mut self, at: &Place, function: &LentVf) -> Result<(), LabError> {
        let LentVf { pf, index, device, driver, set, .. } = function;
        let (tree, wrong) = (PciTree::live(), LabError::kernel(device));
        tree.rebind(*device, None, None, DRIVER_PATIENCE).map_err(&wrong)?;
        self.configure_vf(*pf, Some(at), *index, set)?;
        match driver == VFIO {
            true => tree.bind(*device, Some(driver), DRIVER_PATIENCE).map_err(wrong),
            false => tree.rebind(*device, Some(driver), None, DRIVER_PATIENCE).map_err(wrong),
        }
    }

    /// Gives a function back. One that the plan made goes with the NIC's other new functions.
    pub(super) fn return_vf(&mut self, at: &Place, function: &LentVf) -> Result<Undone, LabError> {
        let LentVf { pf, index, device, was, .. } = function;
        let Some(VfState { settings, driver }) = was else { return Ok(Undone::Contained) };
        let kept = self.physical(*pf, Some(at))?.restore_vf(*index, settings)?;
        if kept {
            // A driver reads a function's address only when it takes the function.
            PciTree::live().rebind(*device, None, None, DRIVER_PATIENCE).map_err(LabError::kernel(device))?;
        }
        let returned = driver.restore(*device)?;
        // The driver has told the NIC the function's address since. The NIC may not have known it before.
        let kept_again = returned == Undone::Reverted && self.physical(*pf, Some(at))?.restore_vf(*index, settings)?;
        Ok(if kept || kept_again { Undone::Reverted } else { returned })
    }

    /// The link of a NIC, wherever it is.
    fn physical(&mut self, device: PciAddress, at: Option<&Place>) -> Result<PhysicalLink, LabError> {
        match (PhysicalLink::here(device)?, at) {
            (Some(here), _) => Ok(here),
            (None, Some(at)) => {
                let (namespace, name) = (self.namespace(&at.namespace)?, self.kernel_name(at)?);
                Ok(PhysicalLink::inside(device, &namespace, name)?)
            }
            (None, None) => Err(PciChangeError::NoNicLink { device }.into()),
        }
    }
}

pub(super) fn assign_device(device: PciAddress) -> Result<(), LabError> {
    PciTree::live().bind(device, Some(VFIO), DRIVER_PATIENCE).map_err(LabError::kernel(device))
}
