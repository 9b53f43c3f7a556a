//! A synthetic server: two root complexes, a NIC of two ports with virtual functions in a slot, one without a slot
//! behind a bridge, a disk, and a virtio NIC.

use vtax_sys::{
    netlink::{IfIndex, MacAddr, Vf},
    pci::{PciAddress, PciSlot, Root, Sriov},
};

use super::*;
use crate::facts::Netdev;

const ROOT0: Root = Root { domain: 0, bus: 0 };
const ROOT1: Root = Root { domain: 0, bus: 0x80 };

fn at(text: &str) -> PciAddress {
    text.parse().expect("an address")
}

fn device(address: &str, root: Root, path: &[(u8, u8)], class: u32) -> Device {
    Device {
        address: at(address),
        vendor: 0x8086,
        device: 0x10c9,
        class,
        driver: Some("igb".into()),
        driver_override: None,
        iommu_group: None,
        numa_node: None,
        root,
        path: path.to_vec(),
        slot: None,
        netdev: None,
        physfn: None,
        virtfns: Vec::new(),
        sriov: None,
        link: None,
    }
}

fn link(index: u32, name: &str, device: Option<&str>) -> seen::SeenLink {
    seen::SeenLink {
        index: IfIndex(index),
        netdev: Netdev {
            name: name.into(),
            mac: Some(MacAddr([2, 0, 0, 0, 0, index.to_be_bytes()[3]])),
            mtu: 1500,
            max_mtu: Some(9216),
            up: true,
            addresses: Vec::new(),
            upper: None,
        },
        master: None,
        parent: None,
        device: device.map(at),
    }
}

fn vf(index: u32) -> Vf {
    Vf {
        index,
        mac: MacAddr([2, 0, 0, 0, 1, index.to_be_bytes()[3]]),
        vlan: 7,
        qos: 0,
        spoof_check: Some(true),
        trust: Some(false),
        link_state: None,
        min_rate: 0,
        max_rate: 0,
    }
}

fn server() -> Seen {
    let sriov = Some(Sriov { total: 7, num: 2, autoprobe: true, vf_device: 0x10ca, offset: 384, stride: 2 });
    let slot = Some("2".to_owned());
    let port0 = Device {
        slot: slot.clone(),
        sriov,
        virtfns: vec![at("0000:01:10.0"), at("0000:01:10.2")],
        iommu_group: Some(4),
        ..device("0000:01:00.0", ROOT0, &[(1, 0), (0, 0)], 0x02_0000)
    };
    let port1 = Device {
        slot: slot.clone(),
        sriov: sriov.map(|sriov| Sriov { num: 0, ..sriov }),
        iommu_group: Some(4),
        ..device("0000:01:00.1", ROOT0, &[(1, 0), (0, 1)], 0x02_0000)
    };
    let function =
        |address, path| Device { physfn: Some(at("0000:01:00.0")), ..device(address, ROOT0, path, 0x02_0000) };
    let lone = Device { sriov, ..device("0000:81:00.0", ROOT1, &[(1, 0), (0, 0)], 0x02_0000) };
    let bus = |bus| Root { domain: 0, bus };
    Seen {
        devices: vec![
            device("0000:00:01.0", ROOT0, &[(1, 0)], 0x06_0400),
            device("0000:00:03.0", ROOT0, &[(3, 0)], 0x02_0000),
            device("0000:00:1f.2", ROOT0, &[(0x1f, 2)], 0x01_0601),
            device("0000:00:1f.3", ROOT0, &[(0x1f, 3)], 0x0c_0500),
            port0,
            port1,
            function("0000:01:10.0", &[(1, 0), (0x10, 0)]),
            function("0000:01:10.2", &[(1, 0), (0x10, 2)]),
            lone,
        ],
        slots: vec![
            PciSlot { name: "2".into(), root: Some(ROOT0), bus: bus(1), device: Some(0) },
            PciSlot { name: "5".into(), root: Some(ROOT1), bus: bus(0x85), device: Some(0) },
        ],
        links: vec![
            link(1, "lo", None),
            link(2, "eth0", Some("0000:00:03.0")),
            link(3, "eno1", Some("0000:01:00.0")),
            link(4, "eno2", Some("0000:01:00.1")),
            link(5, "eno1v0", Some("0000:01:10.0")),
        ],
        vfs: [(at("0000:01:00.0"), vec![vf(0), vf(1)])].into(),
        iommu: true,
        vfio_loaded: true,
        ..Seen::default()
    }
}

/// Result built from it.
pub(crate) fn facts() -> PciFacts {
    PciFacts::of(&server())
}

fn name_of(facts: &PciFacts, address: &str) -> String {
    facts.device(at(address)).expect("a device").name.clone()
}

#[test]
fn names_show_the_place_of_a_device_and_bridges_have_none() {
    let facts = PciFacts::of(&server());
    let names: Vec<&str> = facts.devices.iter().map(|device| device.name.as_str()).collect();
    let expected = [
        "pci_0/03",
        "pci_0/1f/F2",
        "pci_0/1f/F3",
        "pci_0/slot2/PF0",
        "pci_0/slot2/PF1",
        "pci_0/slot2/PF0.VF0",
        "pci_0/slot2/PF0.VF1",
        "pci_1/01.0-00/PF0",
    ];
    assert_eq!(names, expected);
    assert_eq!(facts.roots.iter().map(|root| root.name.as_str()).collect::<Vec<_>>(), ["pci_0", "pci_1"]);
    let slots: Vec<(&str, bool)> = facts.slots.iter().map(|slot| (slot.name.as_str(), slot.occupied)).collect();
    assert_eq!(slots, [("pci_0/slot2", true), ("pci_1/slot5", false)]);
}

/// At another boot all bus numbers differ.
#[test]
fn names_outlive_bus_numbers() {
    let before = PciFacts::of(&server());
    let mut seen = server();
    let moved = |address: PciAddress| PciAddress { bus: address.bus + 3, ..address };
    for device in &mut seen.devices {
        device.address = moved(device.address);
        device.root.bus += 3;
        device.physfn = device.physfn.map(moved);
        device.virtfns.iter_mut().for_each(|vf| *vf = moved(*vf));
        device.iommu_group = device.iommu_group.map(|group| group + 1);
    }
    for slot in &mut seen.slots {
        slot.bus.bus += 3;
        slot.root.iter_mut().for_each(|root| root.bus += 3);
    }
    let names = |facts: &PciFacts| facts.devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&PciFacts::of(&seen)), names(&before));
}

#[test]
fn devices_of_one_bus_that_share_a_slot_have_unique_names() {
    let mut seen = server();
    let slot = |address| Device { slot: Some("9 b".into()), ..device(address, ROOT1, &[(2, 0), (0, 0)], 0x02_0000) };
    let other = Device { path: vec![(2, 0), (1, 0)], ..slot("0000:82:01.0") };
    seen.devices.push(slot("0000:82:00.0"));
    assert_eq!(name_of(&PciFacts::of(&seen), "0000:82:00.0"), "pci_1/slot9_b");
    seen.devices.push(other);
    let facts = PciFacts::of(&seen);
    assert_eq!(name_of(&facts, "0000:82:00.0"), "pci_1/02.0-00");
    assert_eq!(name_of(&facts, "0000:82:01.0"), "pci_1/02.0-01");
}

#[test]
fn a_device_is_found_by_each_of_its_names() {
    let facts = PciFacts::of(&server());
    for (name, address) in [
        ("0000:01:00.1", "0000:01:00.1"),
        ("eno2", "0000:01:00.1"),
        ("02:00:00:00:00:04", "0000:01:00.1"),
        ("pci_0/slot2/PF1", "0000:01:00.1"),
        ("pci_1/01.0-00", "0000:81:00.0"),
        ("pci_0/03", "0000:00:03.0"),
    ] {
        assert_eq!(facts.find(name).map(|device| device.device), Ok(at(address)), "{name}");
    }
}

#[test]
fn a_name_of_none_or_several_comes_with_those_that_could_be_meant() {
    let facts = PciFacts::of(&server());
    let unknown = facts.find("eno9").unwrap_err().to_string();
    assert!(unknown.contains("`eno9`") && unknown.contains("eno1 (pci_0/slot2/PF0)"), "{unknown}");
    let several = facts.find("pci_0/slot2").unwrap_err().to_string();
    assert!(several.contains("pci_0/slot2/PF0") && several.contains("pci_0/slot2/PF1"), "{several}");
    assert!(!several.contains("VF0"), "{several}");
    let none = PciFacts::default().find("eno1").unwrap_err().to_string();
    assert!(none.contains("it has no PCI NIC"), "{none}");
}

#[test]
fn a_virtual_function_has_the_settings_enforced_by_its_physical_one() {
    let facts = PciFacts::of(&server());
    let device = facts.find("pci_0/slot2/PF0.VF1").expect("a VF");
    assert_eq!(device.vf, Some(vf(1)));
    assert_eq!(device.physfn, Some(at("0000:01:00.0")));
    assert_eq!(facts.find("eno1").expect("a PF").vf, None);
}

#[test]
fn groups_and_complexes_contain_related_devices() {
    let facts = PciFacts::of(&server());
    let addresses = |devices: Vec<&PciDevice>| devices.iter().map(|it| it.device.to_string()).collect::<Vec<_>>();
    assert_eq!(addresses(facts.group_of(at("0000:01:00.0")).collect()), ["0000:01:00.1"]);
    // Those without a group aren't one.
    assert_eq!(facts.group_of(at("0000:00:03.0")).count(), 0);
    assert_eq!(addresses(facts.below("pci_1").collect()), ["0000:81:00.0"]);
    assert_eq!(facts.below("pci_0").count(), 7);
}

/// A VLAN on a bond on a bridge's port: the path down ends at both ports of the bond.
#[test]
fn the_default_route_keeps_every_device_below_it() {
    let mut seen = server();
    seen.links[2].master = Some(IfIndex(10));
    seen.links[3].master = Some(IfIndex(10));
    let bond = seen::SeenLink { master: Some(IfIndex(11)), ..link(10, "bond0", None) };
    let vlan = seen::SeenLink { parent: Some(IfIndex(11)), ..link(12, "br0.5", None) };
    seen.links.extend([bond, link(11, "br0", None), vlan]);
    seen.default_routes = [IfIndex(12)].into();
    let facts = PciFacts::of(&seen);
    for nic in ["eno1", "eno2"] {
        let why = facts.find(nic).expect("a NIC").kept.clone();
        assert_eq!(why, Some(format!("it carries the default route ({nic})")));
    }
    assert_eq!(facts.find("eth0").expect("a NIC").kept, None);
    assert_eq!(facts.find("eno1").expect("a NIC").netdev.as_ref().expect("a link").upper.as_deref(), Some("bond0"));
}

#[test]
fn a_session_keeps_its_nic_and_a_virtual_function_keeps_its_physical_one() {
    let mut seen = server();
    seen.links[4].netdev.addresses = vec!["192.0.2.7/24".parse().expect("a network")];
    seen.links[1].netdev.addresses = vec!["192.0.2.8/24".parse().expect("a network")];
    seen.sessions = ["192.0.2.7".parse().expect("an address")].into();
    let facts = PciFacts::of(&seen);
    let kept = |name| facts.find(name).expect("a device").kept.clone();
    assert_eq!(kept("eno1v0").as_deref(), Some("your ssh session uses it (eno1v0)"));
    assert!(kept("eno1").is_some_and(|why| why.contains("0000:01:10.0") && why.contains("ssh")));
    assert_eq!((kept("eno2"), kept("eth0")), (None, None));
}

#[test]
fn a_disk_in_use_is_kept_with_its_first_reason() {
    let mut seen = server();
    let disk = at("0000:00:1f.2");
    seen.in_use = vec![(disk, "/ is mounted from it (sda1)".into()), (disk, "it holds swap (sda2)".into())];
    let kept = PciFacts::of(&seen).device(disk).expect("a disk").kept.clone();
    assert_eq!(kept.as_deref(), Some("/ is mounted from it (sda1)"));
}

/// A bridge that is its own port, which no kernel allows, must not cause a hang.
#[test]
fn circular_links_terminate() {
    let mut seen = server();
    seen.links[2].parent = Some(IfIndex(4));
    seen.links[3].parent = Some(IfIndex(3));
    seen.default_routes = [IfIndex(3)].into();
    assert!(PciFacts::of(&seen).find("eno2").expect("a NIC").kept.is_some());
}

#[test]
fn vfio_is_refused_with_a_remedy() {
    let refusal = |seen: Seen| PciFacts::of(&seen).vfio.unwrap_err().to_string();
    assert_eq!(PciFacts::of(&server()).vfio, Ok(()));
    assert!(refusal(Seen { iommu: false, ..server() }).contains("intel_iommu=on"));
    assert!(refusal(Seen { vfio_loaded: false, vfio_module: true, ..server() }).contains("modprobe vfio-pci"));
    assert!(refusal(Seen { vfio_loaded: false, ..server() }).contains("CONFIG_VFIO_PCI"));
}

#[test]
fn facts_survive_being_stored() {
    let facts = PciFacts::of(&server());
    let text = serde_json::to_string(&facts).expect("JSON");
    assert_eq!(serde_json::from_str::<PciFacts>(&text).expect("the same"), facts);
}
