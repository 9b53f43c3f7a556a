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
        domain::{AltMac, CpuDemand, DeviceKind, LinkProp, SwitchChange, Variable, VnetChange},
        guest::EmulatedNic,
    };
    use vtax_step::PlugDevice;
    use vtax_sys::netlink::MacAddr;

    use super::*;
    use crate::{
        disk_plug::{PlugDisk, PullDisk},
        step::DomainStep,
        test_domains::{
            DomainJournal, QEMU_PROCESS, add_domain, add_vnet, bindings, configuration, device, disk, launch, mars,
            mib, mtu, name,
        },
    };

    /// Returns true if the domain was started with less than this change of its vnet and of its switch.
    fn is_pending(is_live: bool, change: VnetChange, of_switch: SwitchChange) -> bool {
        let mut all = configuration();
        let was = all.vnet(&name("mars"), &name("net0")).expect("it is there").clone();
        all.set_vnet(&name("mars"), &name("net0"), change).expect("possible");
        all.set_switch(&name("vsw0"), of_switch).expect("possible");
        let wanted = all.vnet(&name("mars"), &name("net0")).expect("it is there");
        let kind = NicKind::Emulated { tap: vtax_guest::LinkName::new("t"), model: EmulatedNic::default() };
        let nic = NicLaunch::new(MacAddr([2, 0, 0, 0, 0, 1]), kind);
        let launched = NicLaunch { host_mtu: Some(mtu(1500)), ..nic };
        vnet_now(is_live, was, Some(wanted), Some(&launched), &all) != *wanted
    }

    #[test]
    fn only_changes_not_in_effect_are_pending() {
        let none = SwitchChange::default;
        let alt = || VnetChange { alt_macs: Some([AltMac::Auto].into()), ..VnetChange::default() };
        assert!(!is_pending(true, alt(), none()), "it changes immediately");
        assert!(is_pending(false, alt(), none()), "a domain that doesn't run gets it when it is started");
        assert!(is_pending(true, VnetChange { mtu: Some(mtu(9000)), ..VnetChange::default() }, none()));
        assert!(!is_pending(true, VnetChange { mtu: Some(mtu(1500)), ..VnetChange::default() }, none()), "it has that");
        assert!(is_pending(true, VnetChange { id: Some(3), ..VnetChange::default() }, none()));
        let larger = SwitchChange { mtu: Some(mtu(9000)), ..SwitchChange::default() };
        assert!(is_pending(true, VnetChange::default(), larger), "the switch's is that of the vnet");
    }

    fn wanted(all: &Configuration) -> &Constraints {
        all.domain(&name("mars")).expect("it is there")
    }

    type Change = fn(&mut Constraints);

    #[test]
    fn a_bound_domain_waits_for_all_but_its_policies() {
        let bound_with = configuration();
        let bound = DomainJournal::new(&mars(&bound_with)).started(&bound_with).read();
        assert_eq!(bound.constraints_now(&bound_with), *wanted(&bound_with), "nothing has changed");
        let changes: [(&str, Change, bool); 7] = [
            ("memory", |mars| mars.memory = Some(mib(256)), true),
            ("CPUs", |mars| mars.cpus = Some(CpuDemand::Vcpus(2)), true),
            ("a variable", |mars| drop(mars.variables.insert(Variable::BootArgs, "quiet".to_owned())), true),
            ("the port of its console", |mars| mars.console.port = Some(5000), true),
            ("a master", |mars| mars.masters = vec![name("venus")], false),
            ("autostart", |mars| mars.autostart = true, false),
            ("the limit of a vnet", |mars| mars.vnets[0].maxbw = "1G".parse().ok(), true),
        ];
        for (what, change, is_pending) in changes {
            let mut all = bound_with.clone();
            change(all.domains.get_mut(&name("mars")).expect("it is there"));
            assert_eq!(bound.constraints_now(&all) != *wanted(&all), is_pending, "{what}");
        }
    }

    #[test]
    fn a_vnet_that_was_plugged_in_is_not_pending_until_it_is_changed() {
        let started_with = configuration();
        let own = mars(&started_with);
        let mut all = started_with.clone();
        let (maxbw, linkprop) = ("1G".parse().ok(), Some(LinkProp::PhysState));
        add_vnet(&mut all, "net1", VnetChange { maxbw, linkprop, ..VnetChange::default() });
        let record = DomainJournal::new(&own).started(&started_with);
        assert_ne!(record.read().constraints_now(&all), *wanted(&all), "it isn't there yet");
        let bound = record.batch(crate::test_domains::plug(&own, &all, "net1", 0)).read();
        assert_eq!(bound.constraints_now(&all), *wanted(&all));
        let changes = [
            VnetChange { maxbw: "2G".parse().ok(), ..VnetChange::default() },
            VnetChange { linkprop: Some(LinkProp::None), ..VnetChange::default() },
            VnetChange { mac: "02:00:5e:10:00:09".parse().ok(), ..VnetChange::default() },
            VnetChange { id: Some(7), ..VnetChange::default() },
            VnetChange { mtu: Some(mtu(9000)), ..VnetChange::default() },
        ];
        for change in changes {
            let mut changed = all.clone();
            changed.set_vnet(&name("mars"), &name("net1"), change.clone()).expect("possible");
            assert_ne!(bound.constraints_now(&changed), *wanted(&changed), "{change:?}");
        }
    }

    #[test]
    fn a_domain_keeps_what_was_removed_from_the_configuration() {
        let bound_with = configuration();
        let bound = DomainJournal::new(&mars(&bound_with)).started(&bound_with).read();
        let mut all = bound_with.clone();
        all.remove_vnet(&name("mars"), &name("net0")).expect("it is there");
        assert_eq!(bound.constraints_now(&all).vnets, wanted(&bound_with).vnets);
        all.remove_domains(&[name("mars")]).expect("it is there");
        assert_eq!(bound.constraints_now(&all), *wanted(&bound_with));
    }

    /// The order of a list alone is no difference.
    #[test]
    fn disks_and_devices_are_those_that_it_has_now_in_the_order_of_the_configuration() {
        let mut all = configuration();
        add_domain(&mut all, "venus");
        all.add_device(&name("mars"), "vf1", DeviceKind::Vf).expect("nobody has it");
        let mut own = bindings("mars", &[2, 6], mib(128));
        own.constraints = wanted(&all).clone();
        own.disks = vec![disk("vol1", 1), disk("vol2", 2)];
        let (process, launch) = (QEMU_PROCESS.to_owned(), Box::new(launch(&own, &all)));
        let pull = PullDisk { launch: launch.clone(), process: process.clone(), disk: Box::new(disk("vol2", 2)) };
        let plug = PlugDisk { launch: launch.clone(), process: process.clone(), disk: Box::new(disk("vol3", 3)) };
        let device = device("vf1", Some(1)).functions[0];
        let function = PlugDevice { launch, process, port: 1, name: "vf1".to_owned(), device };
        let steps = [DomainStep::PullDisk(pull), DomainStep::PlugDisk(plug), DomainStep::PlugDevice(function)];
        let record = DomainJournal::new(&own).started(&all);
        assert!(record.read().constraints_now(&all).io.is_empty(), "the function isn't there yet");
        let bound = record.batch(steps).read();
        let mars = all.domains.get_mut(&name("mars")).expect("it is there");
        mars.disks = vec![disk("vol3", 3).disk, disk("vol1", 1).disk];
        assert_eq!(bound.constraints_now(&all), *wanted(&all));
    }
}
