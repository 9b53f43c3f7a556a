//! Virtual switches as links of this host.

use std::collections::BTreeSet;

use vtax_model::{domain::Configuration, topology::Name, vf::Vlan};
use vtax_sys::netlink::{probe_mac_filter, probe_vlan_bridge};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::BindError;

/// Capabilities of this kernel's switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SwitchAbilities {
    /// VLAN isolation.
    pub(crate) vlans: bool,
    /// Dropping of frames from addresses that the sender doesn't own.
    pub(crate) guards_addresses: bool,
}

impl SwitchAbilities {
    pub(crate) fn probe() -> SwitchAbilities {
        SwitchAbilities { vlans: probe_vlan_bridge().is_ok(), guards_addresses: probe_mac_filter().is_ok() }
    }

    /// Checks that without VLANs, a switch and its vnets don't require any: their frames would reach everybody.
    pub(crate) fn check(self, name: &Name, configuration: &Configuration) -> Result<(), BindError> {
        if self.vlans {
            return Ok(());
        }
        let switch = configuration.switch(name)?;
        let is_plain = |pvid: Vlan, vids: &BTreeSet<Vlan>| pvid == switch.default_vlan && vids.is_empty();
        let vnets = configuration.domains.values().flat_map(|domain| &domain.vnets);
        let mut of_switch = vnets.filter(|vnet| vnet.switch == *name);
        let all_plain = is_plain(switch.pvid, &switch.vids)
            && of_switch.all(|vnet| is_plain(vnet.pvid_on(switch), &vnet.vlans.vids));
        if all_plain { Ok(()) } else { Err(BindError::NoVlans { switch: name.clone() }) }
    }
}

/// Maximum length of a link's name: `IFNAMSIZ` without the terminating zero.
const LONGEST: usize = 15;

/// Returns the name of a switch's link: its own, truncated if it is too long for the kernel.
pub(crate) fn link_name(switch: &Name) -> String {
    match switch.as_str() {
        name if name.len() <= LONGEST => name.to_owned(),
        name => format!("{}-{:04x}", &name[..LONGEST - 5], xxh3_64(name.as_bytes()) & 0xffff),
    }
}

/// Returns the alias of a link that vtax has created for a switch or a domain.
pub(crate) fn mark(object: &Name) -> String {
    format!("vtax-ldm:{object}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_becomes_a_unique_short_one() {
        let name = |text: &str| -> Name { text.parse().expect("a name") };
        assert_eq!(link_name(&name("admin-vsw")), "admin-vsw");
        let long = ["production-network-1", "production-network-2"].map(|text| link_name(&name(text)));
        assert!(long.iter().all(|name| name.len() == LONGEST && name.starts_with("production-")), "{long:?}");
        assert_ne!(long[0], long[1]);
    }
}
