//! Steps as journals contain them, and decisions of the undo that need no kernel.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tempfile::TempDir;
use vtax_change::pci::{DriverState, VfSettings};
use vtax_guest::{LinkName, launch::Launch};
use vtax_journal::Undone;
use vtax_model::{domain::LinkProp, topology::Name};

use crate::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Returns the site of a lab in a directory of the test.
fn lab() -> (TempDir, StepSite) {
    let folder = tempfile::tempdir().expect("a directory");
    fs::create_dir(folder.path().join("pins")).expect("ours");
    let site = StepSite::of_lab(&name("rack"), folder.path(), "pins");
    (folder, site)
}

fn launch(directory: &Path) -> Value {
    json!({
        "name": "mars", "directory": directory,
        "qemu": { "path": "/usr/bin/qemu-system-x86_64", "version": { "major": 8, "minor": 2 }, "sandbox": true },
        "accel": "kvm", "vcpus": 2, "memory": 268_435_456, "hugepages": false, "node": null,
        "boot": { "boot": "kernel", "kernel": "/boot/a b", "initramfs": "/run/initramfs", "append": [] }, "nics": [],
        "seed": null, "spare_ports": 4, "paused": true, "has_events": true,
    })
}

fn claim() -> Value {
    json!({
        "owner": "mars", "device": "0000:01:10.0", "function_of": ["0000:01:00.0", 0],
        "was": { "settings": { "mac": "00:00:00:00:00:00" }, "driver": "igbvf", "driver_override": null },
    })
}

/// Checks that a step can be parsed and described, and is serialized unchanged.
fn is_kept<S: PartStep + Serialize + DeserializeOwned>(step: Value, words: &str) {
    let read: S = serde_json::from_value(step.clone()).unwrap_or_else(|error| panic!("{words}: {error}"));
    assert_eq!(read.describe(), words);
    assert_eq!(serde_json::to_value(&read).expect("JSON"), step, "{words}");
}

#[test]
fn steps_on_links_are_written_as_they_were_read() {
    let wire = json!({ "namespace": "sut", "link": "wire0" });
    let link = |kind: Value| json!({ "at": { "namespace": "web", "link": "eth0" }, "kind": kind, "mtu": 1500 });
    for (kind, words) in [
        (json!({ "kind": "veth", "peer": wire }), "veth to sut/wire0"),
        (json!({ "kind": "bridge" }), "bridge"),
        (json!({ "kind": "bridge", "snooping": true }), "bridge with multicast snooping"),
        (json!({ "kind": "bridge", "snooping": false }), "bridge without multicast snooping"),
        (json!({ "kind": "tap", "queues": 1 }), "tap"),
        (json!({ "kind": "tap", "queues": 4 }), "tap of 4 queues"),
        (json!({ "kind": "macvlan", "parent": wire }), "macvlan (bridge mode) on sut/wire0"),
        (json!({ "kind": "ipvlan", "parent": wire }), "ipvlan (l2) on sut/wire0"),
        (
            json!({ "kind": "macvtap", "parent": wire, "mac": "02:00:5e:10:00:01" }),
            "macvtap (bridge mode) on sut/wire0, address 02:00:5e:10:00:01",
        ),
        (
            json!({ "kind": "vxlan", "parent": wire, "vni": 7, "local": "198.18.0.1", "remote": "198.18.0.2" }),
            "vxlan 7 on sut/wire0 from 198.18.0.1 to 198.18.0.2 port 4789",
        ),
    ] {
        is_kept::<CreateLink>(link(kind), &format!("link web/eth0: {words}, mtu 1500"));
    }
    is_kept::<EnableLink>(
        json!({ "at": wire, "bridge": null, "mark": "vtax:rack:w0" }),
        "up sut/wire0, marked vtax:rack:w0",
    );
    is_kept::<AddAddress>(json!({ "at": wire, "address": "198.18.0.1/24" }), "address 198.18.0.1/24 on sut/wire0");
    for (to, words) in [
        ("0.0.0.0/0", "default route of web via 198.18.0.1"),
        ("198.18.9.0/24", "route of web to 198.18.9.0/24 via 198.18.0.1"),
    ] {
        is_kept::<AddRoute>(json!({ "namespace": "web", "to": to, "via": "198.18.0.1" }), words);
    }
    let limit = json!({ "rate": "1 Gbit/s", "burst": 250_000, "queue": 6_250_000 });
    let words = "limit of sut/wire0: 1 Gbit/s, burst 250000 B, queue 6250000 B";
    is_kept::<LimitRate>(json!({ "at": wire, "limit": limit }), words);
    let limit = json!({ "tap": "vnet2.0", "through": "ifb2.0", "mark": "vtax-ldm:mars", "limit": limit });
    is_kept::<LimitTap>(limit, "limit of vnet2.0: 1 Gbit/s");
}

#[test]
fn steps_on_devices_are_written_as_they_were_read() {
    let (nic, vf) = ("0000:01:00.0", "0000:01:10.0");
    let at = json!({ "namespace": "sut", "link": "wire1" });
    is_kept::<CreateVfs>(
        json!({ "device": nic, "at": at, "count": 2, "autoprobe": true }),
        "virtual functions of 0000:01:00.0: 2",
    );
    is_kept::<CreateVfs>(
        json!({ "device": nic, "count": 1, "functions": [vf], "autoprobe": false }),
        "virtual functions of 0000:01:00.0: 0000:01:10.0",
    );
    is_kept::<ProbeVfs>(json!({ "device": nic, "mtu": null }), "drivers of the virtual functions of 0000:01:00.0");
    let function =
        json!({ "pf": nic, "index": 1, "device": vf, "driver": "iavf", "set": { "trust": true }, "was": null });
    let words = "function 1 of 0000:01:00.0: trust on; driver of 0000:01:10.0: iavf";
    is_kept::<LendVf>(json!({ "at": at, "function": function }), words);
    let was = json!({ "driver": null, "driver_override": null });
    is_kept::<AssignDevice>(json!({ "device": nic, "was": was }), "driver of 0000:01:00.0: vfio-pci");
    let claims = json!({ "claims": "/run/vtax/devices", "claim": claim(), "set": {} });
    is_kept::<AssignFunction>(claims, "0000:01:10.0 for mars");
}

/// The step of a lab contains the host of the guest; that of a domain doesn't.
#[test]
fn the_command_of_a_guest_is_printed_as_a_shell_takes_it() {
    let step = |host: Value| {
        let mut step = json!({ "launch": launch("/run/vtax/domains/mars/qemu".as_ref()), "cpus": [] });
        if !host.is_null() {
            step["host"] = host;
        }
        step
    };
    is_kept::<StartGuest>(step(Value::Null), "QEMU of mars");
    is_kept::<StartGuest>(step(json!("sut")), "guest mars in sut");
    let read: StartGuest = serde_json::from_value(step(Value::Null)).expect("a step");
    let full = read.in_full();
    assert!(full.starts_with("QEMU of mars") && full.contains("/usr/bin/qemu-system-x86_64 "), "{full}");
    assert!(full.contains("'/boot/a b'"), "{full}");
}

/// The file of a journal may outlive the vtax that wrote it.
#[test]
fn steps_without_the_fields_of_later_versions_have_their_previous_meaning() {
    let switch = json!({ "link": "vsw0", "mac": null, "mtu": 1500, "mark": "vtax-ldm:vsw0", "vlans": null });
    let switch: CreateSwitch = serde_json::from_value(switch).expect("a step");
    assert!(!switch.guards_addresses);
    let tap = json!({
        "vnet": "net0", "link": "vnet2.0", "switch": "vsw0", "mtu": 1500, "mark": "vtax-ldm:mars", "vlans": null,
        "uplink": null,
    });
    let tap: CreateTap = serde_json::from_value(tap).expect("a step");
    assert_eq!((tap.macs.len(), tap.linkprop), (0, LinkProp::None));
    let vfs: CreateVfs =
        serde_json::from_value(json!({ "device": "0000:01:00.0", "count": 2, "autoprobe": true })).expect("a step");
    assert_eq!((vfs.at, vfs.functions), (None, None));
    let driver: DriverState =
        serde_json::from_value(json!({ "driver": "igb", "driver_override": null })).expect("a state");
    assert!(driver.link.is_none() && !driver.has_disk);
    let start: StartGuest =
        serde_json::from_value(json!({ "launch": launch("/x".as_ref()), "cpus": [] })).expect("a step");
    assert_eq!((start.host, start.launch.disks.ports), (None, 0));
}

fn undone<S: PartStep>(step: &S, site: &mut StepSite) -> Undone {
    step.undo(None, site).unwrap_or_else(|error| panic!("{}: {error}", step.describe()))
}

/// The namespace is undone next, so it is not opened for this.
#[test]
fn objects_in_a_namespace_of_the_journal_are_removed_with_it() {
    let (_folder, mut site) = lab();
    let at = Place::wire(&name("sut"), 0);
    let mtu = 1500.try_into().expect("an MTU");
    let link = CreateLink { at: at.clone(), kind: LinkRecipe::Bridge { snooping: None }, mtu };
    let enabled = EnableLink { at: at.clone(), bridge: None, mark: "vtax:rack:w0".to_owned() };
    let (namespace, key, value) = (name("sut"), "net.ipv4.ip_forward".to_owned(), "1".to_owned());
    let sysctl = SetSysctl { namespace, key, value };
    let device = "0000:01:10.0".parse().expect("an address");
    let taken = TakeNic { device, at: at.clone(), mtu, was: None };
    let pf = "0000:01:00.0".parse().expect("an address");
    let (driver, set) = ("vfio-pci".to_owned(), VfSettings::default());
    let function = Box::new(LentVf { pf, index: 0, device, driver, set, was: None });
    let lent = LendVf { at, function };
    assert_eq!(undone(&link, &mut site), Undone::Contained);
    assert_eq!(undone(&enabled, &mut site), Undone::Contained);
    assert_eq!(undone(&sysctl, &mut site), Undone::Contained);
    assert_eq!(undone(&taken, &mut site), Undone::Contained, "a link of a function that the plan has made");
    assert_eq!(undone(&lent, &mut site), Undone::Contained, "the same");
}

/// QEMU has exited, so devices plugged into it no longer exist.
#[test]
fn devices_plugged_into_an_exited_guest_no_longer_exist() {
    let (folder, mut site) = lab();
    let launch: Launch = serde_json::from_value(launch(folder.path())).expect("a guest");
    let plug = |process: &str| {
        let nic = json!({ "mac": "02:00:5e:10:00:01", "kind": { "kind": "vfio", "device": "0000:01:10.0", "driver": "vfio-pci" } });
        let nic = Box::new(serde_json::from_value(nic).expect("a NIC"));
        PlugNic { launch: Box::new(launch.clone()), process: process.to_owned(), port: 1, nic }
    };
    assert_eq!(undone(&plug("4194303@1"), &mut site), Undone::AlreadyGone);
    let error = plug("nonsense").undo(None, &mut site).expect_err("no process").to_string();
    assert!(error.contains("mars"), "{error}");
    let device = "0000:01:10.0".parse().expect("an address");
    let (process, launch) = ("4194303@1".to_owned(), Box::new(launch));
    let device = PlugDevice { launch, process, port: 1, name: "vf0".to_owned(), device };
    assert_eq!(undone(&device, &mut site), Undone::AlreadyGone);
}

fn claimed(folder: &Path) -> (DeviceClaims, DeviceClaim) {
    let mut claim: DeviceClaim = serde_json::from_value(claim()).expect("a claim");
    // This address exists on no machine.
    claim.device = "ffff:ff:1f.7".parse().expect("an address");
    (DeviceClaims::below(folder.join("devices")), claim)
}

#[test]
fn a_device_that_another_domain_has_by_now_is_not_given_back() {
    let (folder, mut site) = lab();
    let (claims, claim) = claimed(folder.path());
    let step = |claim: &DeviceClaim| AssignFunction {
        claims: claims.clone(),
        claim: Box::new(claim.clone()),
        set: VfSettings::default(),
    };
    assert_eq!(undone(&step(&claim), &mut site), Undone::AlreadyGone, "it was never claimed");
    claims.take(&claim).expect("it is free");
    let venus = DeviceClaim { owner: name("venus"), ..claim.clone() };
    assert_eq!(undone(&step(&venus), &mut site), Undone::AlreadyGone);
    assert_eq!(claims.find(claim.device).expect("it is whole"), Some(claim.clone()), "mars still has it");
    // The device itself was removed from the machine.
    assert_eq!(undone(&step(&claim), &mut site), Undone::AlreadyGone);
    assert_eq!(claims.find(claim.device).expect("it is whole"), None);
}

#[test]
fn a_damaged_claim_is_not_given_back() {
    let (folder, mut site) = lab();
    let (claims, claim) = claimed(folder.path());
    claims.take(&claim).expect("it is free");
    let path = folder.path().join("devices").join(claim.device.to_string());
    fs::write(&path, "damaged\n").expect("ours");
    let step = AssignFunction { claims, claim: Box::new(claim), set: VfSettings::default() };
    let error = step.undo(None, &mut site).expect_err("it is damaged").to_string();
    assert!(error.contains("ffff:ff:1f.7") && path.exists(), "{error}");
}

#[test]
fn a_namespace_at_the_path_of_another_is_refused() {
    let (folder, mut site) = lab();
    let sut = name("sut");
    assert_eq!(site.pin(&sut), folder.path().join("pins/sut"));
    assert!(site.check_pinned(&sut, &StepReceipt(None)).is_err(), "there is none");
    symlink("/proc/self/ns/net", site.pin(&sut)).expect("ours");
    let own = vtax_sys::netns::NetNs::current().expect("a namespace").id().to_string();
    let replaced = |error: StepError| matches!(error, StepError::Replaced { namespace } if namespace == name("sut"));
    site.check_pinned(&sut, &StepReceipt(Some(own))).expect("it is the one");
    for receipt in [StepReceipt(Some("1:2".to_owned())), StepReceipt(None)] {
        assert!(site.check_pinned(&sut, &receipt).is_err_and(replaced), "{receipt:?}");
    }
    site.recall(&sut, &StepReceipt(Some("1:2".to_owned())));
    assert!(site.namespace(&sut).is_err_and(replaced));
    assert!(site.at(&Place::wire(&sut, 0)).is_err(), "its links are not reached either");
}

#[test]
fn building_stops_only_in_a_lab_and_only_on_the_users_request() {
    let (_folder, mut site) = lab();
    let stopped = StopFlag::default();
    site.until(&stopped);
    site.check_goes_on().expect("nobody has stopped it");
    stopped.clone().set();
    assert!(matches!(site.check_goes_on(), Err(StepError::Stopped { name }) if name.as_str() == "rack"));
    let namespace = vtax_sys::netns::NetNs::current().expect("a namespace").into();
    let mut host = StepSite::of_host(&namespace, None);
    host.until(&stopped);
    host.check_goes_on().expect("a host of domains is not built");
}

#[test]
fn a_receipt_names_a_process_only_if_it_is_one() {
    let process = |text: &str| StepReceipt(Some(text.to_owned())).process().map(|process| process.to_string());
    assert_eq!(process("4712@900").as_deref(), Some("4712@900"));
    assert_eq!([process("7"), process("4026531840:4"), process("")], [None, None, None]);
    assert_eq!(StepReceipt::default().process(), None);
    assert_eq!(serde_json::to_value(StepReceipt::default()).expect("JSON"), Value::Null);
}

#[test]
fn a_place_is_written_with_its_namespace() {
    let sut = name("sut");
    let places = [
        (Place::zone(&sut), "sut/eth0"),
        (Place::wire(&sut, 1), "sut/wire1"),
        (Place::switch(&sut, 2), "sut/vsw2"),
        (Place::vnet(&sut, 3), "sut/vnet3"),
        (Place::tunnel(&sut, 4), "sut/vxlan4"),
        (Place::new(&sut, LinkName::new("lo")), "sut/lo"),
    ];
    for (place, words) in places {
        assert_eq!(place.to_string(), words);
    }
}

/// A plugged NIC never has the index of a NIC with which its domain was started.
#[test]
fn a_plugged_nic_has_a_unique_number() {
    use vtax_model::domain::{Configuration, VirtualNic};
    let most = VirtualNic::MOST as usize + Configuration::MOST_SERVED;
    assert_eq!([0, 1, 7].map(plugged_index), [most, most + 1, most + 7]);
}
