use proptest::prelude::*;
use vtax_model::{
    domain::{ConsoleService, DeviceKind, DomainDevice, FunctionSettings, SwitchChange, VnetChange},
    guest::Mac,
};

use super::*;
use crate::test_domains::{
    add_domain, add_switch, add_vnet, bindings as bound, capacity, configuration, device, disk as bound_disk, engine,
    launch as launched, mars, mib, mtu, name, vlan,
};

/// Returns what mars gets on a host with four cores.
fn planned(
    all: &Configuration,
    others: &[Bindings],
    own: Option<&Bindings>,
    is_free: &dyn Fn(u16) -> bool,
) -> Result<Bindings, String> {
    let (domain, capacity) = (name("mars"), capacity());
    let (devices, disks) = (Vec::new(), Vec::new());
    let (configuration, domain, capacity) = (all, &domain, &capacity);
    let request = BindRequest { domain, configuration, capacity, others, own, devices, disks, is_free };
    bindings(&request).map_err(|error| error.to_string())
}

fn mars_with(change: impl FnOnce(&mut Constraints)) -> Configuration {
    let mut all = configuration();
    change(all.domains.get_mut(&name("mars")).expect("it is there"));
    all
}

/// Returns the CPUs that mars gets on a host with four cores, of which venus has the last.
fn cpus_of(demand: CpuDemand) -> Result<Vec<u32>, String> {
    let all = mars_with(|mars| mars.cpus = Some(demand));
    let found = planned(&all, &[bound("venus", &[3, 7], ByteSize(0))], None, &|_| true)?;
    Ok(found.cpus.into_iter().collect())
}

#[test]
fn a_domain_gets_the_cores_that_it_names_or_nothing() {
    let cids = |ids: &[u32]| CpuDemand::Cids(ids.iter().copied().collect());
    assert_eq!(cpus_of(cids(&[1])), Ok(vec![1, 5]));
    assert_eq!(cpus_of(cids(&[0, 1])), Ok(vec![0, 1, 4, 5]));
    assert_eq!(cpus_of(CpuDemand::Cores(1)), Ok(vec![2, 6]));
    assert_eq!(cpus_of(CpuDemand::Vcpus(6)), Ok(Vec::new()), "they are shared");
    for (demand, why) in [
        (cids(&[1, 3]), "cannot have core 3: venus has it"),
        (cids(&[4]), "this host has cores 0 to 3"),
        (cids(&[0, 1, 2]), "3 cores requested, 2 available: venus has 2 CPUs"),
        (CpuDemand::Cores(3), "3 cores requested, 2 available: venus has 2 CPUs"),
        (CpuDemand::Vcpus(7), "7 CPUs requested, 6 available: venus has 2 CPUs"),
    ] {
        let told = cpus_of(demand).expect_err(why);
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn the_error_for_missing_cpus_or_memory_names_the_remedy() {
    for (all, why) in [
        (mars_with(|mars| mars.cpus = None), "mars has no CPUs yet; add some: vtax ldm set-vcpu 1 mars"),
        (mars_with(|mars| mars.memory = None), "mars has no memory yet; add some: vtax ldm set-memory 1G mars"),
    ] {
        let told = planned(&all, &[], None, &|_| true).expect_err(why);
        assert!(told.contains(why), "{told}");
    }
}

/// 700 MiB are available, of which the host keeps 256.
#[test]
fn memory_is_limited_to_available_memory_and_the_domains_own() {
    let venus = [bound("venus", &[], mib(64))];
    let own = bound("mars", &[], mib(100));
    for (own, wanted, is_enough) in
        [(None, 444, true), (None, 445, false), (Some(&own), 544, true), (Some(&own), 545, false)]
    {
        let all = mars_with(|mars| mars.memory = Some(mib(wanted)));
        match planned(&all, &venus, own, &|_| true) {
            Ok(found) => assert!(is_enough && found.memory == mib(wanted), "{wanted} MiB"),
            Err(told) => {
                assert!(!is_enough, "{wanted} MiB: {told}");
                let free = if own.is_some() { "544 MiB" } else { "444 MiB" };
                assert!(told.contains(&format!("{free} available: venus has 64 MiB")), "{told}");
            }
        }
    }
}

fn demand() -> impl Strategy<Value = CpuDemand> {
    prop_oneof![
        (1..4u32).prop_map(CpuDemand::Cores),
        (1..9u32).prop_map(CpuDemand::Vcpus),
        prop::collection::btree_set(0..5u32, 1..4).prop_map(CpuDemand::Cids),
    ]
}

proptest! {
    /// Domains are bound one after another, and those that don't fit are skipped.
    #[test]
    fn no_core_ever_has_two_owners_and_the_host_keeps_one(demands in prop::collection::vec(demand(), 1..8)) {
        let mut others: Vec<Bindings> = Vec::new();
        for (number, demand) in demands.into_iter().enumerate() {
            let all = mars_with(|mars| {
                mars.cpus = Some(demand.clone());
                mars.memory = Some(mib(1));
            });
            let Ok(found) = planned(&all, &others, None, &|_| true) else { continue };
            prop_assert!(others.iter().all(|other| other.id != found.id && other.cpus.is_disjoint(&found.cpus)));
            let is_whole = |core: &&Vec<u32>| core.iter().all(|cpu| found.cpus.contains(cpu));
            let cores = capacity().cores;
            let owned = cores.iter().filter(is_whole).count();
            prop_assert_eq!(found.cpus.len(), 2 * owned, "not all threads of a core");
            match &demand {
                CpuDemand::Vcpus(count) => prop_assert_eq!((found.vcpus, owned), (*count, 0)),
                dedicated => prop_assert_eq!((found.vcpus, owned), (dedicated.count() * 2, dedicated.count() as usize)),
            }
            others.push(Bindings { domain: name(&format!("d{number}")), ..found });
        }
        let taken: BTreeSet<u32> = others.iter().flat_map(|other| &other.cpus).copied().collect();
        prop_assert!(capacity().cores.iter().any(|core| core.iter().all(|cpu| !taken.contains(cpu))));
    }

    #[test]
    fn whole_cores_are_refused_exactly_if_too_few_are_free(wanted in 1..6u32, others in prop::collection::btree_set(0..4usize, 0..4)) {
        let cores = capacity().cores;
        let others: Vec<Bindings> =
            others.iter().map(|core| bound(&format!("d{core}"), &cores[*core], ByteSize(0))).collect();
        let all = mars_with(|mars| mars.cpus = Some(CpuDemand::Cores(wanted)));
        let free = cores.len() - others.len() - CPUS_OF_PRIMARY.min(cores.len() - others.len());
        prop_assert_eq!(planned(&all, &others, None, &|_| true).is_ok(), wanted as usize <= free);
    }
}

#[test]
fn a_domain_that_is_bound_again_keeps_its_number_and_its_port() {
    let mut all = configuration();
    add_service(&mut all, "console", "5000-5003");
    let mut others: Vec<Bindings> = (2..4).map(|id| Bindings { id, ..bound(&format!("d{id}"), &[], mib(1)) }).collect();
    let first = planned(&all, &others, None, &|port| port != 5000).expect("there is room");
    assert_eq!((first.id, first.console.as_ref().map(|console| console.port)), (4, Some(5001)));
    others.remove(0);
    // Its own port is in use, by its own console.
    let again = planned(&all, &others, Some(&first), &|port| port != 5001).expect("there is room");
    assert_eq!((again.id, again.console), (4, first.console));
    assert_eq!(planned(&all, &others, None, &|_| true).expect("there is room").id, 2, "the lowest free number");
}

fn add_service(all: &mut Configuration, service: &str, ports: &str) {
    let ports = ports.parse().expect("a range");
    let new = ConsoleService { domain: name(PRIMARY), ports, users: None };
    all.add_console_service(&name(service), new).expect("it is new");
}

fn console_at(service: &str, group: &str, port: u16) -> Bindings {
    let console = BoundConsole { service: name(service), group: name(group), port };
    Bindings { console: Some(console), ..bound("venus", &[], mib(1)) }
}

fn asking(service: Option<&str>, group: Option<&str>, port: Option<u16>) -> VirtualConsole {
    VirtualConsole { service: service.map(name), group: group.map(name), port }
}

/// Services `a` with two ports and `b` with one; `reserved` configures port 5001 for a domain that isn't bound.
fn port_of(wanted: VirtualConsole, others: &[Bindings], reserved: bool) -> Result<Option<u16>, String> {
    let mut all = configuration();
    add_service(&mut all, "a", "5000-5001");
    add_service(&mut all, "b", "6000-6000");
    add_domain(&mut all, "pluto");
    all.domains.get_mut(&name("mars")).expect("it is there").console = wanted;
    all.domains.get_mut(&name("pluto")).expect("it is there").console.port = reserved.then_some(5001);
    let found = planned(&all, others, None, &|_| true)?;
    Ok(found.console.map(|console| console.port))
}

#[test]
fn a_console_gets_its_specified_port_its_groups_or_the_first_free_one() {
    let (a, venus) = (|| Some("a"), [console_at("a", "venus", 5000)]);
    let cases = [
        (asking(None, None, None), &[][..], false, Ok(None), "two services, and none is named"),
        (asking(a(), None, None), &[], false, Ok(Some(5000)), "the first"),
        (asking(a(), None, None), &venus, false, Ok(Some(5001)), "venus has the first"),
        (asking(a(), Some("venus"), None), &venus, false, Ok(Some(5000)), "it is in that group"),
        (asking(Some("b"), Some("venus"), None), &venus, false, Ok(Some(6000)), "a group of another service"),
        (asking(a(), None, Some(7000)), &venus, false, Ok(Some(7000)), "outside the range"),
        (asking(a(), None, None), &venus, true, Err("a has no free port in 5000-5001"), "pluto has the other one"),
        (asking(a(), None, Some(5000)), &venus, false, Err("on port 5000: the group venus has it"), "venus has it"),
        (
            asking(Some("b"), Some("venus"), Some(5000)),
            &venus,
            false,
            Err("on port 5000: the group venus has it"),
            "the group has the same name, and is of another service",
        ),
    ];
    for (wanted, others, reserved, expected, why) in cases {
        match (port_of(wanted, others, reserved), expected) {
            (Err(told), Err(expected)) => assert!(told.contains(expected), "{why}: {told}"),
            (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{why}"),
        }
    }
}

const ABLE: SwitchAbilities = SwitchAbilities { vlans: true, guards_addresses: true };

fn nic_steps_of(change: VnetChange, abilities: SwitchAbilities) -> Vec<DomainStep> {
    let mut all = configuration();
    all.set_vnet(&name("mars"), &name("net0"), change).expect("possible");
    nic_steps(&mars(&all), &all, abilities, |_| Ok(Some("eno1".to_owned()))).expect("its switch exists")
}

fn tap_of(change: VnetChange, abilities: SwitchAbilities) -> CreateTap {
    match nic_steps_of(change, abilities).swap_remove(0) {
        DomainStep::CreateTap(tap) => tap,
        other => panic!("{other:?} comes first"),
    }
}

#[test]
fn a_port_is_restricted_to_what_the_switch_can_check() {
    let none = VnetChange::default;
    let open = VnetChange { protection: Some(VnetProtection::Off), ..none() };
    let no_vlans = SwitchAbilities { vlans: false, ..ABLE };
    let no_guard = SwitchAbilities { guards_addresses: false, ..ABLE };
    for (change, abilities, has_vlans, guarded) in
        [(none(), ABLE, true, 1), (none(), no_vlans, false, 1), (none(), no_guard, true, 0), (open, ABLE, true, 0)]
    {
        let tap = tap_of(change, abilities);
        assert_eq!((tap.vlans.is_some(), tap.macs.len()), (has_vlans, guarded), "{abilities:?}");
        assert_eq!((tap.mark.as_str(), tap.uplink.as_deref()), ("vtax-ldm:mars", Some("eno1")));
    }
}

#[test]
fn a_port_has_the_vlans_and_the_mtu_of_its_vnet_or_else_of_the_switch() {
    let vids = Some([5, 6].map(vlan).into());
    let own = VnetChange { pvid: Some(vlan(3)), vids, mtu: Some(mtu(9000)), ..VnetChange::default() };
    for (change, expected_mtu, pvid, vids) in
        [(VnetChange::default(), mtu(1500), vlan(1), &[][..]), (own, mtu(9000), vlan(3), &[vlan(5), vlan(6)])]
    {
        let tap = tap_of(change, ABLE);
        let set = PortVlanSet { pvid, vids: vids.iter().copied().collect() };
        assert_eq!((tap.mtu, tap.vlans), (expected_mtu, Some(set)));
    }
}

#[test]
fn a_limit_follows_its_tap_through_a_link_of_the_same_number() {
    let change = VnetChange { maxbw: Some("1G".parse().expect("a rate")), ..VnetChange::default() };
    let steps: Vec<String> = nic_steps_of(change.clone(), ABLE).iter().map(vtax_journal::Step::describe).collect();
    assert_eq!(steps, ["tap vnet2.0, port of vsw0, mtu 1500", "limit of vnet2.0: 1 Gbit/s"]);
    match nic_steps_of(change, ABLE).swap_remove(1) {
        DomainStep::LimitTap(limit) => {
            assert_eq!((limit.through.as_str(), limit.mark.as_str()), ("ifb2.0", "vtax-ldm:mars"))
        }
        other => panic!("{other:?}"),
    }
}

/// A guest that serves a switch forwards other domains' frames, in any VLAN of the switch.
#[test]
fn the_port_of_a_guest_that_serves_a_switch_is_in_all_vlans_and_sends_from_any_address() {
    let mut all = configuration();
    let change =
        SwitchChange { net_dev: Some("eth1".to_owned()), vids: Some([7].map(vlan).into()), ..Default::default() };
    add_switch(&mut all, "lan", "mars", change);
    add_switch(&mut all, "isolated", "mars", SwitchChange::default());
    let new = VnetChange { pvid: Some(vlan(9)), switch: Some(name("lan")), ..VnetChange::default() };
    all.set_vnet(&name("mars"), &name("net0"), new).expect("possible");
    let found = mars(&all);
    let served: Vec<(&str, &str)> =
        found.served.iter().map(|served| (served.switch.as_str(), served.tap.as_str())).collect();
    assert_eq!(served, [("lan", "vsw2.0")], "a switch without a link to the outside needs no guest");
    let steps = nic_steps(&found, &all, ABLE, |_| Ok(None)).expect("its switches exist");
    let DomainStep::CreateTap(tap) = &steps[0] else { panic!("{:?} comes first", steps[0]) };
    let vlans = tap.vlans.clone().expect("the switch has VLANs");
    assert_eq!((tap.link.as_str(), tap.macs.len()), ("vsw2.0", 0));
    assert!([1, 7, 9].map(vlan).iter().all(|vlan| vlans.vids.contains(vlan) || vlans.pvid == *vlan), "{vlans:?}");
}

#[test]
fn each_nic_has_its_own_slot_with_all_vnets_and_served_switches() {
    let mut all = configuration();
    (1..VirtualNic::MOST).for_each(|number| add_vnet(&mut all, &format!("net{number}"), VnetChange::default()));
    for number in 0..Configuration::MOST_SERVED {
        let change = SwitchChange { net_dev: Some(format!("eth{number}")), ..SwitchChange::default() };
        add_switch(&mut all, &format!("lan{number}"), "mars", change);
    }
    let started = launched(&mars(&all), &all);
    let slots: BTreeSet<u8> = started.nics.iter().filter_map(|nic| nic.slot).collect();
    assert_eq!(slots.len(), VirtualNic::MOST as usize + Configuration::MOST_SERVED);
    assert!(slots.iter().all(|slot| (12..31).contains(slot)), "{slots:?}");
}

#[test]
fn the_number_of_a_vnet_is_its_slot_whatever_was_removed_before_it() {
    let mut all = configuration();
    add_vnet(&mut all, "net1", VnetChange::default());
    let number = |all: &Configuration| {
        let started = launched(&mars(all), all);
        let nic = started.nics.into_iter().last().expect("it has one");
        (nic.slot, nic.mac, nic.host_mtu)
    };
    let before = number(&all);
    all.remove_vnet(&name("mars"), &name("net0")).expect("it is there");
    assert_eq!(number(&all), before);
}

/// Parts that were plugged in while it ran are restored through its constraints.
#[test]
fn a_domain_is_started_only_with_the_parts_that_it_was_bound_with() {
    let mut all = configuration();
    for (device, kind) in [("pci_1/04", DeviceKind::Pcie), ("vf1", DeviceKind::Vf)] {
        let device = DomainDevice { name: device.to_owned(), kind, settings: FunctionSettings::default() };
        all.domains.get_mut(&name("mars")).expect("it is there").io.push(device);
    }
    let mut own = mars(&all);
    own.constraints.disks = vec![bound_disk("vol1", 0).disk];
    own.devices = vec![device("pci_1/04", None), device("vf1", Some(0)), device("plugged", Some(1))];
    own.disks = vec![bound_disk("vol1", 0), bound_disk("vol2", 1)];
    let started = launched(&own, &all);
    assert_eq!((started.devices.len(), started.removable.len()), (1, 1));
    assert_eq!(started.spare_ports, SPARE_PORTS + 1, "the slot of the function that can be unplugged");
    let disks: Vec<u32> = started.disks.disks.iter().map(|disk| disk.port).collect();
    assert_eq!((disks, started.disks.ports), (vec![0], 5));
    assert!(started.paused && started.has_events, "its supervisor starts its CPUs");
    assert_eq!((started.vcpus, started.memory), (2, mib(128)));
}

#[test]
fn a_vnet_without_its_switch_prevents_the_start() {
    let all = configuration();
    let own = mars(&all);
    let gone = Configuration::new("sun");
    assert!(matches!(launch(&own, &gone, engine()), Err(BindError::Domain(_))));
    assert!(matches!(nic_steps(&own, &gone, ABLE, |_| Ok(None)), Err(BindError::Domain(_))));
}

#[test]
fn the_address_of_a_served_switch_differs_from_every_vnets() {
    let mut all = configuration();
    let change = SwitchChange { net_dev: Some("eth1".to_owned()), ..SwitchChange::default() };
    add_switch(&mut all, "lan", "mars", change);
    let found = mars(&all);
    let vnets: Vec<Mac> = found.constraints.vnets.iter().map(|vnet| vnet.mac).collect();
    assert!(!vnets.contains(&found.served[0].mac));
}
