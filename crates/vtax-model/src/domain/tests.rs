use proptest::prelude::*;

use super::*;
use crate::{guest::Mac, method::Failover, units::Mtu, vf::Vlan};

fn console_service(ports: PortRange) -> ConsoleService {
    ConsoleService { domain: name(PRIMARY), ports, users: None }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn vlan(number: i64) -> Vlan {
    Vlan::try_from(number).expect("a VLAN")
}

fn switch(name_: &str, net_dev: Option<&str>) -> NewSwitch {
    let change = SwitchChange { net_dev: net_dev.map(str::to_owned), ..SwitchChange::default() };
    NewSwitch { name: name(name_), service: name(PRIMARY), default_vlan: None, change }
}

fn vnet(name_: &str, switch: &str, domain: &str, change: VnetChange) -> NewVnet {
    NewVnet { name: name(name_), switch: name(switch), domain: name(domain), change }
}

/// The domains, switch and vnets of the article on virtual networks.
fn planets() -> Configuration {
    let mut all = Configuration::new("sun");
    for domain in ["mars", "venus"] {
        all.add_domain(&name(domain)).expect("it is new");
        all.add_vnet(vnet("admin-net", "admin-vsw", domain, VnetChange::default())).expect_err("no switch yet");
    }
    all.add_switch(switch("admin-vsw", Some("nxge2"))).expect("it is new");
    for domain in ["mars", "venus"] {
        all.add_vnet(vnet("admin-net", "admin-vsw", domain, VnetChange::default())).expect("it is new");
    }
    all
}

#[test]
fn addresses_are_chosen_kept_and_given_again() {
    let mut all = planets();
    let mac = |all: &Configuration, domain: &str| all.vnet(&name(domain), &name("admin-net")).expect("it is there").mac;
    let (mars, venus) = (mac(&all, "mars"), mac(&all, "venus"));
    assert_ne!(mars, venus);
    all.remove_vnet(&name("mars"), &name("admin-net")).expect("it is there");
    all.add_vnet(vnet("admin-net", "admin-vsw", "mars", VnetChange::default())).expect("it is new");
    assert_eq!(mac(&all, "mars"), mars);
    let given: Mac = "0:14:4f:f9:c4:13".parse().expect("digits may be single");
    let change = VnetChange { mac: Some(given), ..VnetChange::default() };
    all.set_vnet(&name("mars"), &name("admin-net"), change.clone()).expect("nobody has it");
    assert_eq!(mac(&all, "mars").to_string(), "00:14:4f:f9:c4:13");
    let error = all.set_vnet(&name("venus"), &name("admin-net"), change).expect_err("mars has it");
    assert!(error.to_string().contains("admin-net of mars already has the address 00:14:4f:f9:c4:13"), "{error}");
}

#[test]
fn further_addresses_stay_when_they_are_asked_for_again() {
    let mut all = planets();
    let ask = |all: &mut Configuration| {
        let change = VnetChange { alt_macs: Some([AltMac::Auto; 2].into()), ..VnetChange::default() };
        all.set_vnet(&name("mars"), &name("admin-net"), change).expect("they are free");
        all.vnet(&name("mars"), &name("admin-net")).expect("it is there").macs().collect::<Vec<_>>()
    };
    let first = ask(&mut all);
    assert_eq!(first.len(), 3);
    assert_eq!(ask(&mut all), first);
}

#[test]
fn a_vnet_has_the_mtu_and_vlan_of_its_switch_unless_it_has_its_own() {
    let mut all = planets();
    let change = SwitchChange { mtu: Some(Mtu::try_from(9000).expect("an MTU")), ..SwitchChange::default() };
    all.set_switch(&name("admin-vsw"), change).expect("it is possible");
    let of = |all: &Configuration| {
        let vnet = all.vnet(&name("venus"), &name("admin-net")).expect("it is there");
        let switch = all.switch(&vnet.switch).expect("it is there");
        (vnet.mtu_on(switch).get(), vnet.pvid_on(switch).get())
    };
    assert_eq!(of(&all), (9000, 1));
    let own = VnetChange {
        mtu: Some(Mtu::ETHERNET),
        pvid: Some(vlan(33)),
        vids: Some([vlan(44)].into()),
        ..VnetChange::default()
    };
    all.set_vnet(&name("venus"), &name("admin-net"), own).expect("it is possible");
    assert_eq!(of(&all), (1500, 33));
}

#[test]
fn an_impossible_change_is_named_and_changes_nothing() {
    let mut all = planets();
    all.add_console_service(&name("console"), console_service(PortRange::USUAL)).expect("it is new");
    let console = |group: &str, port| VirtualConsole { service: None, group: Some(name(group)), port };
    all.set_console(&name("mars"), console("planets", Some(5002))).expect("it is free");
    let before = all.clone();
    let mtu = |mtu: i64| SwitchChange { mtu: Mtu::try_from(mtu).ok(), ..SwitchChange::default() };
    let id = |id| VnetChange { id: Some(id), ..VnetChange::default() };
    let gib = ByteSize(1 << 30);
    type Refused<'a> = Box<dyn FnOnce(&mut Configuration) -> Result<(), DomainError> + 'a>;
    let refused: Vec<Refused> = vec![
        Box::new(|all| all.add_domain(&name("mars"))),
        Box::new(|all| all.add_domain(&name(PRIMARY))),
        Box::new(|all| all.remove_domain(&name("mras"))),
        Box::new(|all| all.set_memory(&name(PRIMARY), gib)),
        Box::new(|all| all.set_memory(&name("mars"), ByteSize(1 << 20))),
        Box::new(|all| all.set_cpus(&name("mars"), CpuDemand::Cores(0))),
        Box::new(|all| all.set_variable(&name("mars"), Variable::BootArgs, "two\nlines".to_owned())),
        Box::new(|all| all.set_variable(&name("mars"), Variable::BootArgs, "no\u{ffff}text".to_owned())),
        Box::new(|all| all.add_switch(switch("admin-vsw", None))),
        Box::new(|all| all.add_switch(switch("other-vsw", Some("nxge2")))),
        Box::new(|all| all.add_switch(switch("other-vsw", Some("no link")))),
        Box::new(|all| {
            let service = ConsoleService { domain: name("mars"), ..console_service("5400-5500".parse()?) };
            all.add_console_service(&name("other"), service)
        }),
        Box::new(|all| all.add_switch(NewSwitch { service: name("mras"), ..switch("mars-vsw", None) })),
        Box::new(|all| all.add_switch(switch("other-vsw", Some("02:00:5e:10:00:01")))),
        Box::new(|all| all.set_switch(&name("admin-vsw"), mtu(1499))),
        Box::new(|all| all.set_switch(&name("admin-vsw"), mtu(16_001))),
        Box::new(|all| all.remove_switch(&name("admin-vsw"))),
        Box::new(|all| all.add_vnet(vnet("admin-net", "admin-vsw", "mars", VnetChange::default()))),
        Box::new(|all| all.add_vnet(vnet("net1", "admin-wsv", "mars", VnetChange::default()))),
        Box::new(|all| all.add_vnet(vnet("net1", "admin-vsw", "mars", id(0)))),
        Box::new(|all| all.add_vnet(vnet("net1", "admin-vsw", "mars", id(16)))),
        Box::new(|all| all.add_console_service(&name("other"), console_service("5100-5300".parse()?))),
        Box::new(|all| all.set_console_service(&name("console"), Some("5100-5000".parse()?), None)),
        Box::new(|all| all.set_console_service(&name("console"), None, Some([": passwd".parse::<UserName>()?].into()))),
        Box::new(|all| all.set_console(&name("venus"), console("venus", Some(5002)))),
        Box::new(|all| all.set_console(&name("venus"), console("venus", Some(80)))),
        Box::new(|all| all.set_masters(&name("venus"), vec![name("mars"); 5])),
        Box::new(|all| all.set_masters(&name("venus"), vec![name("venus")])),
    ];
    let told: Vec<String> = refused.into_iter().map(|edit| edit(&mut all).expect_err("refused").to_string()).collect();
    assert_eq!(all, before);
    insta::assert_snapshot!(told.join("\n"));
}

const PF: &str = "pci_1/slot0/PF1";
const VF: &str = "pci_1/slot0/PF1.VF0";

#[test]
fn a_device_has_one_owner_and_so_has_what_is_below_it() {
    let mut all = planets();
    let (primary, mars) = (name(PRIMARY), name("mars"));
    assert_eq!(all.owner_of("pci_3"), DeviceOwner::Primary);
    all.remove_device(&primary, "pci_3").expect("it is primary's");
    assert_eq!([all.owner_of("pci_3/slot8"), all.owner_of("pci_30")], [DeviceOwner::Nobody, DeviceOwner::Primary]);
    all.add_device(&mars, "pci_3", DeviceKind::Bus).expect("nobody has it");
    assert_eq!(all.owner_of("pci_3/slot8/PF0.VF1"), DeviceOwner::Domain(&mars));
    all.add_device(&mars, VF, DeviceKind::Vf).expect("primary has its physical function");
    let depends: Vec<String> =
        all.dependencies().iter().map(|found| format!("{} {}", found.kind, found.device)).collect();
    assert_eq!(depends, ["VNET admin-vsw/admin-net", "IOV pci_1/slot0/PF1.VF0", "VNET admin-vsw/admin-net"]);
    assert_eq!(all.clone().rebuilt("sun").expect("it is as it was"), all);

    all.remove_device(&mars, "pci_3").expect("it has it");
    assert_eq!(all.owner_of("pci_3"), DeviceOwner::Nobody);
    all.add_device(&primary, "pci_3", DeviceKind::Bus).expect("nobody has it");
    assert_eq!(all.owner_of("pci_3"), DeviceOwner::Primary);
}

#[test]
fn a_virtual_function_keeps_its_address_with_any_owner() {
    let mut all = planets();
    let settings = |all: &Configuration, domain: &str| all.domain(&name(domain)).expect("there").io[0].settings;
    all.add_device(&name("mars"), VF, DeviceKind::Vf).expect("it is free");
    let chosen = settings(&all, "mars").mac_addr.expect("vtax has chosen one");
    let change = FunctionChange { pvid: Some(Some(vlan(7))), ..FunctionChange::default() };
    all.set_function(VF, change).expect("it is possible");
    assert_eq!(settings(&all, "mars"), FunctionSettings { mac_addr: Some(chosen), pvid: Some(vlan(7)), mtu: None });
    all.remove_device(&name("mars"), VF).expect("it has it");
    all.add_device(&name("venus"), VF, DeviceKind::Vf).expect("it is free");
    assert_eq!((settings(&all, "venus").mac_addr, settings(&all, "venus").pvid), (Some(chosen), Some(vlan(7))));
    let none = FunctionChange { pvid: Some(None), ..FunctionChange::default() };
    all.set_function(VF, none).expect("it is possible");
    assert_eq!(settings(&all, "venus").pvid, None);
    let taken = VnetChange { mac: Some(chosen), ..VnetChange::default() };
    let error = all.set_vnet(&name("mars"), &name("admin-net"), taken).expect_err("the function has it").to_string();
    assert!(error.contains(&format!("{VF} of venus already has the address")), "{error}");
    all.forget_functions(PF);
    assert!(all.devices.functions.is_empty());
}

#[test]
fn devices_that_cannot_be_given_are_named_with_who_has_them() {
    let mut all = planets();
    let (primary, mars, venus) = (name(PRIMARY), name("mars"), name("venus"));
    all.remove_device(&primary, "pci_3/slot8").expect("it is primary's");
    all.remove_device(&primary, "pci_2/slot3").expect("it is primary's");
    all.add_device(&mars, "pci_3/slot8", DeviceKind::Pcie).expect("nobody has it");
    all.add_device(&mars, VF, DeviceKind::Vf).expect("it is free");
    all.set_iov("pci_0", false).expect("nobody has said it");
    let before = all.clone();
    type Refused<'a> = Box<dyn FnOnce(&mut Configuration) -> Result<(), DomainError> + 'a>;
    let refused: Vec<Refused> = vec![
        Box::new(|all| all.add_device(&name("mras"), "pci_2/slot3", DeviceKind::Pcie)),
        Box::new(|all| all.add_device(&mars, VF, DeviceKind::Vf)),
        Box::new(|all| all.add_device(&venus, VF, DeviceKind::Vf)),
        Box::new(|all| all.add_device(&venus, "pci_3", DeviceKind::Bus)),
        Box::new(|all| all.add_device(&venus, "pci_1/slot0", DeviceKind::Pcie)),
        Box::new(|all| all.add_device(&venus, "pci_2", DeviceKind::Bus)),
        Box::new(|all| all.add_device(&venus, "pci_2/slot3/PF0.VF0", DeviceKind::Vf)),
        Box::new(|all| all.add_device(&venus, "pci_0/slot1/PF0.VF0", DeviceKind::Vf)),
        Box::new(|all| all.add_device(&primary, "pci_0", DeviceKind::Bus)),
        Box::new(|all| all.remove_device(&primary, "pci_3")),
        Box::new(|all| all.remove_device(&primary, "pci_2/slot3/PF0")),
        Box::new(|all| all.remove_device(&mars, "pci_2/slot3")),
        Box::new(|all| all.remove_device(&venus, "pci_2/slot3")),
        Box::new(|all| all.set_iov("pci_0", false)),
        Box::new(|all| all.set_iov("pci_1", false)),
    ];
    let told: Vec<String> = refused.into_iter().map(|edit| edit(&mut all).expect_err("refused").to_string()).collect();
    assert_eq!(all, before);
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn domains_of_another_configuration_are_added_all_or_none() {
    let all = planets();
    let mut here = Configuration::new("sun");
    let error = here.clone().add_domains_of(&all).expect_err("their switch isn't here").to_string();
    assert!(error.contains("there is no switch `admin-vsw`"), "{error}");
    here.add_switch(switch("admin-vsw", None)).expect("it is new");
    here.add_domains_of(&all).expect("their names and addresses are free");
    assert_eq!(here.domains, all.domains);
    let error = here.add_domains_of(&all).expect_err("they are there").to_string();
    assert!(error.contains("the domain `mars` already exists"), "{error}");
}

#[test]
fn the_settings_of_domains_are_those_of_another_configuration() {
    let (mars, venus) = (name("mars"), name("venus"));
    let (mut here, mut there) = (planets(), planets());
    here.set_masters(&mars, vec![venus.clone()]).expect("no cycle");
    there.set_masters(&venus, vec![mars.clone()]).expect("no cycle");
    there.set_failure_policy(&mars, FailurePolicy::Reset).expect("it is there");
    there.set_autostart(&venus, true).expect("it is there");
    there.set_cpus(&mars, CpuDemand::Cores(2)).expect("possible");
    here.set_domains_of(&there).expect("both are there");
    assert_eq!((here.domains[&mars].masters.as_slice(), &here.domains[&mars].cpus), (&[][..], &None));
    assert_eq!(here.domains[&mars].failure_policy, FailurePolicy::Reset);
    assert_eq!((here.domains[&venus].masters.as_slice(), here.domains[&venus].autostart), (&[mars][..], true));
    there.add_domain(&name("pluto")).expect("it is new");
    assert!(here.set_domains_of(&there).is_err(), "pluto isn't here");
}

#[test]
fn a_vnet_moves_to_another_switch_with_its_address() {
    let mut all = planets();
    all.add_switch(switch("test-vsw", None)).expect("it is new");
    let (mars, net) = (name("mars"), name("admin-net"));
    let had = all.vnet(&mars, &net).expect("it is there").clone();
    let to = |switch: &str| VnetChange { switch: Some(name(switch)), ..VnetChange::default() };
    assert!(all.set_vnet(&mars, &net, to("no-vsw")).is_err());
    assert_eq!(all.vnet(&mars, &net), Ok(&had));
    all.set_vnet(&mars, &net, to("test-vsw")).expect("it is there");
    assert_eq!(all.vnet(&mars, &net), Ok(&VirtualNic { switch: name("test-vsw"), ..had }));
}

#[test]
fn a_guest_serves_switches_on_its_own_links() {
    let mut all = planets();
    let served = |number: u32| {
        let link = if number == 0 { "2:0:5e:10:0:1".to_owned() } else { format!("eth{number}") };
        NewSwitch { service: name("mars"), ..switch(&format!("outer{number}"), Some(&link)) }
    };
    (0..3).try_for_each(|number| all.add_switch(served(number))).expect("as many as can be");
    let error = all.add_switch(served(3)).expect_err("one too many").to_string();
    assert!(error.contains("switches of one guest"), "{error}");
    let mars = name("mars");
    assert_eq!(all.served_by(&mars).map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["outer0", "outer1", "outer2"]);
    assert!(all.switches.iter().all(|(_, switch)| switch.is_of_primary() == switch.host_link().is_some()));

    let vlans = VnetChange { pvid: Some(vlan(33)), vids: Some([vlan(44)].into()), ..VnetChange::default() };
    all.add_vnet(vnet("outer-net", "outer1", "venus", vlans)).expect("a port of it");
    let outer = name("outer1");
    assert_eq!(all.vlans_of(&outer, &all.switches[&outer]), [vlan(1), vlan(33), vlan(44)].into());
    assert_ne!(all.served_mac(&mars, &outer), all.served_mac(&mars, &name("outer2")));
    let on = |it: &DomainDependency| (it.domain.to_string(), it.on.to_string(), it.device.clone());
    let needed = ("venus".to_owned(), "mars".to_owned(), "outer1/outer-net".to_owned());
    assert!(all.dependencies().iter().map(on).any(|it| it == needed), "{:?}", all.dependencies());
    let error = all.remove_domain(&mars).expect_err("it serves").to_string();
    assert!(error.contains("mars still runs the service outer0"), "{error}");
    assert_eq!(all.clone().rebuilt("sun"), Ok(all));
}

#[test]
fn masters_in_a_circle_are_refused() {
    let mut all = Configuration::new("sun");
    for domain in ["counter", "other"] {
        all.add_domain(&name(domain)).expect("it is new");
    }
    all.set_masters(&name("counter"), vec![name(PRIMARY)]).expect("primary has no master");
    all.set_masters(&name("other"), vec![name("counter")]).expect("no circle");
    let error = all.set_masters(&name(PRIMARY), vec![name("counter")]).expect_err("a circle").to_string();
    assert_eq!(error, "Dependency cycle detected: LDom \"counter\" indicates \"primary\" as its master");
    let error = all.set_masters(&name(PRIMARY), vec![name("other")]).expect_err("a longer circle").to_string();
    assert!(error.contains("\"counter\" indicates \"primary\""), "{error}");
    all.set_masters(&name("counter"), Vec::new()).expect("nothing is in the way");
    all.set_masters(&name(PRIMARY), vec![name("other")]).expect("no circle");
    let error = all.set_masters(&name("counter"), vec![name(PRIMARY)]).expect_err("the same circle").to_string();
    assert!(error.contains("\"other\" indicates \"counter\""), "{error}");
    let mut others = all.clone();
    others.set_masters(&name(PRIMARY), Vec::new()).expect("nothing is in the way");
    let both = others.domains.keys().cloned().collect::<Vec<_>>();
    others.remove_domains(&both).expect("no master is left alone");
    assert!(others.domains.is_empty());
    let error = all.remove_domains(&[name("counter")]).expect_err("it is a master").to_string();
    assert!(error.contains("other has counter as a master"), "{error}");
}

#[test]
fn masters_are_started_before_those_that_depend_on_them() {
    let mut all = Configuration::new("sun");
    for domain in ["a", "b", "c", "d"] {
        all.add_domain(&name(domain)).expect("it is new");
        all.set_autostart(&name(domain), domain != "d").expect("possible");
    }
    all.set_masters(&name("a"), vec![name("d"), name("c")]).expect("no circle");
    all.set_masters(&name("c"), vec![name("b"), name(PRIMARY)]).expect("no circle");
    assert_eq!(all.autostarted(), [&name("b"), &name("c"), &name("a")]);
    assert_eq!(all.domains_by_masters(), [&name("d"), &name("b"), &name("c"), &name("a")]);
    assert_eq!(all.set_autostart(&name(PRIMARY), true), Err(DomainError::Primary));
    assert_eq!(all.clone().rebuilt("sun"), Ok(all));
}

#[test]
fn a_master_that_has_moved_remains_one_without_blocking_others() {
    let mut all = Configuration::new("sun");
    ["mars", "venus"].iter().for_each(|domain| all.add_domain(&name(domain)).expect("it is new"));
    all.set_masters(&name("mars"), vec![name("venus")]).expect("no circle");
    let before = all.clone();
    all.remove_moved_domain(&name("venus")).expect("its slave keeps it");
    assert_eq!((all.domains_by_masters(), all.slaves(&name("venus")).count()), (vec![&name("mars")], 1));
    all.add_domain(&name("venus")).expect("it returns");
    assert_eq!(all, before);
    all.remove_moved_domain(&name("venus")).expect("its slave keeps it");
    all.remove_domains(&[name("mars")]).expect("its master is not here");
    assert!(all.remove_moved_domain(&name(PRIMARY)).is_err() && all.remove_moved_domain(&name("mars")).is_err());
}

#[test]
fn dependencies_follow_from_the_switches() {
    let told: Vec<String> = planets()
        .dependencies()
        .iter()
        .map(|it| format!("{} {} {} {}", it.domain, it.on, it.kind, it.device))
        .collect();
    assert_eq!(told, ["mars primary VNET admin-vsw/admin-net", "venus primary VNET admin-vsw/admin-net"]);
}

/// A change with few names, so that most affect the results of other changes.
fn any_change() -> impl Strategy<Value = (u8, u8, u8, u8)> {
    (0u8..9, 0u8..3, 0u8..3, 0u8..4)
}

fn attempt(all: &mut Configuration, (what, domain, object, value): (u8, u8, u8, u8)) -> Result<(), DomainError> {
    let (domain, object) = (name(["mars", "venus", PRIMARY][domain as usize]), name(["a", "b", "c"][object as usize]));
    let mac = Mac::of(&["m", &value.to_string()]);
    let auto = std::iter::repeat_n(AltMac::Auto, value.into()).collect();
    match what {
        0 => all.add_domain(&domain),
        1 => all.remove_domain(&domain),
        2 => all
            .add_switch(NewSwitch { service: domain, ..switch(object.as_str(), Some(["x", "y"][value as usize % 2])) }),
        3 => all.remove_switch(&object),
        4 => all.add_vnet(vnet(
            object.as_str(),
            "a",
            domain.as_str(),
            VnetChange { id: Some(value.into()), ..VnetChange::default() },
        )),
        5 => {
            all.set_vnet(&domain, &object, VnetChange { mac: Some(mac), alt_macs: Some(auto), ..VnetChange::default() })
        }
        6 => all.remove_vnet(&domain, &object),
        7 => all.set_masters(&domain, vec![object]),
        _ => all
            .set_console(&domain, VirtualConsole { port: Some(5000 + u16::from(value)), ..VirtualConsole::default() }),
    }
}

proptest! {
    #[test]
    fn no_change_makes_two_the_same(changes in prop::collection::vec(any_change(), 0..60)) {
        let mut all = Configuration::new("sun");
        for change in changes {
            let before = all.clone();
            if attempt(&mut all, change).is_err() {
                prop_assert_eq!(&all, &before, "a refused change has changed something");
            }
            let mut macs: Vec<Mac> = all.domains.values().flat_map(|it| &it.vnets).flat_map(VirtualNic::macs).collect();
            let count = macs.len();
            macs.sort();
            macs.dedup();
            prop_assert_eq!(macs.len(), count);
            for domain in all.domains.values() {
                let mut ids: Vec<u32> = domain.vnets.iter().map(|vnet| vnet.id).collect();
                ids.sort_unstable();
                ids.dedup();
                prop_assert_eq!(ids.len(), domain.vnets.len());
                prop_assert!(domain.vnets.iter().all(|vnet| all.switches.contains_key(&vnet.switch)));
            }
        }
        prop_assert_eq!(all.clone().rebuilt("sun"), Ok(all.clone()));
        let json = serde_json::to_string(&all).expect("it can be written");
        prop_assert_eq!(serde_json::from_str::<Configuration>(&json).expect("it can be read"), all);
    }
}

/// 512 domains with 16 vnets and 32 disks each, every disk with its own volume. Rebuilding takes minutes if each vnet
/// or disk is compared with all others.
#[test]
fn the_largest_configuration_is_made_anew() {
    let mut all = Configuration::new("sun");
    all.switches.insert(name("vsw0"), planets().switches[&name("admin-vsw")].clone());
    let mut service = DiskService { domain: name(PRIMARY), volumes: Default::default() };
    for domain in 0..Configuration::MOST_DOMAINS {
        let mut constraints = Constraints::default();
        for id in 0..VirtualNic::MOST {
            let nic = name(&format!("net{id}"));
            let mac = Mac::of(&[&domain.to_string(), &id.to_string()]);
            constraints.vnets.push(VirtualNic::new(nic, name("vsw0"), mac, id));
        }
        for id in 0..VirtualDisk::MOST {
            let volume = name(&format!("v{domain}-{id}"));
            let backend = format!("/dev/{volume}");
            let exported =
                Volume { backend, format: Default::default(), options: Default::default(), slice: None, mpgroup: None };
            service.volumes.insert(volume.clone(), exported);
            let volume = VolumeName { volume, service: name("vds0") };
            constraints.disks.push(VirtualDisk { name: name(&format!("disk{id}")), volume, id, timeout: None });
        }
        all.domains.insert(name(&format!("d{domain}")), constraints);
    }
    all.disk_services.insert(name("vds0"), service);
    assert_eq!(all.clone().rebuilt("sun").as_ref(), Ok(&all));

    let most = |what| format!("at most {what} are supported; remove one first");
    let mut many = all.clone();
    let new = |switch: String| NewSwitch {
        name: name(&switch),
        service: name(PRIMARY),
        default_vlan: None,
        change: Default::default(),
    };
    let refused = (0..1_000).find_map(|count| many.add_switch(new(format!("s{count}"))).err());
    assert_eq!(refused.map(|error| error.to_string()), Some(most("512 switches")));
    let alt_macs = Some([AltMac::Auto; VirtualNic::MOST_ALT_MACS + 1].into());
    let change = VnetChange { alt_macs, ..VnetChange::default() };
    let refused = all.set_vnet(&name("d7"), &name("net3"), change).expect_err("too many");
    assert_eq!(refused.to_string(), most("32 additional addresses of a vnet"));
    let volume = VolumeName { volume: name("one-more"), service: name("vds0") };
    let exported = all.disk_services[&name("vds0")].volumes[&name("v0-0")].clone();
    let refused = all.add_volume(&volume, Volume { backend: "/dev/more".into(), ..exported }).expect_err("too many");
    assert_eq!(refused.to_string(), most("16384 volumes"));
}

/// `set-io pvid=`, `add-io` in a running domain, `list-dependencies` and `list-io` treat devices by kind.
#[test]
fn the_table_of_capabilities_agrees_with_what_domains_do_with_devices() {
    for kind in [DeviceKind::Bus, DeviceKind::Pcie, DeviceKind::Vf] {
        let able = kind.capabilities();
        assert_eq!(able.vlan.is_of_functions(), kind == DeviceKind::Vf, "{kind}");
        assert_eq!(kind.is_hot_pluggable(), kind == DeviceKind::Vf, "{kind}");
        let mut all = planets();
        let (primary, mars) = (name(PRIMARY), name("mars"));
        let device = match kind {
            DeviceKind::Bus => "pci_3",
            DeviceKind::Pcie => "pci_3/slot8",
            DeviceKind::Vf => VF,
        };
        if kind != DeviceKind::Vf {
            all.remove_device(&primary, device).expect("it is primary's");
        }
        all.add_device(&mars, device, kind).expect("nobody has it");
        let depends = all.dependencies().iter().any(|found| found.device == device);
        assert_eq!(depends, able.failover != Failover::Nobody, "{kind}");
        assert_eq!(depends, kind != DeviceKind::Bus, "{kind}");
    }
}
