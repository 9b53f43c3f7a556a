//! Addresses of the host's links.

use ipnet::IpNet;
use vtax_journal::Undone;

use super::DomainSite;
use crate::{error::BindError, step::StepReceipt};

impl DomainSite {
    /// Returns the networks of the host's addresses, and those that it has routes to.
    pub(crate) fn nets(&mut self) -> Result<Vec<IpNet>, BindError> {
        let addresses = self.rtnl.addresses().map_err(BindError::kernel("the host's addresses"))?;
        let routes = self.rtnl.routes().map_err(BindError::kernel("the host's routes"))?;
        let routed = routes.into_iter().map(|route| route.dest).filter(|net| net.prefix_len() > 0);
        Ok(addresses.into_iter().map(|address| address.net).chain(routed).collect())
    }

    pub(crate) fn add_address(&mut self, link: &str, net: IpNet) -> Result<StepReceipt, BindError> {
        let found = self.existing(link)?;
        self.rtnl.add_address(found.index, net).map_err(BindError::kernel(link))?;
        self.receipt(link)
    }

    /// Removes an address that was assigned for a measurement. Nobody else has chosen it, whichever link has it.
    pub(crate) fn remove_address(&mut self, net: IpNet) -> Result<Undone, BindError> {
        let addresses = self.rtnl.addresses().map_err(BindError::kernel(net))?;
        let Some(found) = addresses.into_iter().find(|address| address.net == net) else {
            return Ok(Undone::AlreadyGone);
        };
        self.rtnl.delete_address(found.link, net).map_err(BindError::kernel(net))?;
        Ok(Undone::Reverted)
    }
}
