//! The link of a NIC.
//!
//! It is found by its device, because names change. sysfs shows a device's link only to a reader in the link's own
//! network namespace.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use vtax_sys::{
    SysError,
    netlink::{IfName, Link, LinkChange, MacAddr, Rtnl},
    netns::NetNs,
    pci::{PciAddress, PciTree},
};

use super::{DRIVER_PATIENCE, PciChangeError};

const GLANCE: Duration = Duration::from_millis(20);

/// A NIC's link, as configured by its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    pub name: String,
    pub mtu: u32,
    pub up: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
}

/// The link of a NIC, with a connection to the link's network namespace.
#[derive(Debug)]
pub struct PhysicalLink {
    pub(super) device: PciAddress,
    pub(super) rtnl: Rtnl,
    pub(super) link: IfName,
}

impl LinkState {
    /// Restores a link in this machine's own namespace, and removes its alias. Returns whether there was anything to
    /// change.
    pub fn restore(&self, found: &str) -> Result<bool, SysError> {
        let mut rtnl = Rtnl::open()?;
        let (found, name): (IfName, IfName) = (found.parse()?, self.name.parse()?);
        let link = rtnl.existing_link(&found)?;
        let mac = self.mac.filter(|mac| link.mac != Some(*mac));
        let same = found == name && link.mtu == self.mtu && link.up == self.up && mac.is_none();
        if same && link.alias.is_none() {
            return Ok(false);
        }
        if found != name {
            // Before Linux 6.2, only a link that is down can be renamed.
            rtnl.set_link(link.index, &LinkChange { up: Some(false), ..LinkChange::default() })?;
        }
        let rename = Some(name).filter(|name| *name != found);
        let alias = Some(String::new());
        let change = LinkChange { rename, mtu: Some(self.mtu), mac, alias, ..LinkChange::default() };
        rtnl.set_link(link.index, &change)?;
        rtnl.set_link(link.index, &LinkChange { up: Some(self.up), ..LinkChange::default() })?;
        Ok(true)
    }
}

impl PhysicalLink {
    /// Returns the link of a device in this machine's own namespace, if it has one there.
    pub fn here(device: PciAddress) -> Result<Option<PhysicalLink>, PciChangeError> {
        let wrong = PciChangeError::kernel(device);
        let Some(name) = PciTree::live().netdev(device) else { return Ok(None) };
        Ok(Some(PhysicalLink { device, rtnl: Rtnl::open().map_err(&wrong)?, link: name.parse().map_err(&wrong)? }))
    }

    /// Returns the link of a device in another namespace, where it is named `link`.
    pub fn inside(device: PciAddress, namespace: &NetNs, link: IfName) -> Result<PhysicalLink, PciChangeError> {
        Ok(PhysicalLink { device, rtnl: Rtnl::open_in(namespace).map_err(PciChangeError::kernel(device))?, link })
    }

    pub(super) fn now(&mut self) -> Result<Link, PciChangeError> {
        self.rtnl.existing_link(&self.link).map_err(PciChangeError::kernel(self.device))
    }

    pub(super) fn await_carrier(&mut self) -> Result<(), PciChangeError> {
        let until = Instant::now() + DRIVER_PATIENCE;
        loop {
            match self.now()?.running {
                true => return Ok(()),
                false if Instant::now() >= until => return Err(PciChangeError::NoCarrier { device: self.device }),
                false => thread::sleep(GLANCE),
            }
        }
    }
}
