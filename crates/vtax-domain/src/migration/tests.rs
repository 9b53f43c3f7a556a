use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};
use vtax_guest::launch::{Boot, GuestEngine, Launch, QemuProgram, Version};
use vtax_model::{
    domain::{Configuration, DomainState, Volume},
    guest::{Accelerator, GuestSize},
    topology::Name,
    units::ByteSize,
};

use super::{
    MigrationNames, MigrationOffer, MigrationVerdict, Obstacle, ObstacleText,
    arrive::incoming,
    check,
    offer::{OfferedDisk, OfferedGuest},
    source,
    target::{TargetFacts, TargetGuests},
};
use crate::{
    backend::{BackendError, BackendId, DiskBackend},
    bindings::{Bindings, BoundConsole},
    capacity::HostCapacity,
    store::StoredState,
    switch::SwitchAbilities,
    test_domains::bindings,
};

const GIB: u64 = 1 << 30;
const SIZE: ByteSize = ByteSize(GIB);

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn configuration(host: &str, domains: Value) -> Configuration {
    let switch = json!({ "service": "primary", "mtu": 1500, "default_vlan": 1, "pvid": 1 });
    let volume = json!({ "backend": "/srv/data.img" });
    let all = json!({
        "host": host,
        "domains": domains,
        "switches": { "admin-vsw": switch },
        "consoles": { "vcc": { "domain": "primary", "ports": "5000-5001" } },
        "disk_services": { "vds0": { "domain": "primary", "volumes": { "data": volume } } },
    });
    serde_json::from_value(all).expect("a configuration")
}

/// mars as in Oracle's articles: two vCPUs, a vnet and a disk.
fn mars() -> Value {
    json!({
        "cpus": { "vcpus": 2 },
        "memory": GIB,
        "vnets": [{ "name": "net0", "switch": "admin-vsw", "mac": "00:14:4f:f9:c4:13", "id": 0, "pvid": 1, "vids": [11] }],
        "disks": [{ "name": "disk0", "volume": "data@vds0", "id": 0 }],
        "console": { "service": "vcc" },
        "masters": ["venus"],
    })
}

fn launch(vcpus: u32) -> Launch {
    let version = Version { major: 10, minor: 0 };
    let engine = GuestEngine {
        qemu: QemuProgram { path: PathBuf::from("/usr/bin/qemu"), version, sandbox: false, q35: None, qboot: None },
        accel: Accelerator::Kvm,
        boot: Boot::Kernel { kernel: "/boot/vmlinuz".into(), initramfs: "/run/initramfs".into(), append: Vec::new() },
    };
    Launch::new(name("mars"), "/run/mars".into(), engine, &GuestSize { vcpus, memory: SIZE, ..GuestSize::default() })
}

fn offer(mars: Value) -> MigrationOffer {
    let all = configuration("hosta", json!({ "mars": mars, "venus": {} }));
    let now = all.domain(&name("mars")).expect("it exists").clone();
    let mut offer = MigrationOffer::new(&name("mars"), &all, now, "boot".to_owned());
    offer.state = DomainState::Active;
    offer.disks = vec![OfferedDisk { name: name("disk0"), id: BackendId { device: 8, inode: 7 }, size: SIZE }];
    let features = ["aes", "avx512f"].map(Into::into).into();
    offer.guest = Some(OfferedGuest { launch: Box::new(launch(2)), features });
    offer
}

/// The target; each test changes one aspect of it.
struct Target {
    state: Value,
    others: Vec<Bindings>,
    available: u64,
    cores: Vec<Vec<u32>>,
    vlans: bool,
    guests: Result<TargetGuests, &'static str>,
    boot: &'static str,
    size: Result<ByteSize, &'static str>,
    is_free: bool,
    /// True if the files to which disks are copied have no data.
    is_empty: bool,
    free: ByteSize,
}

impl Target {
    /// A host that mars can move to.
    fn new() -> Target {
        let features: BTreeSet<_> = ["aes", "avx512f", "avx2"].map(Into::into).into();
        let (qemu, accel) = (Version { major: 10, minor: 1 }, Accelerator::Kvm);
        let guests = TargetGuests { qemu, accel, has_qboot: false, features };
        Target {
            state: json!({ "format": 1, "configuration": configuration("hostb", json!({ "venus": {} })) }),
            others: Vec::new(),
            available: 8 * GIB,
            cores: vec![vec![0], vec![1], vec![2], vec![3]],
            vlans: true,
            guests: Ok(guests),
            boot: "boot",
            size: Ok(SIZE),
            is_free: true,
            is_empty: true,
            free: SIZE,
        }
    }

    fn verdict(&self, offer: &MigrationOffer) -> MigrationVerdict {
        let state: StoredState = serde_json::from_value(self.state.clone()).expect("a state");
        let capacity = HostCapacity {
            cores: self.cores.clone(),
            memory: ByteSize(16 * GIB),
            available: ByteSize(self.available),
            uptime: Duration::ZERO,
        };
        let look = |volume: &Volume| match self.size {
            Ok(size) => {
                let id = BackendId { device: 8, inode: if volume.backend.ends_with("more.img") { 9 } else { 7 } };
                Ok(DiskBackend { path: volume.backend.clone().into(), id, is_device: false, size })
            }
            Err(_) => Err(BackendError::NoDisk { path: volume.backend.clone().into() }),
        };
        let facts = TargetFacts {
            state: &state,
            others: &self.others,
            capacity: &capacity,
            abilities: SwitchAbilities { vlans: self.vlans, guards_addresses: true },
            guests: self.guests.clone().map_err(Into::into),
            boot: self.boot,
            look: &look,
            is_empty: &|_| self.is_empty,
            free: &|_| self.free,
            is_free: &|_| self.is_free,
        };
        offer.check().expect("an honest offer");
        check::verdict(offer, &name("mars"), &facts).expect("all are obstacles")
    }

    fn told(&self, offer: &MigrationOffer) -> Vec<String> {
        told(&self.verdict(offer).obstacles)
    }
}

fn told(obstacles: &[Obstacle]) -> Vec<String> {
    let names = MigrationNames { domain: name("mars"), target: "hostb".to_owned() };
    ObstacleText::of_all(obstacles, &names).iter().map(ToString::to_string).collect()
}

/// Checks that a change of the target is the only obstacle.
fn only(why: &str, change: impl FnOnce(&mut Target)) {
    only_of(mars(), why, change);
}

fn only_of(mars: Value, why: &str, change: impl FnOnce(&mut Target)) {
    let mut target = Target::new();
    change(&mut target);
    let told = target.told(&offer(mars));
    assert!(told.len() == 1 && told[0].contains(why), "{why}: {told:#?}");
}

#[test]
fn a_host_with_everything_takes_the_domain() {
    assert_eq!(Target::new().told(&offer(mars())), [""; 0]);
}

#[test]
fn each_network_obstacle_is_reported_with_its_remedy() {
    only("admin-vsw: hostb has no switch of this name, which net0 requires; create it there", |target| {
        target.state["configuration"]["switches"] = json!({});
    });
    only("the kernel of hostb cannot isolate VLANs", |target| target.vlans = false);
    let mut untagged = mars();
    untagged["vnets"][0].as_object_mut().expect("a vnet").remove("pvid");
    only_of(untagged, "untagged frames are in VLAN 1, and at hostb would be in VLAN 7", |target| {
        target.state["configuration"]["switches"]["admin-vsw"]["default_vlan"] = json!(7);
    });
    only("net0: its MTU is 1500, and the switch admin-vsw at hostb has 9000; set it there", |target| {
        target.state["configuration"]["switches"]["admin-vsw"]["mtu"] = json!(9000);
    });
    only("its address 00:14:4f:f9:c4:13 is also that of net9 of venus at hostb", |target| {
        let vnet = json!({ "name": "net9", "switch": "admin-vsw", "mac": "00:14:4f:f9:c4:13", "id": 0 });
        target.state["configuration"]["domains"]["venus"]["vnets"] = json!([vnet]);
    });
}

#[test]
fn each_missing_resource_is_reported() {
    only("memory: mars has 1 GiB, and hostb has 512 MiB available", |target| target.available = 768 << 20);
    only("CPU: mars has 2 CPUs, and hostb has 1 available: pluto has 3 CPUs", |target| {
        target.others = vec![bindings("pluto", &[1, 2, 3], SIZE)];
    });
    let of_cores = |cpus: Value| json!({ "cpus": cpus, "memory": GIB });
    let mut whole = mars();
    whole["cpus"] = json!({ "cores": 9 });
    only_of(whole, "CPU: mars has 9 cores, and hostb has 3 available", |_| {});
    let mut named = mars();
    named["cpus"] = json!({ "cids": [9] });
    only_of(named.clone(), "core 9: hostb has cores 0 to 3", |_| {});
    named["cpus"] = json!({ "cids": [3] });
    only_of(named, "core 3: pluto has it at hostb", |target| target.others = vec![bindings("pluto", &[3], SIZE)]);
    let mut threads = offer(mars());
    threads.configuration.domains.get_mut(&name("mars")).expect("it exists").cpus =
        serde_json::from_value(of_cores(json!({ "cores": 1 }))["cpus"].clone()).expect("a demand");
    let told = Target::new().told(&threads);
    assert!(told.len() == 1 && told[0].contains("its cores would have 1 threads at hostb"), "{told:#?}");
}

#[test]
fn each_processor_difference_is_reported() {
    only("CPU: hostb lacks avx512f, which is exposed to mars; stop it first", |target| {
        let guests = target.guests.as_mut().expect("it has QEMU");
        guests.features = ["aes"].map(Into::into).into();
    });
    only("the machine type of mars, pc-q35-10.0, requires QEMU 10.0, and hostb has 8.2", |target| {
        target.guests.as_mut().expect("it has QEMU").qemu = Version { major: 8, minor: 2 };
    });
    only("QEMU: mars runs under KVM, and would run under TCG at hostb", |target| {
        let guests = target.guests.as_mut().expect("it has QEMU");
        (guests.accel, guests.features) = (Accelerator::Tcg, BTreeSet::new());
    });
    only("hostb cannot run domains: no QEMU", |target| target.guests = Err("no QEMU"));
}

#[test]
fn a_firmware_that_the_target_lacks_is_reported() {
    let (mut target, mut offer) = (Target::new(), offer(mars()));
    offer.guest.as_mut().expect("it runs").launch.qboot = Some("/usr/share/qemu/qboot.rom".into());
    let told = target.told(&offer);
    assert!(told.len() == 1 && told[0].contains("qboot, is not installed with QEMU at hostb"), "{told:#?}");
    target.guests.as_mut().expect("it has QEMU").has_qboot = true;
    assert_eq!(target.told(&offer), [""; 0]);
}

#[test]
fn a_newer_qemu_gives_a_guest_the_machine_and_firmware_that_it_has() {
    let (mut here, mut there) = (launch(2), launch(2));
    (here.machine, there.machine) = ("pc-q35-10.0".parse().ok(), "pc-q35-10.1".parse().ok());
    let qboot = Some(PathBuf::from("/usr/share/qemu/qboot.rom"));
    there.qemu.qboot.clone_from(&qboot);
    let prepare = |here: &Launch| incoming(&name("mars"), here, there.clone()).expect("the guest finds no difference");
    assert_eq!((prepare(&here).machine, prepare(&here).qboot), (here.machine.clone(), None));
    here.qboot.clone_from(&qboot);
    assert_eq!(prepare(&here).qboot, qboot);
    there.qemu.qboot = None;
    let refused = incoming(&name("mars"), &here, there).expect_err("it has another firmware").to_string();
    assert!(refused.contains("qboot here, SeaBIOS there"), "{refused}");
}

#[test]
fn each_disk_difference_is_reported() {
    only("disk0: hostb exports no volume data@vds0; export the same storage there", |target| {
        target.state["configuration"]["disk_services"] = json!({});
    });
    only("disk0: at hostb, /srv/data.img is neither a file nor a block device", |target| target.size = Err("none"));
    only("disk0: it has 1 GiB, and /srv/data.img at hostb has 2 GiB", |target| target.size = Ok(ByteSize(2 * GIB)));
    only("disk0: /srv/data.img at hostb is not shown to be the same storage", |target| target.boot = "another");
    only("the volume data@vds0 is read-only at one of the hosts only", |target| {
        target.state["configuration"]["disk_services"]["vds0"]["volumes"]["data"]["options"] = json!(["ro"]);
    });
    let mut image = mars();
    image["variables"] = json!({ "image": "/srv/mars.qcow2" });
    only_of(image.clone(), "image: /srv/mars.qcow2 at hostb is not shown to be the same storage", |_| {});
    image["variables"] = json!({ "kernel": "/boot/vmlinuz-6" });
    assert_eq!(Target::new().told(&offer(image)), [""; 0]);
}

/// Between two machines, there is no evidence of shared storage.
fn copying(mars: Value) -> (MigrationOffer, Target) {
    let mut offer = offer(mars);
    offer.copy_disks = true;
    (offer, Target { boot: "another", ..Target::new() })
}

#[test]
fn a_disk_that_only_the_source_has_is_copied() {
    let (offer, mut target) = copying(mars());
    let verdict = target.verdict(&offer);
    assert_eq!((told(&verdict.obstacles).len(), verdict.copies.len()), (0, 1));
    assert_eq!((verdict.copies[0].disk.as_str(), verdict.copies[0].size), ("disk0", SIZE));
    target.boot = "boot";
    assert_eq!(target.verdict(&offer), MigrationVerdict::default(), "both hosts have it");
}

#[test]
fn each_reason_against_a_copy_is_reported() {
    let only = |why: &str, change: &dyn Fn(&mut Target, &mut MigrationOffer)| {
        let (mut offer, mut target) = copying(mars());
        change(&mut target, &mut offer);
        let told = target.told(&offer);
        assert!(told.len() == 1 && told[0].contains(why), "{why}: {told:#?}");
        assert!(target.verdict(&offer).copies.len() == usize::from(why.contains("are free")), "{why}");
    };
    only("disk0: /srv/data.img at hostb has data, which the copy would overwrite", &|target, _| {
        target.is_empty = false;
    });
    only("have 1 GiB, and 512 MiB are free", &|target, _| target.free = ByteSize(GIB / 2));
    only("it has 1 GiB, and /srv/data.img at hostb has 2 GiB", &|target, _| target.size = Ok(ByteSize(2 * GIB)));
    only("disk0: mars is not active, and vtax copies disks only", &|_, offer| offer.state = DomainState::Bound);
    only("it is a block device at one of the hosts", &|_, offer| offer.disks[0].id.inode = 0);
    let volume = |property: &'static str, value: Value, why: &str| {
        only(why, &|target, offer| {
            let there = &mut target.state["configuration"]["disk_services"]["vds0"]["volumes"]["data"];
            there[property] = value.clone();
            let all = serde_json::from_value(target.state["configuration"].clone()).expect("a configuration");
            let all: Configuration = all;
            offer.configuration.disk_services = all.disk_services;
        });
    };
    volume("options", json!(["ro"]), "it is read-only, which vtax does not copy");
    volume("format", json!("qcow2"), "it is a qcow2 image, which vtax does not copy");
    volume("slice", json!("1M+1M"), "it is a part of its backend (slice)");
    volume("mpgroup", json!("both"), "it has several paths (mpgroup)");
}

/// Two disks of 1 GiB each, on one file system with space for one.
#[test]
fn all_copies_on_a_file_system_share_its_space() {
    let mut two = mars();
    let disks = two["disks"].as_array_mut().expect("a list");
    disks.push(json!({ "name": "disk1", "volume": "more@vds0", "id": 1 }));
    let (mut offer, mut target) = copying(two);
    let more = json!({ "backend": "/srv/more.img" });
    target.state["configuration"]["disk_services"]["vds0"]["volumes"]["more"] = more;
    let all: Configuration = serde_json::from_value(target.state["configuration"].clone()).expect("a configuration");
    offer.configuration.disk_services = all.disk_services;
    offer.disks.push(OfferedDisk { name: name("disk1"), ..offer.disks[0].clone() });
    target.free = ByteSize(GIB * 3 / 2);
    let told = target.told(&offer);
    assert!(told.len() == 1 && told[0].contains("have 2 GiB, and 1536 MiB are free"), "{told:#?}");
    target.free = ByteSize(2 * GIB);
    assert_eq!(target.told(&offer), [""; 0]);
    // Two names of one file.
    target.state["configuration"]["disk_services"]["vds0"]["volumes"]["more"]["backend"] = json!("/srv/data.img");
    let told = target.told(&offer);
    assert!(
        told.len() == 1 && told[0].contains("disk1: at hostb, /srv/data.img is also the file of disk0"),
        "{told:#?}"
    );
}

#[test]
fn each_missing_service_is_reported() {
    only("venus: it is a master of mars, and hostb has no such domain", |target| {
        target.state["configuration"]["domains"] = json!({});
    });
    only("mars: hostb has a domain of this name; choose another name there (mars:NEWNAME)", |target| {
        target.state["configuration"]["domains"]["mars"] = json!({});
    });
    only("primary: hostb has a pending delayed reconfiguration", |target| {
        let configuration = target.state["configuration"].clone();
        target.state["pending"] = json!({ "boot": "boot", "configuration": configuration });
    });
    only("vcc: hostb has no console service of this name", |target| {
        target.state["configuration"]["consoles"] = json!({});
    });
    only("console: the console service vcc at hostb has no free port in 5000-5001", |target| target.is_free = false);
    let mut port = mars();
    port["console"]["port"] = json!(5044);
    only_of(port, "console: the group planets has port 5044 at hostb", |target| {
        let console = BoundConsole { service: name("vcc"), group: name("planets"), port: 5044 };
        target.others = vec![Bindings { console: Some(console), ..bindings("pluto", &[], SIZE) }];
    });
}

/// All reasons together, sorted by object.
#[test]
fn nothing_hides_behind_the_first_reason() {
    let mut target = Target::new();
    target.state["configuration"] = json!({ "host": "hostb" });
    (target.available, target.size, target.guests) = (0, Err("none"), Err("no QEMU"));
    insta::assert_snapshot!(target.told(&offer(mars())).join("\n"));
}

#[test]
fn a_domain_that_does_not_run_needs_no_processor_and_an_inactive_one_no_resources() {
    let mut target = Target::new();
    (target.available, target.guests) = (0, Err("no QEMU"));
    let mut cold = offer(mars());
    cold.state = DomainState::Bound;
    assert_eq!(target.told(&cold).len(), 2);
    cold.state = DomainState::Inactive;
    assert_eq!(target.told(&cold), [""; 0]);
    cold.state = DomainState::Bound;
    let mut target = Target::new();
    target.guests.as_mut().expect("it has QEMU").features = BTreeSet::new();
    assert_eq!(target.told(&cold), [""; 0], "it boots there anew");
}

#[test]
fn obstacles_at_the_source_are_reported() {
    let mut all = configuration("hosta", json!({ "mars": mars(), "venus": {}, "pluto": { "masters": ["mars"] } }));
    let vnet = json!({ "name": "net0", "switch": "inner", "mac": "00:14:4f:f9:c4:99", "id": 0 });
    all.switches = serde_json::from_value(json!({
        "inner": { "service": "mars", "mtu": 1500, "default_vlan": 1, "pvid": 1 },
    }))
    .expect("switches");
    all.domains.get_mut(&name("venus")).expect("it exists").vnets =
        serde_json::from_value(json!([vnet])).expect("vnets");
    let mut now = all.domain(&name("mars")).expect("it exists").clone();
    now.io = serde_json::from_value(json!([{ "name": "pci_0/slot1/PF0.VF1", "type": "VF" }])).expect("a device");
    let pending = json!({ "boot": "boot", "configuration": all.clone() });
    let state = json!({ "format": 1, "configuration": all, "pending": pending });
    let state: StoredState = serde_json::from_value(state).expect("a state");
    let mut found: Vec<Obstacle> =
        source::obstacles(&name("mars"), &now, &state).into_iter().map(Obstacle::from).collect();
    let virtfs = "Migration is disabled when VirtFS export path '/x' is mounted in the guest";
    found.extend(
        [virtfs, "0000:01:00.0: VFIO migration is not supported"].map(|why| source::of_qemu(why.into()).into()),
    );
    found.extend(
        [
            super::SourceObstacle::Rebooting,
            super::SourceObstacle::Interrupted,
            super::SourceObstacle::Hung { why: "late".into() },
        ]
        .map(Obstacle::from),
    );
    insta::assert_snapshot!(told(&found).join("\n"));
}

#[test]
fn an_offer_survives_the_wire_and_a_hostile_one_is_refused() {
    let honest = offer(mars());
    let sent = serde_json::to_value(&honest).expect("JSON");
    assert_eq!(serde_json::from_value::<MigrationOffer>(sent.clone()).expect("the same"), honest);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut hostile = sent.clone();
        change(&mut hostile);
        serde_json::from_value::<MigrationOffer>(hostile)
            .map_err(|error| error.to_string())?
            .check()
            .map_err(|error| error.to_string())
    };
    let refused = |why: &str, change: &dyn Fn(&mut Value)| {
        let told = with(change).expect_err(why);
        assert!(told.contains(why), "{why}: {told}");
    };
    let disk = |number: u32| json!({ "name": format!("disk{number}"), "volume": "data@vds0", "id": number });
    refused("another format", &|offer| offer["format"] = json!(2));
    refused("unknown field `read`", &|offer| offer["read"] = json!("/etc/shadow"));
    refused("", &|offer| offer["domain"] = json!("../../etc"));
    refused("not one domain", &|offer| offer["configuration"]["domains"]["venus"] = json!({}));
    refused("memory", &|offer| offer["configuration"]["domains"]["mars"]["memory"] = json!(1));
    refused("CPUs", &|offer| offer["configuration"]["domains"]["mars"]["cpus"] = json!({ "vcpus": 4_000_000 }));
    refused("absolute path", &|offer| {
        offer["configuration"]["disk_services"]["vds0"]["volumes"]["data"]["backend"] = json!("shadow");
    });
    refused("", &|offer| {
        offer["configuration"]["domains"]["mars"]["disks"] = (0..5000).map(disk).collect();
    });
    refused("more disks than it has", &|offer| {
        let disk = offer["disks"][0].clone();
        offer["disks"] = (0..5000).map(|_| disk.clone()).collect();
    });
    refused("too many masters", &|offer| offer["masters"] = (0..5).map(|number| json!(format!("m{number}"))).collect());
    refused("too many CPU features", &|offer| {
        offer["guest"]["features"] = (0..5000).map(|number| json!(format!("f{number}"))).collect();
    });
    refused("their names are too long", &|offer| offer["guest"]["features"] = json!(["x".repeat(1 << 20)]));
}

proptest! {
    /// If any text of the offer is replaced, the offer is refused, or each obstacle is one visible line.
    #[test]
    fn no_text_of_an_offer_exceeds_its_line(feature in ".{0,64}") {
        let mut hostile = offer(mars());
        hostile.guest.as_mut().expect("it runs").features = [feature.as_str().into()].into();
        if hostile.check().is_ok() {
            let told = Target::new().told(&hostile);
            prop_assert!(told.len() <= 1 && told.iter().all(|line| !line.contains(|letter: char| letter.is_control())));
        }
    }
}
