//! Virtual NICs that follow the carrier of their switch's uplink (`linkprop=phys-state`).
//!
//! If that link loses its carrier, the domain's own NIC loses it as well, so the domain can use another path. Only the
//! link that QEMU shows to the domain changes: the switch and its other domains are not affected.

use std::collections::BTreeMap;

use vtax_guest::arguments::nic_id;
use vtax_model::domain::LinkProp;
use vtax_step::plugged_index;

use crate::{bound::BoundDomain, error::BindError, host::HostNet};

/// Virtual NIC that follows a link of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FollowingNic {
    /// NIC in QEMU.
    id: String,
    /// Link that it follows.
    uplink: String,
}

/// Link to follow, according to a tap's step.
#[derive(Debug, Clone)]
pub(crate) struct TapCarrier {
    pub(crate) tap: String,
    pub(crate) uplink: Option<String>,
    pub(crate) linkprop: LinkProp,
}

/// Carriers as the domain sees them. QEMU starts with a carrier for each NIC.
#[derive(Debug)]
pub(crate) struct CarrierFollower {
    nics: Vec<FollowingNic>,
    host: HostNet,
    shown: BTreeMap<FollowingNic, bool>,
}

impl BoundDomain {
    /// Returns its virtual NICs that follow a link of the host. A switch without such a link always has a carrier.
    pub(crate) fn following(&self) -> Vec<FollowingNic> {
        let plugged = |tap: &str| self.plugged.iter().find(|plugged| plugged.nic.tap == tap);
        let place = |tap: &str| self.bindings.nics.iter().position(|nic| nic.tap == tap);
        let of_tap = |carrier: &TapCarrier| {
            let uplink = carrier.uplink.clone().filter(|_| carrier.linkprop == LinkProp::PhysState)?;
            let index = match plugged(&carrier.tap) {
                Some(plugged) => plugged_index(plugged.port),
                None => place(&carrier.tap)?,
            };
            Some(FollowingNic { id: nic_id(index), uplink })
        };
        self.carriers.iter().filter_map(of_tap).collect()
    }
}

impl CarrierFollower {
    pub(crate) fn new(domain: &BoundDomain, host: &HostNet) -> CarrierFollower {
        CarrierFollower { nics: domain.following(), host: host.clone(), shown: BTreeMap::new() }
    }

    /// Returns true if there is nothing to follow.
    pub(crate) fn is_idle(&self) -> bool {
        self.nics.is_empty()
    }

    /// Forwards carrier changes since the last call. Updates that QEMU refuses are retried the next time.
    pub(crate) fn follow(
        &mut self,
        mut show: impl FnMut(&str, bool) -> Result<(), BindError>,
    ) -> Result<(), BindError> {
        if self.is_idle() {
            return Ok(());
        }
        let mut site = self.host.site();
        for nic in &self.nics {
            let carrier = site.own()?.link(&nic.uplink)?.is_some_and(|link| link.up && link.lower_up);
            let change = change(&mut self.shown, nic, carrier, &mut show);
            // Other NICs are still updated. An unplugged NIC no longer counts.
            let _ = change;
        }
        Ok(())
    }
}

fn change(
    shown: &mut BTreeMap<FollowingNic, bool>,
    nic: &FollowingNic,
    carrier: bool,
    show: &mut impl FnMut(&str, bool) -> Result<(), BindError>,
) -> Result<(), BindError> {
    if shown.get(nic).copied().unwrap_or(true) == carrier {
        return Ok(());
    }
    show(&nic.id, carrier)?;
    shown.insert(nic.clone(), carrier);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_forwarded_and_failures_retried() {
        let nic = FollowingNic { id: nic_id(1), uplink: "eno1".to_owned() };
        let mut shown = BTreeMap::new();
        let mut told = Vec::new();
        let mut works = true;
        for carrier in [true, false, false, true, false, false] {
            let failed = change(&mut shown, &nic, carrier, &mut |id, carrier| {
                told.push((id.to_owned(), carrier));
                works = told.len() != 3;
                if works { Ok(()) } else { Err(BindError::NoLink { link: id.to_owned() }) }
            });
            assert_eq!(failed.is_ok(), works);
            works = true;
        }
        let told: Vec<String> = told.iter().map(|(id, carrier)| format!("{id} {carrier}")).collect();
        assert_eq!(told, ["nic1 false", "nic1 true", "nic1 false", "nic1 false"]);
    }
}
