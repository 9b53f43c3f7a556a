//! Macvtaps. Each is made with an index whose device file is its own, and is opened for QEMU.

use std::os::fd::OwnedFd;

use vtax_model::{guest::Mac, topology::Name, units::Mtu};
use vtax_sys::netlink::{MacAddr, NewMacvtap, open_macvtap};

use super::{Site, kernel_name};
use crate::{
    error::LabError,
    guest::launch::{Launch, NicLaunch},
    place::Place,
};

impl Site {
    pub(super) fn make_macvtap(&mut self, at: &Place, parent: &Place, mac: Mac, mtu: Mtu) -> Result<(), LabError> {
        let (name, parent, mac) = (kernel_name(at)?, self.index(parent)?, MacAddr(mac.octets()));
        let link = NewMacvtap { name, parent, mac, mtu: mtu.get() };
        let index = link.create(&mut self.stack(&at.namespace)?.rtnl).map_err(LabError::kernel(at))?;
        self.stack(&at.namespace)?.indices.insert(at.link.clone(), index);
        Ok(())
    }

    /// The open queues that QEMU gets, for each NIC on a macvtap.
    pub(super) fn open_queues(&mut self, host: &Name, launch: &Launch) -> Result<Vec<Vec<OwnedFd>>, LabError> {
        launch.nics.iter().map(|nic| self.queues_of(host, nic)).collect()
    }

    fn queues_of(&mut self, host: &Name, nic: &NicLaunch) -> Result<Vec<OwnedFd>, LabError> {
        let Some((link, queues)) = nic.kind.macvtap() else { return Ok(Vec::new()) };
        let at = Place::new(host, link.clone());
        let (name, rtnl) = (kernel_name(&at)?, &mut self.stack(host)?.rtnl);
        open_macvtap(rtnl, &name, nic.mac, queues).map_err(LabError::kernel(&at))
    }
}
