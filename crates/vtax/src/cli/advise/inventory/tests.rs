use serde_json::{Value, json};

use vtax_model::{advice::RequirementOptions, method::IoMethod};

use super::*;

fn device(address: &str, root: &str, group: u32, more: &Value) -> Value {
    let mut device = json!({
        "device": address, "name": address, "endpoint": address, "root": root, "id": "8086:10c9", "class": 0x02_0000,
        "driver": "igb", "driver_override": null, "group": group, "node": null, "link": null, "netdev": null,
        "physfn": null, "virtfns": [], "sriov": null, "vf": null, "kept": null,
    });
    let more = more.as_object().expect("an object").clone();
    device.as_object_mut().expect("an object").extend(more);
    device
}

/// Two root complexes: the host needs a disk and a NIC of the first one; nobody has the second one.
fn facts(lent: &[&str]) -> Facts {
    let sriov = |num: u32| json!({ "total": 7, "num": num, "autoprobe": true, "vf_device": 0x10ca, "offset": 128, "stride": 2 });
    let netdev = |name: &str| json!({ "name": name, "mac": null, "mtu": 1500, "max_mtu": null, "up": true, "addresses": [], "upper": null });
    let devices = json!([
        device("0000:00:01.0", "pci_0", 1, &json!({ "class": 0x01_0802, "kept": "it has the root file system" })),
        device(
            "0000:01:00.0",
            "pci_0",
            2,
            &json!({
                "kept": "it carries the default route", "sriov": sriov(1), "virtfns": ["0000:01:10.0"], "netdev": netdev("eno1"),
            })
        ),
        device("0000:01:10.0", "pci_0", 3, &json!({ "physfn": "0000:01:00.0" })),
        device("0000:81:00.0", "pci_1", 4, &json!({ "sriov": sriov(0), "netdev": netdev("eno3") })),
        device("0000:81:00.1", "pci_1", 4, &json!({ "sriov": sriov(0), "netdev": netdev("eno4") })),
    ]);
    let roots = json!([
        { "name": "pci_0", "domain": 0, "bus": 0 },
        { "name": "pci_1", "domain": 0, "bus": 128 },
    ]);
    let pci = json!({ "iommu": true, "vfio": { "Ok": null }, "roots": roots, "slots": [], "devices": devices });
    let lent: serde_json::Map<String, Value> =
        lent.iter().map(|address| ((*address).to_owned(), json!("rack/web"))).collect();
    let facts = json!({
        "kinds": {}, "in_use": [], "labs": [], "most_namespaces": 100, "pci": pci, "lent": lent, "guests": null,
    });
    serde_json::from_value(facts).expect("facts")
}

fn of(facts: &Facts, devices: &[RequiredDevice]) -> [u32; 4] {
    let options = RequirementOptions { device: devices.to_vec(), ..RequirementOptions::default() };
    let requirements = Requirements::new(options).expect("good requirements");
    let Inventory { functions, devices, root_complexes, wires, .. } = counts(facts, &requirements);
    [functions, devices, root_complexes, wires].map(|count| count.expect("known"))
}

#[test]
fn only_what_the_host_can_spare_is_free() {
    let facts = facts(&[]);
    // The NIC of the host has a function that is free; new ones would need a NIC that the host can spare.
    assert_eq!(of(&facts, &[]), [1 + 7 + 7, 1, 1, 2]);
    assert_eq!(of(&facts, &[RequiredDevice::Pci]), [15, 1, 1, 2]);
}

#[test]
fn a_device_of_a_domain_is_not_free() {
    assert_eq!(of(&facts(&["0000:01:10.0"]), &[]), [14, 1, 1, 2]);
    // The other NIC of its IOMMU group cannot be assigned alone.
    assert_eq!(of(&facts(&["0000:81:00.0"]), &[]), [8, 0, 0, 1]);
}

#[test]
fn the_driver_is_that_of_all_nics_or_of_the_cable() {
    let mut facts = facts(&[]);
    assert_eq!(driver(&facts.pci, None).expect("no cable").as_deref(), Some("igb"));
    facts.pci.devices[3].driver = Some("mlx5_core".to_owned());
    assert_eq!(driver(&facts.pci, None).expect("no cable"), None);
    let cable = "eno3,eno4".parse().expect("a cable");
    assert_eq!(driver(&facts.pci, Some(&cable)).expect("two NICs").as_deref(), Some("mlx5_core"));
    let wrong = "eno7,eno8".parse().expect("a cable");
    assert!(driver(&facts.pci, Some(&wrong)).expect_err("no such NIC").to_string().contains("eno7"));
}

#[test]
fn guests_are_unavailable_without_the_agent_and_zones_are_not() {
    let facts = facts(&[]);
    let no_agent = Unsupported { why: "no vtax-agent".into(), remedy: "install it".into() };
    let lacking = unavailable(&facts, Some(&no_agent));
    let is_lacking = |method: IoMethod, domain: DomainKind| {
        lacking.iter().any(|(variant, _)| variant.method == method && variant.domain == domain)
    };
    assert!(is_lacking(IoMethod::Paravirtual, DomainKind::Guest) && is_lacking(IoMethod::SrIov, DomainKind::Guest));
    assert!(!is_lacking(IoMethod::Bridge, DomainKind::Zone) && !is_lacking(IoMethod::SrIov, DomainKind::Zone));
}
