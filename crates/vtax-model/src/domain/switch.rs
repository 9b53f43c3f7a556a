//! Virtual switches.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Configuration, DomainError, ListChange, PRIMARY};
use crate::{guest::Mac, topology::Name, units::Mtu, vf::Vlan};

/// A virtual switch (vsw) of a service domain.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The domain that it runs in.
    pub service: Name,
    /// The link of that domain that connects it with the outside; absent for an internal switch.
    pub net_dev: Option<String>,
    /// The Ethernet address at which the service domain itself is reached; that of the external link if absent.
    pub mac: Option<Mac>,
    /// The MTU of the switch and of every vnet without its own.
    pub mtu: Mtu,
    /// The VLAN of untagged frames, at ports without a pvid.
    pub default_vlan: Vlan,
    /// The VLAN in which the service domain itself sends and receives untagged frames.
    pub pvid: Vlan,
    /// The VLANs in which it sends and receives tagged frames.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub vids: BTreeSet<Vlan>,
}

impl Switch {
    /// The MTUs that a switch can have.
    pub const MTUS: std::ops::RangeInclusive<u32> = 1500..=16_000;

    /// Returns a switch that is connected with nothing.
    pub fn new(service: Name, default_vlan: Option<Vlan>) -> Switch {
        let default_vlan = default_vlan.unwrap_or_default();
        let (mtu, pvid) = (Mtu::ETHERNET, default_vlan);
        Switch { service, net_dev: None, mac: None, mtu, default_vlan, pvid, vids: BTreeSet::new() }
    }

    /// The host's link that connects it with the outside. A switch served by a guest has none.
    pub fn host_link(&self) -> Option<&str> {
        self.net_dev.as_deref().filter(|_| self.is_of_primary())
    }

    /// Returns true if the host itself serves it.
    pub fn is_of_primary(&self) -> bool {
        self.service.as_str() == PRIMARY
    }

    /// Checks the name of a link; an empty one means none. In a guest, an address may identify it, too: there, names
    /// may differ at the next boot.
    fn check_link(&self, link: &str) -> Result<(), DomainError> {
        if !self.is_of_primary() && link.parse::<Mac>().is_ok() {
            return Ok(());
        }
        // IFNAMSIZ without the terminating zero.
        const LONGEST: usize = 15;
        let is_odd =
            |letter: char| letter.is_whitespace() || letter.is_control() || "/:\u{fffe}\u{ffff}".contains(letter);
        match link.len() <= LONGEST && !link.contains(is_odd) && ![".", ".."].contains(&link) {
            true => Ok(()),
            false => Err(DomainError::value("net-dev", link, "a link name: at most 15 bytes, without / : and spaces")),
        }
    }

    /// Checks an MTU of a switch or a vnet.
    pub(super) fn check_mtu(mtu: Mtu) -> Result<(), DomainError> {
        match Switch::MTUS.contains(&mtu.get()) {
            true => Ok(()),
            false => Err(DomainError::value("mtu", &mtu.to_string(), "1500 to 16000")),
        }
    }
}

impl Configuration {
    /// Maximum number of switches that one guest serves. Each takes a slot of its PCI bus.
    pub const MOST_SERVED: usize = 3;

    /// Returns the switches that a guest connects with the outside by one of its links.
    pub fn served_by<'a>(&'a self, domain: &'a Name) -> impl Iterator<Item = (&'a Name, &'a Switch)> {
        let is_served = |switch: &Switch| switch.service == *domain && !switch.is_of_primary();
        self.switches.iter().filter(move |(_, switch)| is_served(switch) && switch.net_dev.is_some())
    }

    /// Returns the address of the NIC that connects a guest to a switch that it serves.
    pub fn served_mac(&self, domain: &Name, switch: &Name) -> Mac {
        // No vnet can have such a name.
        self.mac_owners().free(&format!("switch {switch}"), domain, &[])
    }

    /// Returns the VLANs in use at this switch, except its default one.
    pub fn vlans_of(&self, name: &Name, switch: &Switch) -> BTreeSet<Vlan> {
        let vnets = self.domains.values().flat_map(|domain| &domain.vnets).filter(|vnet| vnet.switch == *name);
        let of_vnets = vnets.flat_map(|vnet| vnet.vlans.vids.iter().copied().chain([vnet.pvid_on(switch)]));
        of_vnets.chain(switch.vids.iter().copied()).chain([switch.pvid]).collect()
    }
}

/// A switch as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSwitch {
    pub name: Name,
    pub service: Name,
    pub default_vlan: Option<Vlan>,
    pub change: SwitchChange,
}

/// Changes of a switch: only present fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchChange {
    /// An empty name removes the link.
    pub net_dev: Option<String>,
    pub mac: Option<Mac>,
    pub mtu: Option<Mtu>,
    pub pvid: Option<Vlan>,
    pub vids: Option<ListChange<Vlan>>,
}

impl NewSwitch {
    /// Returns the change that creates this switch.
    pub(super) fn of(name: Name, switch: Switch) -> NewSwitch {
        let Switch { service, net_dev, mac, mtu, default_vlan, pvid, vids } = switch;
        let change =
            SwitchChange { net_dev, mac, mtu: Some(mtu), pvid: Some(pvid), vids: Some(vids.into_iter().collect()) };
        NewSwitch { name, service, default_vlan: Some(default_vlan), change }
    }
}

impl SwitchChange {
    pub(super) fn apply(self, switch: &mut Switch) -> Result<(), DomainError> {
        self.mtu.map_or(Ok(()), Switch::check_mtu)?;
        self.net_dev.as_deref().map_or(Ok(()), |link| switch.check_link(link))?;
        self.fill(switch);
        Ok(())
    }

    /// Applies a document's values without checks.
    pub fn fill(self, switch: &mut Switch) {
        let SwitchChange { net_dev, mac, mtu, pvid, vids } = self;
        switch.mtu = mtu.unwrap_or(switch.mtu);
        if let Some(link) = net_dev {
            switch.net_dev = Some(link).filter(|link| !link.is_empty());
        }
        switch.mac = mac.or(switch.mac);
        switch.pvid = pvid.unwrap_or(switch.pvid);
        if let Some(vids) = vids {
            switch.vids = vids.applied(std::mem::take(&mut switch.vids));
        }
    }
}
