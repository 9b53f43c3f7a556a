//! Current resources of a bound domain, compared with its constraints. The differences are pending until its next boot.

use vtax_guest::launch::NicLaunch;
use vtax_model::{
    domain::{Configuration, Constraints, DomainDevice, DomainState, VirtualDisk, VirtualNic, before_boot},
    guest::Mac,
    topology::Name,
};

use crate::bound::BoundDomain;

impl BoundDomain {
    /// Returns the current resources, expressed as constraints. Differences from the configuration are pending.
    ///
    /// The domain was bound with its constraints. Since then masters and policies have changed immediately, and in a
    /// running domain also VLANs and further addresses, and virtual NICs that were plugged in.
    pub fn constraints_now(&self, all: &Configuration) -> Constraints {
        let was = &self.bindings.constraints;
        let Ok(wanted) = all.domain(self.name()) else { return was.clone() };
        let is_live = self.state() == DomainState::Active;
        let now = |was, wanted, launched| vnet_now(is_live, was, wanted, launched, all);
        let vnets = was.vnets.iter().enumerate().map(|(place, vnet)| {
            let launched = self.guest.as_ref().and_then(|guest| guest.launch.nics.get(place));
            now(vnet.clone(), wanted.vnet(&vnet.name), launched)
        });
        let plugged = self.plugged.iter().filter_map(|plugged| {
            let vnet = wanted.vnet(&plugged.nic.vnet)?;
            let mac: Mac = plugged.launch.mac.to_string().parse().ok()?;
            let carrier = self.carriers.iter().find(|carrier| carrier.tap == plugged.nic.tap)?;
            let (linkprop, maxbw, id) = (carrier.linkprop, plugged.maxbw, plugged.nic.number()?);
            let started_with = VirtualNic { mac, linkprop, maxbw, id, ..vnet.clone() };
            Some(now(started_with, Some(vnet), Some(&plugged.launch)))
        });
        let devices = self.bindings.devices.iter().filter_map(|device| {
            let known = |io: &[DomainDevice]| io.iter().find(|known| known.name == device.name).cloned();
            known(&wanted.io).or_else(|| known(&was.io))
        });
        Constraints {
            disks: self.disks_now(wanted),
            io: devices.collect(),
            vnets: in_order_of(wanted, vnets.chain(plugged).collect()),
            ..before_boot(was, wanted)
        }
    }
}

impl BoundDomain {
    /// Returns its disks, in the order of the configuration.
    fn disks_now(&self, wanted: &Constraints) -> Vec<VirtualDisk> {
        let mut disks: Vec<VirtualDisk> = self.bindings.disks.iter().map(|bound| bound.disk.clone()).collect();
        let place = |name: &Name| wanted.disks.iter().position(|disk| disk.name == *name).unwrap_or(usize::MAX);
        disks.sort_by_key(|disk| place(&disk.name));
        disks
    }
}

/// Returns the current vnet of a domain, which runs if `is_live`, and was started with this one.
fn vnet_now(
    is_live: bool,
    was: VirtualNic,
    wanted: Option<&VirtualNic>,
    launched: Option<&NicLaunch>,
    all: &Configuration,
) -> VirtualNic {
    let Some(wanted) = wanted else { return was };
    // The MTU of its switch may have changed, which the domain only sees at its next boot.
    let mtu = match (launched.and_then(|nic| nic.host_mtu), all.switch(&wanted.switch)) {
        (Some(mtu), Ok(switch)) if mtu == wanted.mtu_on(switch) => wanted.mtu,
        (Some(mtu), _) => Some(mtu),
        (None, _) => was.mtu,
    };
    let now = if is_live { before_boot(&was, wanted) } else { was };
    VirtualNic { mtu, ..now }
}

/// In the configuration's form, so that only real differences count.
fn in_order_of(wanted: &Constraints, mut vnets: Vec<VirtualNic>) -> Vec<VirtualNic> {
    let place = |name: &Name| wanted.vnets.iter().position(|vnet| vnet.name == *name).unwrap_or(usize::MAX);
    vnets.sort_by_key(|vnet| place(&vnet.name));
    vnets
}

#[cfg(test)]
mod tests {
    use vtax_guest::launch::NicKind;
    use vtax_model::{
        domain::{AltMac, NewSwitch, NewVnet, PRIMARY, SwitchChange, VnetChange},
        units::Mtu,
    };
    use vtax_sys::netlink::MacAddr;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn mtu(bytes: i64) -> Option<Mtu> {
        Mtu::try_from(bytes).ok()
    }

    /// Returns a vnet as its domain was bound with it, and the configuration after a change of it and of its switch.
    fn changed(change: VnetChange, of_switch: SwitchChange) -> (VirtualNic, Configuration) {
        let mut all = Configuration::new("sun");
        let new = NewSwitch {
            name: name("vsw0"),
            service: name(PRIMARY),
            default_vlan: None,
            change: SwitchChange::default(),
        };
        all.add_switch(new).expect("it is new");
        all.add_domain(&name("mars")).expect("it is new");
        let new =
            NewVnet { name: name("net0"), switch: name("vsw0"), domain: name("mars"), change: VnetChange::default() };
        all.add_vnet(new).expect("it is new");
        let was = all.vnet(&name("mars"), &name("net0")).expect("it is there").clone();
        all.set_vnet(&name("mars"), &name("net0"), change).expect("possible");
        all.set_switch(&name("vsw0"), of_switch).expect("possible");
        (was, all)
    }

    fn is_pending(is_live: bool, change: VnetChange, of_switch: SwitchChange) -> bool {
        let (was, all) = changed(change, of_switch);
        let wanted = all.vnet(&name("mars"), &name("net0")).expect("it is there");
        let nic = NicLaunch::new(
            MacAddr([2, 0, 0, 0, 0, 1]),
            NicKind::Emulated { tap: vtax_guest::LinkName::new("t"), model: Default::default() },
        );
        let launched = NicLaunch { host_mtu: mtu(1500), ..nic };
        vnet_now(is_live, was, Some(wanted), Some(&launched), &all) != *wanted
    }

    #[test]
    fn only_what_is_not_in_force_is_pending() {
        let none = SwitchChange::default;
        let alt = || VnetChange { alt_macs: Some([AltMac::Auto].into()), ..VnetChange::default() };
        assert!(!is_pending(true, alt(), none()), "it changes immediately");
        assert!(is_pending(false, alt(), none()), "a domain that doesn't run gets it when it is started");
        assert!(is_pending(true, VnetChange { mtu: mtu(9000), ..VnetChange::default() }, none()));
        assert!(!is_pending(true, VnetChange { mtu: mtu(1500), ..VnetChange::default() }, none()), "it has that");
        assert!(is_pending(true, VnetChange { id: Some(3), ..VnetChange::default() }, none()));
        let larger = SwitchChange { mtu: mtu(9000), ..SwitchChange::default() };
        assert!(is_pending(true, VnetChange::default(), larger), "the switch's is that of the vnet");
    }
}
