use std::collections::BTreeSet;

use proptest::prelude::*;
use vtax_model::{
    domain::{
        AltMac, Configuration, ConsoleService, CpuDemand, DeviceKind, DiskChange, FailurePolicy, FunctionChange,
        LinkProp, NewSwitch, NewVnet, PRIMARY, SwitchChange, Variable, VirtualConsole, VnetChange, VnetProtection,
        Volume, VolumeFormat, VolumeOption,
    },
    topology::Name,
    units::{BitRate, ByteSize, Mtu},
    vf::Vlan,
};

use super::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn vlan(number: u16) -> Vlan {
    Vlan::try_from(i64::from(number)).expect("a VLAN")
}

/// The host is not part of the document.
fn anywhere(all: Configuration) -> Configuration {
    Configuration { host: String::new(), ..all }
}

fn planets() -> Configuration {
    let mut all = Configuration::new("");
    let change = SwitchChange {
        net_dev: Some("nxge2".to_owned()),
        mtu: Mtu::try_from(9000).ok(),
        vids: Some([vlan(44)].into()),
        ..SwitchChange::default()
    };
    let service = name(PRIMARY);
    all.add_switch(NewSwitch { name: name("admin-vsw"), service, default_vlan: None, change }).expect("it is new");
    let users = ["anna", "ben"].map(|user| user.parse().expect("a user"));
    let ports = "5000-5100".parse().expect("ports");
    let service = ConsoleService { domain: name(PRIMARY), ports, users: Some(users.into()) };
    all.add_console_service(&name("console"), service).expect("it is new");
    all.add_domain(&name("mars")).expect("it is new");
    all.set_cpus(&name("mars"), CpuDemand::Cores(8)).expect("possible");
    all.set_memory(&name("mars"), ByteSize(8 << 30)).expect("possible");
    all.set_variable(&name("mars"), Variable::BootArgs, " a<b>&\"'c' ".to_owned()).expect("possible");
    let change = VnetChange {
        alt_macs: Some([AltMac::Auto; 2].into()),
        pvid: Some(vlan(33)),
        vids: Some([vlan(44), vlan(45)].into()),
        maxbw: BitRate::new(1_234_567),
        linkprop: Some(LinkProp::PhysState),
        ..VnetChange::default()
    };
    let new = NewVnet { name: name("admin-net"), switch: name("admin-vsw"), domain: name("mars"), change };
    all.add_vnet(new).expect("it is new");
    let console = VirtualConsole { group: Some(name("planets")), port: Some(5002), service: Some(name("console")) };
    all.set_console(&name("mars"), console).expect("possible");
    all.set_failure_policy(&name(PRIMARY), FailurePolicy::Stop).expect("possible");
    all.set_masters(&name("mars"), vec![name(PRIMARY)]).expect("possible");
    all.set_autostart(&name("mars"), true).expect("possible");
    all.add_domain(&name("venus")).expect("it is new");
    all.remove_device(&name(PRIMARY), "pci_1/slot0").expect("primary has it");
    all.set_iov("pci_0", true).expect("nobody has said");
    let change = FunctionChange { pvid: Some(Some(vlan(7))), mtu: Mtu::try_from(9000).ok(), mac_addr: None };
    all.set_function("pci_0/slot1/PF0.VF1", change).expect("possible");
    all.add_device(&name("venus"), "pci_1/slot0", DeviceKind::Pcie).expect("nobody has it");
    all.add_device(&name("venus"), "pci_0/slot1/PF0.VF1", DeviceKind::Vf).expect("nobody has it");
    add_disks(&mut all);
    all
}

/// Volumes: a read-only slice, and two paths to one disk, which venus has.
fn add_disks(all: &mut Configuration) {
    all.add_disk_service(&name("primary-vds0"), name(PRIMARY)).expect("it is new");
    let plain = Volume {
        backend: "/dev/sdb".to_owned(),
        format: VolumeFormat::Raw,
        options: Default::default(),
        slice: None,
        mpgroup: None,
    };
    let slice = "1G+512M".parse().ok();
    let tools = Volume { options: [VolumeOption::Ro, VolumeOption::Excl].into(), slice, ..plain.clone() };
    let path = Volume { mpgroup: Some(name("lun")), ..plain.clone() };
    let image = Volume { backend: "/d/a.qcow2".to_owned(), format: VolumeFormat::Qcow2, ..plain };
    for (volume, backend) in [("tools", tools), ("lun1", Volume { backend: "/dev/sdc".to_owned(), ..path.clone() })] {
        all.add_volume(&format!("{volume}@primary-vds0").parse().expect("a volume"), backend).expect("it is new");
    }
    for (volume, backend) in [("lun2", Volume { backend: "/dev/sdd".to_owned(), ..path }), ("image", image)] {
        all.add_volume(&format!("{volume}@primary-vds0").parse().expect("a volume"), backend).expect("it is new");
    }
    let change = DiskChange { id: Some(3), timeout: Some(60), volume: None };
    let volume = "lun1@primary-vds0".parse().expect("a volume");
    all.add_disk(&name("venus"), &name("data"), volume, change).expect("nobody has it");
}

#[test]
fn a_document_is_like_that_of_ldm_and_is_read_back() {
    let text = write(&planets());
    insta::assert_snapshot!(text);
    assert_eq!(read(&text), Ok(planets()));
    let empty = Configuration::new("");
    assert_eq!(read(&write(&empty)), Ok(empty));
}

fn refused(text: &str) -> String {
    read(text).expect_err("refused").to_string()
}

/// Returns the document of the planets with one part replaced.
fn with(from: &str, to: &str) -> String {
    let text = write(&planets());
    assert!(text.contains(from), "{from}");
    refused(&text.replacen(from, to, 1))
}

#[test]
fn errors_are_reported_with_their_line() {
    let told = [
        refused(""),
        refused("{}"),
        refused("<domain/>"),
        refused("<LDM_interface/>"),
        refused("<LDM_interface>\n<data/>\n<data/>\n</LDM_interface>"),
        refused("<LDM_interface>\n<data>\n<Envelope>\n"),
        with("ovf:id=\"mars\"", "ovf:id=\"Mars\""),
        with("ovf:id=\"mars\"", "ovf:id=\"venus\""),
        with(" ovf:id=\"mars\"", ""),
        with(">8</rasd:AllocationUnits>", ">-8</rasd:AllocationUnits>"),
        with(">core<", ">crypto<"),
        with("key=\"vid\">44,45<", "key=\"vid\">44,4095<"),
        with("key=\"pvid\">33<", "key=\"pvid\">33</gprop:GenericProperty><gprop:GenericProperty key=\"pvid\">34<"),
        with("key=\"maxbw\">1234567<", "key=\"maxbw\">0<"),
        with("key=\"autostart\">yes<", "key=\"autostart\">often<"),
        with("key=\"iov\">on<", "key=\"iov\">often<"),
        with(">PCIE<", ">ISA<"),
        with("key=\"linkprop\"", "key=\"linkporp\""),
        with("key=\"id\"", "kye=\"id\""),
        with("<rasd:AllocationUnits>8<", "<rasd:AllocationUnits><a/>8<"),
        with("<References/>", "<References/>text"),
        with("key=\"slice\">1G+512M<", "key=\"slice\">1G<"),
        with("key=\"vol_opts\">ro,excl<", "key=\"vol_opts\">ro,fast<"),
        with(">vds<", ">vds_volume<"),
        with("key=\"min_port\">5000<", "key=\"min_port\">80<"),
        with("<gprop:GenericProperty key=\"vnet_name\">admin-net</gprop:GenericProperty>", ""),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn hostile_documents_are_refused_with_a_line() {
    let bomb = "<?xml version=\"1.0\"?>\n<!DOCTYPE d [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;\">]>\n\
        <LDM_interface>&b;</LDM_interface>";
    assert!(refused(bomb).starts_with("line 2: a document type"), "{}", refused(bomb));
    assert!(with("<References/>", "<References>&a;</References>").contains("line 5: unknown entity reference"));
    let deep = "<Item>\n".repeat(90_000) + &"</Item>".repeat(90_000);
    assert!(with("<References/>", &deep).starts_with("line 5: an Envelope has no <Item>"));
    let told = with("<rasd:OtherResourceType>ldom_info", &format!("{deep}<rasd:OtherResourceType>ldom_info"));
    assert!(told.starts_with("line 9: an Item has no <Item>"), "{told}");
    let wide = "<References/>".repeat(NODES_MOST as usize);
    assert!(with("<References/>", &wide).contains("more than 1000000 elements"));
    let long = " ".repeat(LONGEST as usize + 1);
    assert!(refused(&long).contains("at most 33554432"));
}

/// Number, VLANs with and without tags, rate, and whether it follows the carrier and sends from any address.
type AnyVnet = (u8, BTreeSet<u16>, Option<u16>, Option<u64>, bool);

#[derive(Debug, Clone)]
struct AnyDomain {
    cpus: Option<(bool, u32)>,
    memory: Option<u64>,
    arguments: Option<String>,
    vnets: Vec<AnyVnet>,
    port: Option<u16>,
    policy: u8,
}

fn any_domain() -> impl Strategy<Value = AnyDomain> {
    let vlans = prop::collection::btree_set(1u16..4095, 0..4);
    let vnet = (0u8..3, vlans, prop::option::of(1u16..4095), prop::option::of(1u64..u64::MAX), any::<bool>());
    let size = (prop::option::of((any::<bool>(), 1u32..=256)), prop::option::of(96u64..1 << 30));
    let rest = (prop::option::of(any::<String>()), prop::collection::vec(vnet, 0..5));
    (size, rest, prop::option::of(1024u16..), 0u8..4).prop_map(|((cpus, memory), (arguments, vnets), port, policy)| {
        AnyDomain { cpus, memory, arguments, vnets, port, policy }
    })
}

/// Operations that are refused are skipped.
fn configured(domains: &[AnyDomain]) -> Configuration {
    let mut all = planets();
    for (number, any) in domains.iter().enumerate() {
        let domain = name(&format!("d{number}"));
        all.add_domain(&domain).expect("it is new");
        if let Some((whole, count)) = any.cpus {
            let cpus = match (whole, count % 2) {
                (false, _) => CpuDemand::Vcpus(count),
                (true, 0) => CpuDemand::Cores(count),
                (true, _) => CpuDemand::Cids((1..=count).collect()),
            };
            all.set_cpus(&domain, cpus).expect("possible");
        }
        let _ = any.memory.map(|mib| all.set_memory(&domain, ByteSize(mib << 20)));
        let _ = any.arguments.clone().map(|text| all.set_variable(&domain, Variable::BootArgs, text));
        for (number, vids, pvid, rate, follows) in &any.vnets {
            let change = VnetChange {
                pvid: pvid.map(vlan),
                vids: Some(vids.iter().copied().map(vlan).collect()),
                maxbw: rate.and_then(BitRate::new),
                alt_macs: Some(std::iter::repeat_n(AltMac::Auto, usize::from(*number)).collect()),
                linkprop: follows.then_some(LinkProp::PhysState),
                protection: follows.then_some(VnetProtection::Off),
                ..VnetChange::default()
            };
            let vnet = name(&format!("net{number}"));
            let _ = all.add_vnet(NewVnet { name: vnet, switch: name("admin-vsw"), domain: domain.clone(), change });
        }
        let _ = all.set_console(&domain, VirtualConsole { port: any.port, ..VirtualConsole::default() });
        let policies = [FailurePolicy::Ignore, FailurePolicy::Panic, FailurePolicy::Reset, FailurePolicy::Stop];
        all.set_failure_policy(&domain, policies[usize::from(any.policy)]).expect("possible");
    }
    all
}

proptest! {
    #[test]
    fn written_documents_are_read_back(domains in prop::collection::vec(any_domain(), 0..6)) {
        let all = configured(&domains);
        let again = read(&write(&all));
        prop_assert_eq!(again.clone(), Ok(anywhere(all.clone())));
        prop_assert_eq!(again.expect("it was read").rebuilt(""), Ok(anywhere(all)));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text: String) {
        let _ = read(&text);
    }
}

#[test]
fn fuzz_ldm_xml() {
    let seeds = [write(&planets()), write(&Configuration::new(""))];
    vtax_fuzz::fuzz_text("ldm-xml", &[seeds[0].as_str(), seeds[1].as_str()], |text| {
        let all = read(text).ok()?;
        // Values that no operation could have set may contain text that XML can't represent.
        let all = all.rebuilt("").ok()?;
        assert_eq!(read(&write(&all)), Ok(all));
        Some(())
    });
}
