//! NICs whose links move into namespaces.

use serde::{Deserialize, Serialize};
use vtax_change::pci::{DRIVER_PATIENCE, LinkState};
use vtax_journal::Undone;
use vtax_model::units::Mtu;
use vtax_sys::{
    netlink::{IfName, LinkChange, Rtnl},
    netns::NetNs,
    pci::{PciAddress, PciTree},
};

use crate::{error::StepError, part::PartStep, place::Place, receipt::StepReceipt, site::StepSite};

/// Moves the link of a NIC or of a virtual function into a namespace, and renames it as the lab names links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeNic {
    pub device: PciAddress,
    pub at: Place,
    pub mtu: Mtu,
    /// The link's state in this machine's own namespace. Absent for a virtual function, whose link goes with its driver.
    pub was: Option<LinkState>,
}

impl TakeNic {
    /// Moves the link back. If its namespace is gone, the kernel has done it already (`default_device_exit_net`).
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

    /// A virtual function has no saved state: its link goes with its driver.
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
