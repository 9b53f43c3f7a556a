//! Devices of the machine, which steps take and later return in their previous state. That state is part of the step,
//! so it is on the disk before the first step is executed.
//!
//! sysfs shows a device's link only to a reader in the link's own namespace, so a link in a named namespace is looked
//! up there.

mod assigned;
mod claims;

use serde::{Deserialize, Serialize};
use vtax_change::pci::{
    DRIVER_PATIENCE, DriverState, LinkState, PciChangeError, PhysicalLink, VfSettings, destroy_vfs, probe_vfs,
};
use vtax_journal::Undone;
use vtax_model::units::Mtu;
use vtax_sys::{
    netlink::{IfName, LinkChange, Rtnl},
    netns::NetNs,
    pci::{PciAddress, PciTree},
};

pub use assigned::{AssignDevice, AssignFunction, PlugDevice, ReturnFunction};
pub use claims::{DeviceClaim, DeviceClaims, checked};

use crate::{
    error::StepError,
    part::{PartStep, StepReceipt},
    place::Place,
    site::StepSite,
};

/// Driver that hands devices to programs such as QEMU.
pub const VFIO: &str = "vfio-pci";

/// Moves the link of a NIC or of a virtual function into a namespace, and gives it its name in the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeNic {
    pub device: PciAddress,
    pub at: Place,
    pub mtu: Mtu,
    /// State of the link in this machine's own namespace. `None` for a virtual function, whose link is removed with its
    /// driver.
    pub was: Option<LinkState>,
}

impl TakeNic {
    /// Moves the link back. If its namespace no longer exists, the kernel has already done so
    /// (`default_device_exit_net`).
    fn fetch(&self, was: &LinkState, site: &mut StepSite) -> Result<(), StepError> {
        let home = NetNs::current().map_err(StepError::kernel(&self.at))?;
        let Ok(stack) = site.at(&self.at) else { return Ok(()) };
        let (name, old) = (self.at.link.as_str(), stack.if_name(&was.name)?);
        stack.forget(name);
        if stack.link(name)?.is_none() {
            return Ok(());
        }
        let down = LinkChange { up: Some(false), alias: Some(String::new()), ..LinkChange::default() };
        stack.change(name, &down)?;
        stack.change(name, &LinkChange { rename: Some(old), into_ns: Some(&home), ..LinkChange::default() })
    }
}

impl PartStep for TakeNic {
    fn describe(&self) -> String {
        let TakeNic { device, at, mtu, was } = self;
        let name = was.as_ref().map(|was| format!(" ({})", was.name)).unwrap_or_default();
        format!("link {at}: NIC {device}{name}, mtu {mtu}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let TakeNic { device, at, mtu, .. } = self;
        let wrong = StepError::kernel(device);
        let found = PciTree::live().await_netdev(*device, DRIVER_PATIENCE).map_err(&wrong)?;
        let found: IfName = found.parse().map_err(&wrong)?;
        let name = site.at(at)?.if_name(at.link.as_str())?;
        let target = site.namespace(&at.namespace)?;
        let mut own = Rtnl::open().map_err(&wrong)?;
        own.set_link(&found, &LinkChange { up: Some(false), ..LinkChange::default() }).map_err(&wrong)?;
        let into = LinkChange { rename: Some(name), into_ns: Some(&target), ..LinkChange::default() };
        own.set_link(&found, &into).map_err(&wrong)?;
        site.at(at)?.set_mtu(at.link.as_str(), mtu.get()).map(|()| StepReceipt::default())
    }

    /// Restores the link. That of a virtual function is not restored, because it is removed with its driver.
    fn undo(&self, _: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let Some(was) = &self.was else { return Ok(Undone::Contained) };
        let wrong = StepError::kernel(self.device);
        let mut undone = Undone::AlreadyGone;
        if PciTree::live().netdev(self.device).is_none() {
            self.fetch(was, site)?;
            undone = Undone::Reverted;
        }
        let found = PciTree::live().await_netdev(self.device, DRIVER_PATIENCE).map_err(&wrong)?;
        let changed = was.restore(&found).map_err(&wrong)?;
        Ok(if changed { Undone::Reverted } else { undone })
    }
}

/// Creates virtual functions, none of which gets a driver automatically.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateVfs {
    pub device: PciAddress,
    /// Location of the NIC's link, unless it is in this machine's own namespace. The link is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Place>,
    pub count: u32,
    /// Addresses that the functions will have, if the plan relies on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Vec<PciAddress>>,
    /// Set if the kernel gave new functions a driver before (`sriov_drivers_autoprobe`).
    pub autoprobe: bool,
}

impl PartStep for CreateVfs {
    fn describe(&self) -> String {
        let list =
            |functions: &Vec<PciAddress>| functions.iter().map(PciAddress::to_string).collect::<Vec<_>>().join(" ");
        let what = self.functions.as_ref().map_or_else(|| self.count.to_string(), list);
        format!("virtual functions of {}: {what}", self.device)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let mut link = physical(self.device, self.at.as_ref(), site)?;
        link.create_vfs(self.count, self.functions.as_deref(), self.at.is_some())?;
        Ok(StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        Ok(destroy_vfs(self.device, self.count, self.autoprobe)?)
    }
}

/// Lets the machine's drivers take all virtual functions of a NIC, as the kernel does with new ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeVfs {
    pub device: PciAddress,
    pub mtu: Option<Mtu>,
}

impl PartStep for ProbeVfs {
    fn describe(&self) -> String {
        let mtu = self.mtu.map(|mtu| format!(", mtu {mtu}")).unwrap_or_default();
        format!("drivers of the virtual functions of {}{mtu}", self.device)
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        probe_vfs(self.device, self.mtu)?;
        Ok(StepReceipt::default())
    }
}

/// Configures a virtual function that the same plan creates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigureVf {
    /// NIC whose link is in this machine's own namespace.
    pub device: PciAddress,
    pub index: u32,
    pub set: VfSettings,
}

impl PartStep for ConfigureVf {
    fn describe(&self) -> String {
        format!("function {} of {}: {}", self.index, self.device, self.set)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        physical(self.device, None, site)?.configure_vf(self.index, &self.set)?;
        Ok(StepReceipt::default())
    }

    fn read_back(&self, site: &mut StepSite) -> Result<(), StepError> {
        Ok(physical(self.device, None, site)?.check_vf(self.index, &self.set)?)
    }
}

/// Configures a virtual function, and then gives it to a driver: a driver reads a function's address only when it takes
/// the function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LendVf {
    pub at: Place,
    pub function: Box<LentVf>,
}

/// Virtual function that is temporarily assigned to a zone or guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentVf {
    /// NIC of the function.
    pub pf: PciAddress,
    pub index: u32,
    pub device: PciAddress,
    /// Driver of the function on this machine.
    pub driver: String,
    pub set: VfSettings,
    /// Previous state. `None` if the same plan creates the function.
    pub was: Option<VfState>,
}

/// State of a virtual function before it is assigned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfState {
    /// Settings that its NIC enforced.
    pub settings: VfSettings,
    /// Driver that it had.
    #[serde(flatten)]
    pub driver: DriverState,
}

impl VfState {
    /// Releases a function. `restore` restores its settings in the NIC, and returns whether they differed.
    fn give_back(
        &self,
        device: PciAddress,
        mut restore: impl FnMut(&VfSettings) -> Result<bool, StepError>,
    ) -> Result<Undone, StepError> {
        let kept = restore(&self.settings)?;
        if kept {
            // A driver reads a function's address only when it takes the function.
            PciTree::live().rebind(device, None, None, DRIVER_PATIENCE).map_err(StepError::kernel(device))?;
        }
        let returned = self.driver.restore(device)?;
        // In the meantime, the driver has set the function's address in the NIC, which may not have known it before.
        let kept_again = returned == Undone::Reverted && restore(&self.settings)?;
        Ok(if kept || kept_again { Undone::Reverted } else { returned })
    }
}

impl PartStep for LendVf {
    fn describe(&self) -> String {
        let LentVf { pf, index, device, driver, set, was } = &*self.function;
        let before = was.as_ref().map(|was| in_place_of(&was.driver)).unwrap_or_default();
        format!("function {index} of {pf}: {set}; driver of {device}: {driver}{before}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let LentVf { pf, index, device, driver, set, .. } = &*self.function;
        let (tree, wrong) = (PciTree::live(), StepError::kernel(device));
        tree.rebind(*device, None, None, DRIVER_PATIENCE).map_err(&wrong)?;
        physical(*pf, Some(&self.at), site)?.configure_vf(*index, set)?;
        let bound = match driver == VFIO {
            true => tree.bind(*device, Some(driver), DRIVER_PATIENCE),
            false => tree.rebind(*device, Some(driver), None, DRIVER_PATIENCE),
        };
        bound.map(|()| StepReceipt::default()).map_err(wrong)
    }

    fn read_back(&self, site: &mut StepSite) -> Result<(), StepError> {
        let LentVf { pf, index, set, .. } = &*self.function;
        Ok(physical(*pf, Some(&self.at), site)?.check_vf(*index, set)?)
    }

    /// Releases the function. One that the plan created is removed with the other new functions of the NIC.
    fn undo(&self, _: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let LentVf { pf, index, device, was, .. } = &*self.function;
        let Some(was) = was else { return Ok(Undone::Contained) };
        was.give_back(*device, |settings| Ok(physical(*pf, Some(&self.at), site)?.restore_vf(*index, settings)?))
    }
}

/// Returns the current driver of the device, if it has one, as the end of a description.
fn in_place_of(was: &DriverState) -> String {
    was.driver.as_ref().map(|driver| format!(" in place of {driver}")).unwrap_or_default()
}

/// Returns the link of a NIC, wherever it is.
fn physical(device: PciAddress, at: Option<&Place>, site: &mut StepSite) -> Result<PhysicalLink, StepError> {
    match (PhysicalLink::here(device)?, at) {
        (Some(here), _) => Ok(here),
        (None, Some(at)) => {
            let stack = site.at(at)?;
            let name = stack.if_name(at.link.as_str())?;
            Ok(PhysicalLink::inside(device, stack.namespace(), name)?)
        }
        (None, None) => Err(PciChangeError::NoNicLink { device }.into()),
    }
}
