//! What a bound domain has at the moment of what it is to have. The rest is pending: it gets that when it boots again.

use vtax_guest::launch::NicLaunch;
use vtax_model::{
    domain::{Configuration, Constraints, DomainState, VirtualNic},
    guest::Mac,
    topology::Name,
};

use crate::bound::BoundDomain;

impl BoundDomain {
    /// What it has, in the words of constraints. Where they are others than those of the configuration, those are pending.
    ///
    /// It was bound with constraints. Since then masters and policies have changed at once, and in a domain that runs also
    /// VLANs and further addresses, and virtual NICs that were plugged in.
    pub fn constraints_now(&self, all: &Configuration) -> Constraints {
        let was = &self.bindings.constraints;
        let Ok(wanted) = all.domain(self.name()) else { return was.clone() };
        let vnets = was.vnets.iter().enumerate().map(|(place, vnet)| {
            let launched = self.guest.as_ref().and_then(|guest| guest.launch.nics.get(place));
            self.vnet_now(vnet.clone(), wanted.vnet(&vnet.name), launched, all)
        });
        let plugged = self.plugged.iter().filter_map(|plugged| {
            let vnet = wanted.vnet(&plugged.nic.vnet)?;
            let mac: Mac = plugged.launch.mac.to_string().parse().ok()?;
            let carrier = self.carriers.iter().find(|carrier| carrier.tap == plugged.nic.tap)?;
            let started_with = VirtualNic { mac, linkprop: carrier.linkprop, ..vnet.clone() };
            Some(self.vnet_now(started_with, Some(vnet), Some(&plugged.launch), all))
        });
        Constraints {
            vnets: in_order_of(wanted, vnets.chain(plugged).collect()),
            failure_policy: wanted.failure_policy,
            masters: wanted.masters.clone(),
            autostart: wanted.autostart,
            ..was.clone()
        }
    }

    fn vnet_now(
        &self,
        was: VirtualNic,
        wanted: Option<&VirtualNic>,
        launched: Option<&NicLaunch>,
        all: &Configuration,
    ) -> VirtualNic {
        let Some(wanted) = wanted else { return was };
        let is_live = self.state() == DomainState::Active;
        let (alt_macs, vlans) = match is_live {
            true => (wanted.alt_macs.clone(), wanted.vlans.clone()),
            false => (was.alt_macs.clone(), was.vlans.clone()),
        };
        // The MTU of its switch may have changed, which the domain learns at its boot.
        let mtu = match (launched.and_then(|nic| nic.host_mtu), all.switch(&wanted.switch)) {
            (Some(mtu), Ok(switch)) if mtu == wanted.mtu_on(switch) => wanted.mtu,
            (Some(mtu), _) => Some(mtu),
            (None, _) => was.mtu,
        };
        VirtualNic { alt_macs, vlans, mtu, ..was }
    }
}

/// As the configuration has them, so that only a real difference is one.
fn in_order_of(wanted: &Constraints, mut vnets: Vec<VirtualNic>) -> Vec<VirtualNic> {
    let place = |name: &Name| wanted.vnets.iter().position(|vnet| vnet.name == *name).unwrap_or(usize::MAX);
    vnets.sort_by_key(|vnet| place(&vnet.name));
    vnets
}
