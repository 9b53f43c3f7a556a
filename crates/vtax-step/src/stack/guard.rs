//! Tables of the source addresses permitted to the ports of a switch.

use std::collections::{BTreeMap, BTreeSet};

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

    /// Restricts a port to sending from these addresses, and removes all its other addresses. No frame from an address
    /// that stays is dropped in between. Without addresses, the port may send from any.
    pub fn guard_only(&mut self, switch: &str, port: &str, macs: &[Mac]) -> Result<(), StepError> {
        if macs.is_empty() {
            return Ok(());
        }
        let (table, port, mut nft) = (self.switch_name(switch)?, self.if_name(port)?, self.nft()?);
        nft.change_mac_filter(&table, &restricted(&port, macs)).map_err(self.wrong(switch))?;
        let surplus = surplus(&port, macs, nft.owners(&table).map_err(self.wrong(switch))?);
        match surplus.is_empty() {
            true => Ok(()),
            false => nft.change_mac_filter(&table, &surplus).map_err(self.wrong(switch)),
        }
    }

    /// Removes a port and its addresses. It is not an error if they don't exist.
    pub fn unguard(&mut self, switch: &str, port: &str) -> Result<(), StepError> {
        let port = self.if_name(port)?;
        let Some((mut nft, table)) = self.guard_of(switch)? else { return Ok(()) };
        let owners = nft.owners(&table).map_err(self.wrong(switch))?;
        let is_restricted = nft.dropped(&table).map_err(self.wrong(switch))?.contains_key(&port);
        let changes = freed(&port, is_restricted, owners);
        match changes.is_empty() {
            true => Ok(()),
            false => nft.change_mac_filter(&table, &changes).map_err(self.wrong(switch)),
        }
    }

    /// Returns the number of frames dropped for their source address at each port of a switch; empty if the switch
    /// doesn't check addresses.
    pub fn dropped(&mut self, switch: &str) -> Result<BTreeMap<IfName, Dropped>, StepError> {
        match self.guard_of(switch)? {
            Some((mut nft, table)) => nft.dropped(&table).map_err(self.wrong(switch)),
            None => Ok(BTreeMap::new()),
        }
    }

    /// Returns the table of a switch, if it has one. A kernel without support for such tables has none of ours.
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

/// Returns the changes that permit a port to send from these addresses, and then from no others.
fn restricted(port: &IfName, macs: &[Mac]) -> Vec<MacChange> {
    let owned = macs.iter().map(|mac| MacChange::Allow(port.clone(), MacAddr(mac.octets())));
    owned.chain([MacChange::Restrict(port.clone())]).collect()
}

/// Returns the changes that remove all addresses of a port except these.
fn surplus(port: &IfName, macs: &[Mac], owners: BTreeSet<(IfName, MacAddr)>) -> Vec<MacChange> {
    let is_kept = |mac: &MacAddr| macs.iter().any(|kept| kept.octets() == mac.0);
    let surplus = owners.into_iter().filter(|(owner, mac)| owner == port && !is_kept(mac));
    surplus.map(|(owner, mac)| MacChange::Forbid(owner, mac)).collect()
}

/// Returns the changes that remove a port entirely. Removing something that doesn't exist would be an error.
fn freed(port: &IfName, is_restricted: bool, owners: BTreeSet<(IfName, MacAddr)>) -> Vec<MacChange> {
    let removed = surplus(port, &[], owners).into_iter();
    removed.chain(is_restricted.then(|| MacChange::Free(port.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> IfName {
        name.parse().expect("the name of a link")
    }

    fn mac(last: u8) -> Mac {
        format!("02:00:5e:10:00:{last:02x}").parse().expect("an address")
    }

    fn owners(pairs: &[(&str, u8)]) -> BTreeSet<(IfName, MacAddr)> {
        pairs.iter().map(|(owner, last)| (port(owner), MacAddr(mac(*last).octets()))).collect()
    }

    fn forbid(owner: &str, last: u8) -> MacChange {
        MacChange::Forbid(port(owner), MacAddr(mac(last).octets()))
    }

    /// Otherwise the port's own frames would be dropped in between.
    #[test]
    fn a_port_owns_its_addresses_before_it_is_restricted_to_them() {
        let changes = restricted(&port("vnet2.0"), &[mac(1), mac(2)]);
        assert!(changes[..2].iter().all(|change| matches!(change, MacChange::Allow(..))), "{changes:?}");
        assert_eq!(changes[2..], [MacChange::Restrict(port("vnet2.0"))]);
    }

    #[test]
    fn only_the_port_itself_loses_addresses_and_only_those_that_it_no_longer_has() {
        let all = || owners(&[("vnet2.0", 1), ("vnet2.0", 2), ("vnet3.0", 1), ("vnet3.0", 3)]);
        assert_eq!(surplus(&port("vnet2.0"), &[mac(1)], all()), [forbid("vnet2.0", 2)]);
        assert_eq!(surplus(&port("vnet2.0"), &[mac(1), mac(2), mac(9)], all()), []);
        assert_eq!(surplus(&port("vnet9.0"), &[], all()), []);
    }

    #[test]
    fn a_port_that_goes_leaves_nothing_and_what_is_not_there_is_not_removed() {
        let all = || owners(&[("vnet2.0", 1), ("vnet3.0", 3)]);
        let free = MacChange::Free(port("vnet2.0"));
        assert_eq!(freed(&port("vnet2.0"), true, all()), [forbid("vnet2.0", 1), free.clone()]);
        assert_eq!(freed(&port("vnet2.0"), false, all()), [forbid("vnet2.0", 1)]);
        assert_eq!(freed(&port("vnet2.0"), true, BTreeSet::new()), [free]);
        assert_eq!(freed(&port("vnet2.0"), false, BTreeSet::new()), []);
    }
}
