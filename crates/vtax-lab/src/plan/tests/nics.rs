//! Cables between NICs, and their assignment to zones and guests.

use vtax_sys::{
    netlink::{MacAddr, Vf},
    pci::{PciAddress, Sriov},
};

use super::*;
use crate::facts::{Netdev, PciDevice, PciFacts};

/// Two NICs on each of two root complexes, one of each pair cabled to one of the other; a disk next to the second pair,
/// and the requirements of IOMMU and VFIO.
pub(crate) fn facts() -> Facts {
    let nics = ["0000:01:00.0", "0000:02:00.0", "0000:81:00.0", "0000:82:00.0"];
    let mut devices: Vec<PciDevice> = nics.iter().zip(0..).map(|(address, nth)| nic(address, nth)).collect();
    let disk = PciDevice { class: 0x01_0802, netdev: None, sriov: None, ..nic("0000:83:00.0", 9) };
    devices.push(PciDevice { name: "pci_1/04.0-00.0".into(), driver: Some("nvme".into()), ..disk });
    let systems = ["virtio_net", "igb", "igbvf"].map(|driver| SystemFacts { driver: driver.to_owned(), ..system() });
    let guests = GuestFacts { systems: systems.into(), ..guest_facts() };
    let pci = PciFacts { iommu: true, vfio: Ok(()), devices, ..PciFacts::default() };
    Facts { pci, guests: Some(guests), ..super::facts() }
}

fn system() -> SystemFacts {
    guest_facts().systems.remove(0)
}

fn address(text: &str) -> PciAddress {
    text.parse().expect("an address")
}

fn nic(device: &str, nth: u8) -> PciDevice {
    let device = address(device);
    let root = if device.bus < 0x80 { "pci_0" } else { "pci_1" };
    let netdev = Netdev {
        name: format!("eno{}", nth + 1),
        mac: Some(MacAddr([2, 0, 0, 0, 1, nth])),
        mtu: 1500,
        max_mtu: Some(9216),
        up: false,
        addresses: Vec::new(),
        upper: None,
    };
    PciDevice {
        device,
        name: format!("{root}/slot{nth}/PF0"),
        endpoint: format!("{root}/slot{nth}"),
        root: root.to_owned(),
        id: "8086:10c9".to_owned(),
        class: 0x02_0000,
        driver: Some("igb".to_owned()),
        driver_override: None,
        group: Some(u32::from(nth) + 4),
        node: Some(0),
        link: None,
        netdev: Some(netdev),
        physfn: None,
        virtfns: Vec::new(),
        sriov: Some(Sriov { total: 7, num: 0, autoprobe: true, vf_device: 0x10ca, offset: 128, stride: 2 }),
        vf: None,
        kept: None,
    }
}

/// Two hosts on a cable, and additional parts.
pub(crate) fn cable(more: &str) -> String {
    format!("{TWO_HOSTS}nics = [\"eno1\", \"0000:81:00.0\"]\n{more}")
}

pub(crate) fn domain(kind: &str, name: &str, host: &str, method: &str) -> String {
    format!("[[{kind}]]\nname = \"{name}\"\nhost = \"{host}\"\nmethod = \"{method}\"\n")
}

fn cabled(more: &str) -> Plan {
    plan(&topology(&cable(more)), &facts()).expect("a good lab")
}

fn refused_on(change: impl FnOnce(&mut Facts), more: &str) -> String {
    let mut facts = facts();
    change(&mut facts);
    plan(&topology(&cable(more)), &facts).expect_err("a bad lab").to_string()
}

fn without_arguments(plan: &Plan) -> String {
    let cut = |line: &str| line.split_once(" -name ").map_or(line, |(before, _)| before).to_owned();
    plan.to_string().lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_cable_in_place_of_a_wire() {
    insta::assert_snapshot!("cable-native", cabled(""));
    insta::assert_snapshot!("cable-bridge", cabled(&domain("zone", "web", "sut", "bridge")));
    insta::assert_snapshot!("cable-exclusive", cabled(&domain("zone", "web", "sut", "exclusive")));
}

#[test]
fn functions_go_to_zones_and_guests() {
    let options = "vlan = 7\ntrust = true\nrate = \"100M\"\n";
    let zones = domain("zone", "web", "sut", "sr-iov") + options + &domain("zone", "db", "peer", "sr-iov");
    let zones = cabled(&zones);
    insta::assert_snapshot!("sr-iov-zones", zones);
    let guests = domain("guest", "web", "sut", "sr-iov") + options + &domain("guest", "db", "sut", "sr-iov");
    let guests = cabled(&guests);
    insta::assert_snapshot!("sr-iov-guests", without_arguments(&guests));
    assert!(guests.to_string().contains("vfio-pci,host=0000:01:10.2"), "{guests}");
    let journal = serde_json::to_string(&guests).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&journal).unwrap(), guests);
    let end = |plan: &Plan, name: &str| {
        plan.blueprint.endpoints.iter().find(|end| end.name.as_str() == name).unwrap().clone()
    };
    let host =
        |plan: &Plan, name: &str| plan.blueprint.host(&name.parse().unwrap(), &"w0".parse().unwrap()).unwrap().clone();
    assert_eq!(path(&zones, &end(&zones, "web"), &end(&zones, "db")), "web/eth0 sut/wire0 peer/wire0 db/eth0");
    assert_eq!(path(&guests, &end(&guests, "web"), &host(&guests, "peer")), "sut/wire0 peer/wire0");
}

#[test]
fn a_whole_nic_is_assigned_to_a_zone_or_a_guest() {
    insta::assert_snapshot!("assigned-zone", cabled(&domain("zone", "web", "sut", "assigned")));
    let guest = cabled(&domain("guest", "web", "sut", "assigned"));
    insta::assert_snapshot!("assigned-guest", without_arguments(&guest));
    assert_eq!(guest.blueprint.guests[0].mac.to_string(), "02:00:00:00:01:00");
    assert!(guest.blueprint.ends_in_guest(&Place::wire(&"peer".parse().unwrap(), 0)));
    let all = cabled(&domain("guest", "web", "peer", "root-domain"));
    insta::assert_snapshot!("root-domain", without_arguments(&all));
    let text = all.to_string();
    assert!(
        ["81:00.0,", "82:00.0", "83:00.0"].iter().all(|device| text.contains(&format!("vfio-pci,host=0000:{device}"))),
        "{text}"
    );
}

#[test]
fn devices_in_one_iommu_group_are_assigned_together() {
    let mut facts = facts();
    facts.pci.devices[1].group = facts.pci.devices[0].group;
    let text = cable(&domain("guest", "web", "sut", "assigned"));
    let plan = plan(&topology(&text), &facts).expect("a good lab");
    insta::assert_snapshot!("assigned-group", without_arguments(&plan));
}

#[test]
fn functions_that_are_there_are_used_and_put_back() {
    let mut facts = facts();
    let pf = facts.pci.devices[0].device;
    let vf = |index: u8| PciDevice {
        device: PciAddress { device: 0x10, function: 2 * index, ..pf },
        name: format!("pci_0/slot0/PF0.VF{index}"),
        physfn: Some(pf),
        sriov: None,
        driver: Some("igbvf".to_owned()),
        vf: Some(Vf {
            index: index.into(),
            mac: MacAddr([2, 0, 0, 0, 9, index]),
            vlan: 3,
            qos: 0,
            spoof_check: Some(true),
            trust: Some(false),
            link_state: None,
            min_rate: 0,
            max_rate: 0,
        }),
        ..nic("0000:01:00.0", 20 + index)
    };
    let functions = [vf(0), vf(1)];
    facts.pci.devices[0].virtfns = functions.iter().map(|function| function.device).collect();
    facts.pci.devices[0].sriov.as_mut().unwrap().num = 2;
    facts.pci.devices.extend(functions);
    facts.pci.devices[5].netdev.as_mut().unwrap().up = true;
    let text = cable(&domain("zone", "web", "sut", "sr-iov"));
    let there = plan(&topology(&text), &facts).expect("a good lab");
    insta::assert_snapshot!("sr-iov-there", there);
    let was = there.steps.iter().find_map(|step| match step {
        LabStep::LendVf(step) => step.function.was.clone(),
        _ => None,
    });
    let was = was.expect("it is known what it was");
    let link = was.driver.link.expect("it had one");
    assert_eq!((was.settings.vlan, was.driver.driver.as_deref()), (Some((3, 0)), Some("igbvf")));
    assert_eq!((link.name.as_str(), link.mac), ("eno22", Some(MacAddr([2, 0, 0, 0, 1, 21]))));
    let text = format!("{text}count = 2\n");
    insta::assert_snapshot!(plan(&topology(&text), &facts).expect_err("one is in use"));
}

#[test]
fn devices_that_cannot_be_assigned_are_refused_with_a_reason() {
    let zone = domain("zone", "web", "sut", "sr-iov");
    let function = domain("guest", "web", "sut", "sr-iov");
    let whole = domain("guest", "web", "sut", "assigned");
    let all = domain("guest", "web", "peer", "root-domain");
    let nic = |facts: &mut Facts, change: fn(&mut PciDevice)| change(&mut facts.pci.devices[0]);
    let mut linkless = facts();
    nic(&mut linkless, |nic| nic.netdev = None);
    let by_address = topology(&cable("").replace("eno1", "0000:01:00.0"));
    let without_link = plan(&by_address, &linkless).expect_err("no link").to_string();
    let told = [
        refused_on(|facts| facts.pci.devices.truncate(1), ""),
        refused_on(|facts| nic(facts, |nic| nic.kept = Some("it carries the default route (eno1)".into())), ""),
        refused_on(|facts| nic(facts, |nic| nic.driver = None), ""),
        without_link,
        refused_on(
            |facts| nic(facts, |nic| nic.netdev.as_mut().unwrap().addresses = vec!["192.0.2.1/24".parse().unwrap()]),
            "",
        ),
        refused_on(|facts| nic(facts, |nic| nic.netdev.as_mut().unwrap().upper = Some("br0".into())), ""),
        refused_on(|facts| nic(facts, |nic| nic.class = 0x01_0802), ""),
        refused_on(|facts| nic(facts, |nic| nic.sriov = None), &zone),
        refused_on(|_| {}, &format!("{zone}count = 8\n")),
        refused_on(|facts| nic(facts, |nic| nic.sriov.as_mut().unwrap().offset = 0), &zone),
        refused_on(|facts| nic(facts, |nic| nic.driver = Some("atl1".into())), &zone),
        refused_on(|facts| facts.pci.iommu = false, &function),
        refused_on(|facts| facts.pci.iommu = false, &whole),
        refused_on(|facts| facts.pci.vfio = PciFacts::default().vfio, &whole),
        refused_on(
            |facts| {
                facts.pci.devices[4].group = facts.pci.devices[0].group;
                facts.pci.devices[4].kept = Some("/ is mounted from it (nvme0n1)".into());
            },
            &whole,
        ),
        refused_on(|facts| facts.pci.devices[4].kept = Some("/ is mounted from it (nvme0n1)".into()), &all),
        refused_on(
            |_| {},
            &format!(
                "[[wire]]\nname = \"w1\"\nends = [\"sut\", \"peer\"]\nnics = [\"eno2\", \"eno4\"]\n{all}wire = \"w0\"\n"
            ),
        ),
        refused_on(|_| {}, "[[wire]]\nname = \"w1\"\nends = [\"sut\", \"peer\"]\nnics = [\"eno1\", \"eno4\"]\n"),
        refused_on(|_| {}, &(whole.clone() + &domain("zone", "db", "sut", "sr-iov"))),
        refused(&format!("{TWO_HOSTS}{whole}")),
        refused(&format!("{TWO_HOSTS}{zone}")),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

/// Devices of a domain of this or another lab are named together with it.
#[test]
fn devices_of_another_domain_are_not_assigned() {
    let second = |more: &str| {
        format!(
            "[[wire]]\nname = \"w1\"\nends = [\"sut\", \"peer\"]\nnics = [\"eno2\", \"eno4\"]\n{more}wire = \"w1\"\n"
        )
    };
    let all = domain("guest", "web", "sut", "root-domain") + "wire = \"w0\"\n";
    let function = domain("guest", "db", "sut", "sr-iov");
    let lent = |facts: &mut Facts, index: usize| {
        facts.lent.insert(facts.pci.devices[index].device, "other/root".to_owned());
    };
    let made = |facts: &mut Facts, index: usize| facts.pci.devices[index].sriov.as_mut().unwrap().num = 2;
    let told = [
        // A root domain of another lab has the NIC with its functions, and the one next to it.
        refused_on(|facts| lent(facts, 0), &function),
        refused_on(|facts| lent(facts, 1), &all),
        // A root domain of this lab gets the NIC of the function.
        refused_on(|_| {}, &(all.clone() + &second(&function))),
        refused_on(|_| {}, &(all.clone() + &second(&domain("guest", "db", "sut", "root-domain")))),
        refused_on(|_| {}, &(all.clone() + &function)),
        // It loses its driver, and so its functions.
        refused_on(|facts| made(facts, 0), &domain("guest", "web", "sut", "assigned")),
        refused_on(|facts| made(facts, 1), &all),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn masters_are_started_first() {
    let guest = |name: &str, more: &str| domain("guest", name, "sut", "paravirtual") + more;
    let plan = cabled(&(guest("web", "masters = [\"db\"]\n") + &guest("db", "")));
    let started = plan.steps.iter().filter_map(|step| match step {
        LabStep::StartGuest(start) => Some(start.launch.name.as_str()),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), ["db", "web"]);
}
