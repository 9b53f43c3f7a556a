//! Every method on one side and on both, compared with recorded facts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use vtax_model::{guest::Accelerator, located::Source, method::IoMethod, topology::Topology, units::ByteSize};
use vtax_step::{AddAddress, CreateLink, EnableLink, LinkRecipe, Place, Relay, StartGuest, StartRelay};

use super::*;
use crate::{
    blueprint::LabEndpoint,
    facts::{GuestFacts, InUse, PciFacts, QemuFacts, SystemFacts},
};
use vtax_guest::{
    LinkName,
    launch::{Boot, QemuProgram, Version},
};

mod guests;
pub(crate) mod nics;

/// A machine that has every kind of link, nothing in use, and all requirements of guests except KVM.
pub(crate) fn facts() -> Facts {
    Facts {
        kinds: Facts::KINDS.into_iter().map(|kind| (kind.to_owned(), None)).collect::<BTreeMap<_, _>>(),
        programs: Facts::PROGRAMS.map(|(name, _)| (name.to_owned(), format!("/usr/bin/{name}").into())).into(),
        in_use: Vec::new(),
        labs: Vec::new(),
        most_namespaces: 10_000,
        pci: PciFacts::default(),
        lent: BTreeMap::new(),
        ordinary_user: false,
        guests: Some(guest_facts()),
    }
}

fn guest_facts() -> GuestFacts {
    let program = QemuProgram {
        path: "/usr/bin/qemu-system-x86_64".into(),
        version: Version { major: 10, minor: 0 },
        sandbox: true,
        q35: None,
        qboot: None,
    };
    let devices = ["virtio-net-pci", "e1000e", "igb", "vmxnet3", "rtl8139"].map(str::to_owned).into();
    let no_kvm = Some("there is no /dev/kvm".to_owned());
    let system = |driver: &str| SystemFacts {
        system: Default::default(),
        driver: driver.to_owned(),
        boot: Ok(Boot::Kernel {
            kernel: "/boot/vmlinuz-6.12".into(),
            initramfs: format!("/cache/{driver}.cpio").into(),
            append: Vec::new(),
        }),
    };
    GuestFacts {
        qemu: Ok(QemuFacts { program, devices, accel: Accelerator::Tcg, no_kvm }),
        tap: Ok(()),
        macvtap: Ok(()),
        vhost: Ok(()),
        vhost_user: Vec::new(),
        systems: ["virtio_net", "e1000e", "igb", "vmxnet3", "8139cp"].map(system).into(),
        memory: ByteSize(4 << 30),
        huge_pages: ByteSize(0),
        cpus: vec![0, 1],
        nodes: vec![0],
        labs: "/run/vtax/labs".into(),
        disks: Default::default(),
        agent: "/usr/bin/vtax-agent".into(),
    }
}

const TWO_HOSTS: &str = r#"
[lab]
name = "rack"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
"#;

fn topology(text: &str) -> Topology {
    Topology::parse(Source { name: "lab.toml", text }).expect("a good file")
}

fn zone(name: &str, host: &str, method: IoMethod) -> String {
    format!("[[zone]]\nname = \"{name}\"\nhost = \"{host}\"\nmethod = \"{method}\"\n")
}

fn planned(text: &str) -> Plan {
    plan(&topology(text), &facts()).expect("a good lab")
}

fn refused(text: &str) -> String {
    plan(&topology(text), &facts()).expect_err("a bad lab").to_string()
}

const ZONE_METHODS: [IoMethod; 12] = [
    IoMethod::SharedIp,
    IoMethod::Veth,
    IoMethod::Bridge,
    IoMethod::Macvlan,
    IoMethod::Ipvlan,
    IoMethod::Vxlan,
    IoMethod::Exclusive,
    IoMethod::Nat,
    IoMethod::Published,
    IoMethod::PublishedProxy,
    IoMethod::Pasta,
    IoMethod::Slirp4netns,
];

#[test]
fn the_matrix() {
    insta::assert_snapshot!("native", planned(TWO_HOSTS));
    for method in ZONE_METHODS {
        let one = format!("{TWO_HOSTS}{}", zone("web", "sut", method));
        insta::assert_snapshot!(format!("{method}-one-side"), planned(&one));
        let both = format!("{one}{}", zone("db", "peer", method));
        insta::assert_snapshot!(format!("{method}-both-sides"), planned(&both));
    }
}

#[test]
fn a_lab_of_ipv6() {
    let rack = |more: &str| TWO_HOSTS.replace("name = \"rack\"", &format!("name = \"rack\"\n{more}"));
    let ipv6 = rack("family = \"ipv6\"");
    insta::assert_snapshot!("ipv6-veth", planned(&format!("{ipv6}{}", zone("web", "sut", IoMethod::Veth))));
    insta::assert_snapshot!("ipv6-vxlan", planned(&format!("{ipv6}{}", zone("web", "sut", IoMethod::Vxlan))));
    let named = planned(&rack("addresses = \"2001:db8::/120\""));
    assert_eq!(named.blueprint.addresses.to_string(), "2001:db8::/120");
    assert_eq!(refused(&rack("family = \"ipv6\"\nmtu = 1279")), "MTU 1279 is too small for IPv6; use 1280 or more");
    let narrow = format!("{}{}", rack("family = \"ipv6\"\nmtu = 1349"), zone("web", "sut", IoMethod::Vxlan));
    assert_eq!(
        refused(&narrow),
        "zone `web`: MTU 1349 is too small for a tunnel, which adds 70 bytes; use 1350 or more"
    );
    let both = rack("family = \"ipv4\"\naddresses = \"2001:db8::/120\"");
    let error = Topology::parse(Source { name: "lab.toml", text: &both }).expect_err("two families");
    assert_eq!(error.to_string(), "lab.toml:4: `family` is IPv4, and `addresses` are IPv6 (2001:db8::/120); omit one");
}

#[test]
fn two_zones_with_wires_to_a_switch() {
    let text = r#"
[lab]
name = "instances"
mtu = 9000
[[host]]
name = "sut"
[[host]]
name = "outside"
switch = true
[[wire]]
name = "w1"
ends = ["sut", "outside"]
[[wire]]
name = "w2"
ends = ["outside", "sut"]
[[zone]]
name = "sender"
host = "sut"
method = "exclusive"
wire = "w1"
[[zone]]
name = "receiver"
host = "sut"
method = "exclusive"
wire = "w2"
"#;
    let plan = planned(text);
    insta::assert_snapshot!(plan);
    let end = |name: &str| plan.blueprint.zone(&name.parse().unwrap()).unwrap();
    assert_eq!(
        path(&plan, end("sender"), end("receiver")),
        "sender/eth0 outside/wire0 outside/vsw0 outside/wire1 receiver/eth0"
    );
}

#[test]
fn a_wire_with_a_rate() {
    let shaped = |more: &str| TWO_HOSTS.replace("ends =", &format!("rate = \"1 Gbit/s\"\n{more}ends ="));
    let text = shaped("") + &zone("web", "sut", IoMethod::Bridge) + &zone("db", "peer", IoMethod::Macvlan);
    insta::assert_snapshot!(planned(&text));
    let plan = planned(&shaped("queue = \"64KiB\"\n"));
    let limits: Vec<String> =
        plan.steps.iter().map(ToString::to_string).filter(|step| step.contains("limit")).collect();
    assert_eq!(
        limits,
        ["sut", "peer"].map(|host| format!("limit of {host}/wire0: 1 Gbit/s, burst 64 KiB, queue 64 KiB"))
    );

    let mut facts = facts();
    facts.kinds.insert(Facts::RATE_LIMIT.into(), Some("this kernel has no tbf".into()));
    insta::assert_snapshot!(super::plan(&topology(&text), &facts).unwrap_err());
    assert!(super::plan(&topology(TWO_HOSTS), &facts).is_ok());
}

fn path(plan: &Plan, from: &LabEndpoint, to: &LabEndpoint) -> String {
    let places = plan.blueprint.path(from, to).expect("a wire joins them");
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn zones_of_one_host_have_their_own_ports() {
    let zones = zone("web", "sut", IoMethod::Published) + &zone("db", "sut", IoMethod::PublishedProxy);
    let plan = planned(&format!("{TWO_HOSTS}{zones}"));
    let ports = |name: &str| {
        let zone = plan.blueprint.zone(&name.parse().expect("a name")).expect("a zone");
        zone.published.clone().expect("ports").to_string()
    };
    assert_eq!(ports("web"), "198.18.0.1:20000-20001 to ports 8080-8081");
    assert_eq!(ports("db"), "198.18.0.1:20002-20003 to ports 8080-8081");
}

#[test]
fn missing_programs_of_container_networks_are_named_with_their_package() {
    let refused = |method: IoMethod, change: fn(&mut Facts)| {
        let mut facts = facts();
        change(&mut facts);
        let planned = plan(&topology(&format!("{TWO_HOSTS}{}", zone("web", "sut", method))), &facts);
        planned.expect_err("something is missing").to_string()
    };
    let without = |method| refused(method, |facts| facts.programs.clear());
    assert_eq!(
        without(IoMethod::Pasta),
        "zone `web`: pasta is unavailable: the program pasta is missing; install it (Debian: apt-get install passt) in a \
         directory of PATH"
    );
    assert!(without(IoMethod::Nat).contains("apt-get install nftables"), "{}", without(IoMethod::Nat));
    let kernel = refused(IoMethod::Published, |facts| {
        facts.kinds.insert(Facts::TRANSLATION.into(), Some("nft refused".into()));
    });
    assert!(kernel.contains("nft refused; load or install the modules `nf_tables`"), "{kernel}");
    let ipv6 = TWO_HOSTS.replace("name = \"rack\"", "name = \"rack\"\nfamily = \"ipv6\"");
    let slirp = plan(&topology(&format!("{ipv6}{}", zone("web", "sut", IoMethod::Slirp4netns))), &facts());
    assert!(slirp.expect_err("IPv4 only").to_string().contains("use `pasta`, or IPv4"));
}

#[test]
fn paths_lead_through_every_link() {
    let both = |method| format!("{TWO_HOSTS}{}{}", zone("web", "sut", method), zone("db", "peer", method));
    let zones = |method| {
        let plan = planned(&both(method));
        let end = |name: &str| plan.blueprint.zone(&name.parse().unwrap()).unwrap();
        path(&plan, end("web"), end("db"))
    };
    assert_eq!(zones(IoMethod::SharedIp), "sut/wire0 peer/wire0");
    assert_eq!(zones(IoMethod::Veth), "web/eth0 sut/vnet0 sut/wire0 peer/wire0 peer/vnet0 db/eth0");
    assert_eq!(
        zones(IoMethod::Bridge),
        "web/eth0 sut/vnet0 sut/vsw0 sut/wire0 peer/wire0 peer/vsw0 peer/vnet0 db/eth0"
    );
    assert_eq!(zones(IoMethod::Macvlan), "web/eth0 sut/wire0 peer/wire0 db/eth0");
    assert_eq!(zones(IoMethod::Vxlan), "web/eth0 sut/wire0 peer/wire0 db/eth0");
    assert_eq!(zones(IoMethod::Exclusive), "web/eth0 db/eth0");
    assert_eq!(zones(IoMethod::Nat), "web/eth0 sut/vnet0 sut/br0 sut/wire0 peer/wire0 peer/br0 peer/vnet0 db/eth0");
    assert_eq!(zones(IoMethod::Pasta), "web/eth0 sut/wire0 peer/wire0 db/eth0");

    let plan = planned(&format!("{TWO_HOSTS}{}", zone("web", "sut", IoMethod::Vxlan)));
    let host = plan.blueprint.host(&"peer".parse().unwrap(), &"w0".parse().unwrap()).unwrap();
    let web = plan.blueprint.zone(&"web".parse().unwrap()).unwrap();
    assert_eq!(path(&plan, web, host), "web/eth0 sut/wire0 peer/wire0 peer/vxlan1");
    assert_eq!(path(&plan, host, web), "peer/vxlan1 peer/wire0 sut/wire0 web/eth0");

    let pair = format!("{TWO_HOSTS}{}{}", zone("a", "sut", IoMethod::Bridge), zone("b", "sut", IoMethod::Bridge));
    let plan = planned(&pair);
    let end = |name: &str| plan.blueprint.zone(&name.parse().unwrap()).unwrap();
    assert_eq!(path(&plan, end("a"), end("b")), "a/eth0 sut/vnet0 sut/vsw0 sut/vnet1 b/eth0");
}

#[test]
fn methods_that_clash_are_named_with_the_remedy() {
    use IoMethod::{Bridge, Exclusive, Ipvlan, Macvlan, SharedIp, Veth, Vxlan};
    for (first, second) in [
        (Bridge, Macvlan),
        (Ipvlan, Bridge),
        (Macvlan, Ipvlan),
        (Exclusive, SharedIp),
        (Veth, Exclusive),
        (Exclusive, Exclusive),
    ] {
        let text = refused(&format!("{TWO_HOSTS}{}{}", zone("a", "sut", first), zone("b", "sut", second)));
        assert!(text.starts_with(&format!("`a` ({first}) and `b` ({second}) clash on wire `w0` at `sut`")), "{text}");
        assert!(text.ends_with("give `b` a separate wire"), "{text}");
    }
    for (first, second) in [(Bridge, SharedIp), (Macvlan, Veth), (Vxlan, Bridge), (Ipvlan, Ipvlan)] {
        planned(&format!("{TWO_HOSTS}{}{}", zone("a", "sut", first), zone("b", "sut", second)));
    }
}

#[test]
fn impossible_plans_are_refused_with_a_remedy() {
    let with = |from: &str, to: &str| refused(&TWO_HOSTS.replace(from, to));
    insta::assert_snapshot!(with("name = \"rack\"", "name = \"rack\"\naddresses = \"10.0.0.0/31\""));
    let vxlan = zone("web", "sut", IoMethod::Vxlan);
    insta::assert_snapshot!(refused(&format!(
        "{}{vxlan}",
        TWO_HOSTS.replace("name = \"rack\"", "name = \"rack\"\nmtu = 100")
    )));
    insta::assert_snapshot!(refused(&format!("{TWO_HOSTS}{vxlan}{}", zone("db", "peer", IoMethod::Exclusive))));
    insta::assert_snapshot!(refused(&format!(
        "{}{vxlan}",
        TWO_HOSTS.replace("name = \"peer\"", "name = \"peer\"\nswitch = true")
    )));
    insta::assert_snapshot!(refused(&format!("{TWO_HOSTS}{}", zone("web", "sut", IoMethod::SrIov))));

    let mut facts = facts();
    facts.labs.push("rack".parse().unwrap());
    facts.most_namespaces = 1;
    insta::assert_snapshot!(plan(&topology(TWO_HOSTS), &facts).unwrap_err());
    facts.labs.clear();
    insta::assert_snapshot!(plan(&topology(TWO_HOSTS), &facts).unwrap_err());

    let mut wrong = topology(&format!("{TWO_HOSTS}{vxlan}"));
    wrong.zones[0].wire = "w9".parse().unwrap();
    insta::assert_snapshot!(plan(&wrong, &super::tests::facts()).unwrap_err());
}

#[test]
fn snooping_is_a_setting_of_virtual_switches() {
    let with = |snooping: bool| TWO_HOSTS.replace("name = \"sut\"", &format!("name = \"sut\"\nsnooping = {snooping}"));
    let plan = |snooping| planned(&format!("{}{}", with(snooping), zone("web", "sut", IoMethod::Bridge))).to_string();
    assert!(plan(true).contains("bridge with multicast snooping"), "{}", plan(true));
    assert!(plan(false).contains("bridge without multicast snooping"), "{}", plan(false));
    assert!(refused(&with(true)).starts_with("host `sut` has no virtual switch"), "{}", refused(&with(true)));
}

#[test]
fn a_range_in_use_is_refused_if_named_and_skipped_otherwise() {
    let mut facts = facts();
    facts.in_use = vec![
        InUse { net: "192.0.2.0/24".parse().unwrap(), by: "address 192.0.2.2/24 of eth0".into() },
        InUse { net: "198.18.0.0/19".parse().unwrap(), by: "lab `other`".into() },
    ];
    for range in ["192.0.2.128/28", "192.0.0.0/16"] {
        let named = TWO_HOSTS.replace("name = \"rack\"", &format!("name = \"rack\"\naddresses = \"{range}\""));
        let error = plan(&topology(&named), &facts).unwrap_err();
        assert!(matches!(&error, PlanError::RangeInUse { by, .. } if by.contains("eth0")), "{error}");
    }
    let chosen = plan(&topology(TWO_HOSTS), &facts).unwrap().blueprint.addresses;
    assert_eq!(chosen.to_string(), "198.18.32.0/20");
    facts.in_use[1].net = "198.18.0.0/15".parse().unwrap();
    assert!(matches!(plan(&topology(TWO_HOSTS), &facts), Err(PlanError::NoFreeRange { needed: 20, .. })));
}

#[test]
fn a_bridge_takes_as_many_zones_as_a_lab_has() {
    let zones = |count: usize| format!("{TWO_HOSTS}{}count = {count}\n", zone("web", "sut", IoMethod::Bridge));
    let plan = planned(&zones(1000));
    assert_eq!(plan.blueprint.zones.len(), 1000);
    assert!(plan.blueprint.endpoints.iter().all(|endpoint| plan.blueprint.addresses.contains(&endpoint.address)));
    assert_eq!(planned(&zones(20)).steps.len() - planned(&zones(10)).steps.len(), 50);
    let mut many = topology(&zones(1000));
    for extra in 0..30 {
        many.zones.push(vtax_model::topology::Zone {
            name: format!("more-{extra}").parse().unwrap(),
            ..many.zones[0].clone()
        });
    }
    assert!(matches!(super::plan(&many, &facts()), Err(PlanError::BridgeFull { ports: 1031, .. })));
}

/// A lab of two hosts with some zones of each method on separate wires.
fn arbitrary_lab() -> impl Strategy<Value = String> {
    let counts = proptest::collection::vec((0usize..9, 0usize..9), ZONE_METHODS.len());
    counts.prop_map(|counts| {
        let mut text = TWO_HOSTS.to_owned();
        for (index, (method, (left, right))) in ZONE_METHODS.iter().zip(counts).enumerate() {
            let most = if *method == IoMethod::Exclusive { 1 } else { 9 };
            text += &format!("[[wire]]\nname = \"m{index}\"\nends = [\"sut\", \"peer\"]\n");
            for (side, count) in [("sut", left.min(most)), ("peer", right.min(most))] {
                if count > 0 {
                    text += &zone(&format!("z{index}-{side}"), side, *method);
                    text += &format!("wire = \"m{index}\"\ncount = {count}\n");
                }
            }
            // Guests next to zones of the same switch, and alone.
            if [IoMethod::Bridge, IoMethod::SharedIp].contains(method) && left > 4 {
                text += &format!("[[guest]]\nname = \"g{index}\"\nhost = \"peer\"\nmethod = \"paravirtual\"\n");
                text += &format!("wire = \"m{index}\"\ncount = {right}\n").replace("count = 0", "count = 1");
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No address is assigned twice, every address is in the lab's range, and every link is enabled exactly once, after
    /// its creation.
    #[test]
    fn any_lab_is_consistent(text in arbitrary_lab()) {
        let plan = planned(&text);
        let mut addresses = std::collections::BTreeSet::new();
        let mut links = std::collections::BTreeMap::new();
        for step in &plan.steps {
            match step {
                LabStep::CreateLink(CreateLink { at, kind, .. }) => {
                    prop_assert_eq!(links.insert(at.clone(), 0), None);
                    if let LinkRecipe::Veth { peer } = kind {
                        prop_assert_eq!(links.insert(peer.clone(), 0), None);
                    }
                }
                LabStep::EnableLink(EnableLink { at, .. }) => *links.get_mut(at).expect("it was made before") += 1,
                LabStep::StartRelay(StartRelay {
                    zone,
                    relay: Relay::Pasta { link, .. } | Relay::Slirp4netns { link, .. },
                    ..
                }) => {
                    prop_assert_eq!(links.insert(Place::new(zone, link.clone()), 0), None);
                }
                LabStep::StartGuest(StartGuest { launch, .. }) => {
                    let made = |tap: &LinkName| links.keys().any(|place: &Place| place.link == *tap);
                    let taps: Vec<_> = launch.nics.iter().filter_map(|nic| nic.kind.tap()).collect();
                    prop_assert!(taps.len() == 1 && made(taps[0]), "{:?}", taps);
                }
                LabStep::AddAddress(AddAddress { at, address }) => {
                    prop_assert!(links.contains_key(at));
                    prop_assert!(plan.blueprint.addresses.contains(&address.addr()));
                    prop_assert!(addresses.insert(address.addr()), "{} is given twice", address);
                }
                _ => {}
            }
        }
        for guest in &plan.blueprint.guests {
            prop_assert!(plan.blueprint.addresses.contains(&guest.address.addr()));
            prop_assert!(addresses.insert(guest.address.addr()), "{} is given twice", guest.address);
        }
        prop_assert!(links.values().all(|enabled| *enabled == 1));
        prop_assert_eq!(links.len(), plan.blueprint.links.len());
        let journal = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Plan>(journal.as_bytes()).unwrap(), plan);
    }
}

/// The lab of a file, on a machine with everything that labs require: it is planned or refused, and a plan can be
/// stored in a journal.
#[test]
fn fuzz_plans() {
    let model = |name: &str| {
        let path = format!("{}/../vtax-model/tests/data/fuzz/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("a seed")
    };
    let zones: String = ZONE_METHODS.iter().map(|method| zone(&format!("z-{method}"), "sut", *method)).collect();
    let seeds = [model("lab.toml"), model("guests.toml"), format!("{TWO_HOSTS}{zones}")];
    let facts = facts();
    vtax_fuzz::fuzz_text("plans", &seeds, move |text| {
        let topology = Topology::parse(Source { name: "lab.toml", text }).ok()?;
        let told = |error: &PlanError| assert!(!error.to_string().is_empty());
        let Ok(plan) = plan(&topology, &facts).inspect_err(told) else { return Some(()) };
        let written = serde_json::to_string(&plan).expect("it can be written");
        assert_eq!(serde_json::from_slice::<Plan>(written.as_bytes()).expect("it can be read"), plan, "{written}");
        assert!(!plan.to_string().is_empty());
        Some(())
    });
}

/// A step as stored in a journal, and its description.
#[test]
fn fuzz_steps() {
    let text = format!("{TWO_HOSTS}{}{}", zone("web", "sut", IoMethod::Vxlan), zone("db", "peer", IoMethod::Macvlan));
    let steps = planned(&text).steps;
    let seeds: Vec<String> = steps.iter().map(|step| serde_json::to_string(step).expect("a step")).collect();
    vtax_fuzz::fuzz("steps", &seeds, |bytes| {
        let step: LabStep = serde_json::from_slice(bytes).ok()?;
        let written = serde_json::to_string(&step).expect("it can be written");
        assert_eq!(serde_json::from_slice::<LabStep>(written.as_bytes()).expect("it can be read"), step, "{written}");
        assert!(!step.to_string().is_empty());
        Some(())
    });
}
