//! Tables of the addresses that the ports of a switch may send from.

use std::collections::BTreeMap;

use vtax_model::{guest::Mac, topology::Name};
use vtax_sys::netlink::{Dropped, IfName, MacAddr, MacChange, Nft, SwitchName};

use super::NetStack;
use crate::error::StepError;

impl NetStack {
    pub(crate) fn create_guard(&mut self, switch: &str, mark: &str) -> Result<(), StepError> {
        let table = self.switch_name(switch)?;
        self.nft()?.create_mac_filter(&table, mark).map_err(self.wrong(switch))
    }

    /// Removes the table of a switch, if it has one.
    pub fn remove_guard(&mut self, switch: &str) -> Result<(), StepError> {
        match self.guard_of(switch)? {
            Some((mut nft, table)) => nft.delete_mac_filter(&table).map_err(self.wrong(switch)),
            None => Ok(()),
        }
    }

    /// Restricts a port to sending from these addresses, and removes all its other addresses. In between, no frame is
    /// dropped that comes from an address that stays. Without addresses, the port may send from any.
    pub fn guard_only(&mut self, switch: &str, port: &str, macs: &[Mac]) -> Result<(), StepError> {
        if macs.is_empty() {
            return Ok(());
        }
        let (table, port, mut nft) = (self.switch_name(switch)?, self.if_name(port)?, self.nft()?);
        let owned = macs.iter().map(|mac| MacChange::Allow(port.clone(), MacAddr(mac.octets())));
        let changes: Vec<MacChange> = owned.chain([MacChange::Restrict(port.clone())]).collect();
        nft.change_mac_filter(&table, &changes).map_err(self.wrong(switch))?;
        let owners = nft.owners(&table).map_err(self.wrong(switch))?;
        let kept = |mac: &MacAddr| macs.iter().any(|kept| kept.octets() == mac.0);
        let surplus = owners.into_iter().filter(|(owner, mac)| *owner == port && !kept(mac));
        let changes: Vec<MacChange> = surplus.map(|(owner, mac)| MacChange::Forbid(owner, mac)).collect();
        match changes.is_empty() {
            true => Ok(()),
            false => nft.change_mac_filter(&table, &changes).map_err(self.wrong(switch)),
        }
    }

    /// Removes a port and its addresses. Missing ones are not an error.
    pub fn unguard(&mut self, switch: &str, port: &str) -> Result<(), StepError> {
        let port = self.if_name(port)?;
        let Some((mut nft, table)) = self.guard_of(switch)? else { return Ok(()) };
        let owners = nft.owners(&table).map_err(self.wrong(switch))?;
        let restricted = nft.dropped(&table).map_err(self.wrong(switch))?;
        let owned = owners.into_iter().filter(|(owner, _)| *owner == port);
        let mut changes: Vec<MacChange> = owned.map(|(owner, mac)| MacChange::Forbid(owner, mac)).collect();
        changes.extend(restricted.contains_key(&port).then_some(MacChange::Free(port)));
        match changes.is_empty() {
            true => Ok(()),
            false => nft.change_mac_filter(&table, &changes).map_err(self.wrong(switch)),
        }
    }

    /// Returns the number of frames from foreign addresses for each port of a switch; empty if the switch doesn't check
    /// them.
    pub fn dropped(&mut self, switch: &str) -> Result<BTreeMap<IfName, Dropped>, StepError> {
        match self.guard_of(switch)? {
            Some((mut nft, table)) => nft.dropped(&table).map_err(self.wrong(switch)),
            None => Ok(BTreeMap::new()),
        }
    }

    /// The table of a switch, if it has one. A kernel without such tables has none of ours.
    fn guard_of(&self, switch: &str) -> Result<Option<(Nft, SwitchName)>, StepError> {
        let (table, mut nft) = (self.switch_name(switch)?, self.nft()?);
        let is_there = nft.mac_filters().unwrap_or_default().iter().any(|found| found.switch == table);
        Ok(is_there.then_some((nft, table)))
    }

    fn switch_name(&self, switch: &str) -> Result<SwitchName, StepError> {
        switch.parse().map_err(self.wrong(switch))
    }

    fn nft(&self) -> Result<Nft, StepError> {
        let object = self.name.as_ref().map_or("the host's network", Name::as_str);
        Nft::open_in(&self.namespace).map_err(StepError::kernel(object))
    }
}
