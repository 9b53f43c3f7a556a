use vtax_step::{Place, TakeNic};

use super::*;
use crate::{step::LabStep, survey::pci_tests::facts};

fn at(text: &str) -> PciAddress {
    text.parse().expect("an address")
}

/// A step as stored in a journal.
fn taken(device: &str, host: &str) -> LabStep {
    LabStep::TakeNic(TakeNic {
        device: at(device),
        at: Place::wire(&host.parse().expect("a name"), 0),
        mtu: 1500.try_into().expect("an MTU"),
        was: None,
    })
}

fn owners(steps: &[LabStep]) -> Owners {
    let mut owners = Owners::default();
    steps.iter().for_each(|step| owners.take(&"demo".parse().expect("a name"), step));
    owners
}

fn lines(entries: &[&IoEntry]) -> Vec<String> {
    let status = |entry: &IoEntry| entry.status.map_or("", <&str>::from);
    entries
        .iter()
        .map(|it| {
            format!("{} {} {} {} {}", it.name, <&str>::from(it.kind), it.bus, it.domain, status(it))
                .trim_end()
                .to_owned()
        })
        .collect()
}

fn all(list: &IoList) -> Vec<String> {
    lines(&list.entries.iter().collect::<Vec<_>>())
}

#[test]
fn the_list_has_complexes_then_slots_and_endpoints_then_functions() {
    let expected = [
        "pci_0 BUS pci_0 primary IOV",
        "pci_1 BUS pci_1 primary IOV",
        "pci_0/03 PCIE pci_0 primary OCC",
        "pci_0/1f PCIE pci_0 primary OCC",
        "pci_0/1f/F2 PCIE pci_0 primary",
        "pci_0/1f/F3 PCIE pci_0 primary",
        "pci_0/slot2 PCIE pci_0 primary OCC",
        "pci_1/01.0-00 PCIE pci_1 primary OCC",
        "pci_1/slot5 PCIE pci_1 primary EMP",
        "pci_0/slot2/PF0 PF pci_0 primary",
        "pci_0/slot2/PF0.VF0 VF pci_0 primary",
        "pci_0/slot2/PF0.VF1 VF pci_0 primary",
        "pci_0/slot2/PF1 PF pci_0 primary",
        "pci_1/01.0-00/PF0 PF pci_1 primary",
    ];
    assert_eq!(all(&IoList::of(facts(), &Owners::default())), expected);
}

#[test]
fn devices_of_a_lab_belong_to_its_domains_and_a_virtual_function_depends_on_the_physical_one() {
    let owners = owners(&[taken("0000:01:00.0", "sut"), taken("0000:01:10.0", "web"), taken("0000:81:00.0", "peer")]);
    let list = IoList::of(facts(), &owners);
    let entry = |name: &str| list.entries.iter().find(|entry| entry.name == name).expect("an entry");
    assert_eq!(entry("pci_0/slot2").domain, "demo/sut,primary");
    assert_eq!(entry("pci_0/slot2/PF0").domain, "demo/sut");
    let vf = entry("pci_0/slot2/PF0.VF0");
    assert_eq!((vf.domain.as_str(), vf.depends_on.as_deref()), ("demo/web", Some("demo/sut")));
    assert_eq!(entry("pci_0/slot2/PF0.VF1").depends_on.as_deref(), Some("demo/sut"));
    // Everything below the second complex belongs to the peer.
    assert_eq!((entry("pci_0").domain.as_str(), entry("pci_1").domain.as_str()), ("primary", "demo/peer"));
}

#[test]
fn the_last_owner_counts() {
    let owners = owners(&[taken("0000:81:00.0", "sut"), taken("0000:81:00.0", "web")]);
    assert_eq!(owners.domain(at("0000:81:00.0")), "demo/web");
}

#[test]
fn a_device_without_driver_and_group_is_of_no_use() {
    let mut facts = facts();
    facts.iommu = false;
    for device in facts.devices.iter_mut().filter(|device| device.endpoint == "pci_1/01.0-00") {
        device.driver = None;
    }
    let list = IoList::of(facts, &Owners::default());
    let of = |name: &str| list.entries.iter().find(|entry| entry.name == name).expect("an entry").status;
    assert_eq!((of("pci_1/01.0-00"), of("pci_1/01.0-00/PF0")), (Some(IoStatus::Inv), Some(IoStatus::Inv)));
    assert_eq!((of("pci_0"), of("pci_0/03")), (None, Some(IoStatus::Occ)));
}

#[test]
fn a_name_selects_everything_below_it() {
    let list = IoList::of(facts(), &Owners::default());
    let select = |name: &str| lines(&list.select(name).expect("entries"));
    assert_eq!(select("pci_0/slot2/PF0").len(), 3);
    assert_eq!(select("pci_0/slot2").len(), 5);
    assert_eq!(select("pci_1").len(), 4);
    assert_eq!(select("eno1"), select("pci_0/slot2/PF0"));
    assert_eq!(select("0000:00:03.0"), ["pci_0/03 PCIE pci_0 primary OCC"]);
    let error = list.select("pci_0/slot").unwrap_err().to_string();
    assert!(error.contains("`pci_0/slot`"), "{error}");
}

#[test]
fn the_list_is_complete_in_json_too() {
    let list = IoList::of(facts(), &owners(&[taken("0000:01:10.0", "web")]));
    let json = serde_json::to_value(&list.entries).expect("JSON");
    let vf = json.as_array().expect("a list").iter().find(|entry| entry["name"] == "pci_0/slot2/PF0.VF0");
    let vf = vf.expect("the function");
    assert_eq!((&vf["type"], &vf["domain"]), (&"VF".into(), &"demo/web".into()));
    let function = &vf["function"];
    assert_eq!(function["device"], "0000:01:10.0");
    assert_eq!((&function["vf"]["vlan"], &function["vf"]["mac"]), (&7.into(), &"02:00:00:00:01:00".into()));
    for field in ["driver", "driver_override", "group", "node", "sriov", "netdev", "kept", "physfn"] {
        assert!(function.get(field).is_some(), "{field}");
    }
}

#[test]
fn slots_are_in_the_order_of_their_numbers() {
    let mut names = ["pci_10/03", "pci_2/slot10", "pci_2/slot2", "pci_2/1f", "pci_2/03", "pci_2/slotA"];
    names.sort_by_key(|name| rank(name));
    assert_eq!(names, ["pci_2/03", "pci_2/1f", "pci_2/slot2", "pci_2/slot10", "pci_2/slotA", "pci_10/03"]);
}

fn domain(name: &str) -> vtax_model::topology::Name {
    name.parse().expect("a name")
}

/// As on a machine that can assign devices to guests: each function has a separate IOMMU group, and the host uses none.
fn spare() -> PciFacts {
    let mut facts = facts();
    (facts.iommu, facts.vfio) = (true, Ok(()));
    for (group, device) in (20..).zip(&mut facts.devices) {
        (device.group, device.kept) = (Some(group), None);
        match &mut device.netdev {
            Some(link) => (link.upper, link.addresses) = (None, Vec::new()),
            None => device.driver = None,
        }
    }
    facts
}

fn assigned(facts: PciFacts, owners: &Owners, name: &str) -> Result<Vec<String>, AssignError> {
    let list = IoList::of(facts, owners);
    let found = list.assignable(name)?;
    list.check_assignable(&found, &domain("mars"))?;
    Ok(found.functions.iter().map(|function| function.device.to_string()).collect())
}

#[test]
fn a_domain_gets_all_functions_of_its_device() {
    let functions = |name| assigned(spare(), &Owners::default(), name);
    assert_eq!(functions("pci_0/slot2/PF0.VF0"), Ok(vec!["0000:01:10.0".to_owned()]));
    assert_eq!(functions("0000:01:10.0"), functions("pci_0/slot2/PF0.VF0"));
    assert_eq!(functions("pci_0/1f").map(|found| found.len()), Ok(2));
    assert_eq!(functions("pci_0/1f/F2").map(|found| found.len()), Ok(1));
    assert_eq!(functions("pci_1"), functions("pci_1/01.0-00"));
    // Devices that the domain already has are not an obstacle.
    let mut own = Owners::default();
    own.claim(at("0000:01:10.0"), domain("mars"));
    assert_eq!(assigned(spare(), &own, "pci_0/slot2/PF0.VF0"), functions("pci_0/slot2/PF0.VF0"));
}

#[test]
fn unavailable_devices_are_named_with_the_reason() {
    let told = |facts, owners: &Owners, name: &str| {
        format!("{name}: {}", assigned(facts, owners, name).expect_err("it is refused"))
    };
    let nobody = Owners::default();
    let mut venus = Owners::default();
    venus.claim(at("0000:01:10.0"), domain("venus"));
    let mut shared = spare();
    let at_1f: Vec<usize> =
        (0..shared.devices.len()).filter(|at| shared.devices[*at].name.starts_with("pci_0/1f")).collect();
    shared.devices[at_1f[0]].group = shared.devices[at_1f[1]].group;
    let mut kept = spare();
    kept.devices.iter_mut().for_each(|device| device.kept = Some("it carries the default route (eno1)".to_owned()));
    let ungrouped = || {
        let mut facts = spare();
        facts.devices.iter_mut().for_each(|device| device.group = None);
        facts
    };
    let without_vfio = PciFacts { vfio: facts().vfio, iommu: false, ..spare() };
    let lines = [
        told(spare(), &nobody, "pci_0/solt2"),
        told(spare(), &nobody, "pci_0/slot2/PF1.VF3"),
        told(spare(), &nobody, "pci_0/slot2/PF0"),
        told(spare(), &nobody, "pci_1/slot5"),
        told(spare(), &nobody, "pci_0/slot2"),
        told(spare(), &venus, "pci_0/slot2/PF0.VF0"),
        told(spare(), &owners(&[taken("0000:01:10.0", "web")]), "pci_0/slot2/PF0.VF0"),
        told(shared, &nobody, "pci_0/1f/F2"),
        told(kept, &nobody, "pci_1"),
        told(ungrouped(), &nobody, "pci_1"),
        told(without_vfio, &nobody, "pci_1"),
        IoList::of(spare(), &nobody).bus("pci_0/slot2").expect_err("a slot").to_string(),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}
