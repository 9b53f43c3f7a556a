//! Guests in plans.

use std::path::Path;

use vtax_model::{
    guest::{Backend, EmulatedNic, Flavour, System},
    method::Unsupported,
};

use super::*;
use crate::{
    facts::{DiskBackendFacts, DiskFacts, PciDevice},
    nic::guest_availability,
};
use vtax_guest::{
    arguments::arguments,
    launch::{DiskFormat, Seed},
};

fn guest(name: &str, host: &str, more: &str) -> String {
    format!("[[guest]]\nname = \"{name}\"\nhost = \"{host}\"\n{more}\n")
}

const PARAVIRTUAL: &str = "method = \"paravirtual\"";

fn with(more: &str) -> String {
    TWO_HOSTS.to_owned() + &guest("web", "sut", &format!("{PARAVIRTUAL}\n{more}"))
}

fn refused_by(change: impl FnOnce(&mut GuestFacts), text: &str) -> String {
    let mut facts = facts();
    change(facts.guests.as_mut().expect("it is there"));
    plan(&topology(text), &facts).expect_err("a bad lab").to_string()
}

/// QEMU's arguments have separate golden tests.
fn without_arguments(plan: &Plan) -> String {
    let cut = |line: &str| line.split_once(" -name ").map_or(line, |(before, _)| before).to_owned();
    plan.to_string().lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_guest_at_one_end_and_at_both() {
    let one = planned(&with(""));
    insta::assert_snapshot!("paravirtual-one-side", without_arguments(&one));
    let LabStep::StartGuest(start) = &one.steps[one.steps.len() - 2] else { panic!("the guest comes last") };
    let launch = &start.launch;
    let text = one.to_string();
    let told = arguments(launch).into_iter().filter(|argument| !argument.contains(' '));
    assert!(told.into_iter().all(|argument| text.contains(&argument)), "{text}");
    assert!(text.contains(" -append 'console=ttyS0 "), "{text}");
    let both =
        with("vcpus = 2\nqueues = 2\ncpus = [1]") + &guest("db", "peer", "method = \"emulated\"\nmodel = \"igb\"");
    insta::assert_snapshot!("guests-both-sides", without_arguments(&planned(&both)));
}

/// A machine with a block device on an NVMe controller, and a file. io_uring is forbidden there.
fn with_backends() -> Facts {
    let mut facts = facts();
    let nvme = "0000:02:00.0".parse().expect("an address");
    let machine = facts.guests.as_mut().expect("it is there");
    let system = |driver: &str| SystemFacts { driver: driver.to_owned(), ..machine.systems[0].clone() };
    machine.systems = [",virtio_blk", ",nvme", ",ata_piix,sd_mod", ",sd_mod,virtio_scsi", ",nvme,virtio_blk"]
        .map(|more| system(&format!("virtio_net{more}")))
        .into();
    let models = ["virtio-blk-pci", "vhost-user-blk-pci", "nvme", "piix3-ide", "ide-hd"];
    machine.qemu.as_mut().expect("it is there").devices.extend(models.map(str::to_owned));
    let found = |path: &str, is_device, on| Ok(DiskBackendFacts { path: path.into(), is_device, on });
    machine.disks = DiskFacts {
        backends: [
            ("/dev/disk0".into(), found("/dev/nvme0n1", true, vec![nvme])),
            ("/disk".into(), found("/disk", false, Vec::new())),
            ("/gone".into(), Err("it cannot be used: it is gone".to_owned())),
        ]
        .into(),
        lacking: vec![("nbd:aio=io_uring".parse().expect("a way"), no("aio=io_uring can't be used"))],
    };
    facts
}

fn with_disks(disks: &[(&str, &str)]) -> Topology {
    let disk = |(path, attach): &(&str, &str)| format!("[[guest.disk]]\npath = \"{path}\"\nattach = \"{attach}\"\n");
    topology(&with(&disks.iter().map(disk).collect::<String>()))
}

#[test]
fn disks_of_a_guest_have_the_blocks_of_the_host() {
    let all = with_disks(&[("/disk", "virtio-blk:iothread"), ("/disk", "vhost-user-blk"), ("/dev/disk0", "nbd")]);
    let plan = plan(&all, &with_backends()).expect("a good lab");
    let launch = &plan.blueprint.guests[0].launch;
    assert_eq!((launch.disks.ports, launch.disks.disks.len()), (3, 3));
    assert_eq!(launch.directory, Path::new("/run/vtax/labs/rack/guests/web/qemu"));
    let told = arguments(launch).into_iter().filter(|argument| argument.contains("disk"));
    insta::assert_snapshot!("guest-with-disks", told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn unavailable_disks_are_refused_with_a_remedy() {
    let refused = |disks: &[(&str, &str)]| plan(&with_disks(disks), &with_backends()).expect_err("refused").to_string();
    let told = [
        refused(&[("/gone", "virtio-blk")]),
        refused(&[("/disk", "virtio-blk:aio=io_uring")]),
        refused(&[("/disk", "virtio-scsi")]),
        refused(&[("/disk", "ide"), ("/disk", "ide")]),
        refused(&[("/disk", "assigned-nvme")]),
        refused(&[("/disk", "nvme"); 33]),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_nvme_controller_of_the_host_is_assigned() {
    let mut facts = with_backends();
    let mut nics = crate::survey::pci_tests::facts();
    let nvme = PciDevice {
        device: "0000:02:00.0".parse().expect("an address"),
        class: 0x01_0802,
        driver: Some("nvme".to_owned()),
        group: Some(400),
        netdev: None,
        sriov: None,
        physfn: None,
        kept: None,
        ..nics.devices[0].clone()
    };
    nics.devices.push(nvme);
    (nics.iommu, nics.vfio) = (true, Ok(()));
    facts.pci = nics;
    let assigned = plan(&with_disks(&[("/dev/disk0", "assigned-nvme")]), &facts).expect("a good lab");
    let ties = crate::dependency::of_plan(&assigned);
    assert!(ties[0].ties.migration.to_string().contains("no: NVMe controller "), "{ties:?}");
    let text = assigned.to_string();
    assert!(text.contains("driver of 0000:02:00.0: vfio-pci in place of nvme\n"), "{text}");
    assert!(text.contains("-device vfio-pci,host=0000:02:00.0,rombar=0,id=vdisk0,bus=disks0"), "{text}");
    let both = with_disks(&[("/dev/disk0", "assigned-nvme"), ("/dev/disk0", "virtio-blk")]);
    let told = plan(&both, &facts).expect_err("it is gone from the host").to_string();
    assert!(told.contains("gets the controller 0000:02:00.0 whole") && told.contains("separate labs"), "{told}");
    facts.pci.devices.last_mut().expect("it").kept = Some("/ is mounted from it".to_owned());
    let told = plan(&with_disks(&[("/dev/disk0", "assigned-nvme")]), &facts).expect_err("it stays").to_string();
    assert!(told.contains("0000:02:00.0 must stay: / is mounted from it"), "{told}");
}

const MACVTAP: &str = "method = \"paravirtual\"\nvnet = \"macvtap\"";

#[test]
fn a_guest_on_a_macvtap_needs_no_switch() {
    let pins = "vcpus = 2\nqueues = 2\ncpus = [1]\nio_cpus = [0]\nvhost_cpus = [0, 1]";
    let text = TWO_HOSTS.to_owned()
        + &guest("web", "sut", &format!("{MACVTAP}\n{pins}"))
        + &guest("db", "sut", MACVTAP)
        + &zone("files", "sut", IoMethod::Macvlan);
    let plan = planned(&text);
    insta::assert_snapshot!("macvtap", without_arguments(&plan));
    let end = |name: &str| plan.blueprint.guest(&name.parse().unwrap()).unwrap();
    assert_eq!(path(&plan, end("web"), end("db")), "sut/vnet0 sut/vnet1");
    let host = plan.blueprint.host(&"peer".parse().unwrap(), &"w0".parse().unwrap()).unwrap();
    assert_eq!(path(&plan, end("web"), host), "sut/vnet0 sut/wire0 peer/wire0");
    let text = plan.to_string();
    assert!(text.contains("tap,id=net0,fds=12:13,vhost=on,vhostfds=14:15"), "{plan}");
    assert!(text.contains(" 12<vnet0 13<vnet0 14</dev/vhost-net 15</dev/vhost-net\n"), "{plan}");
    let journal = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&journal).unwrap(), plan);
}

/// Pins in a journal of an earlier version.
#[test]
fn pins_of_a_stored_step_are_read_as_they_were_written() {
    let plan = planned(&with("cpus = [1]"));
    let step = &plan.steps[plan.steps.len() - 2];
    let stored = serde_json::to_value(step).unwrap();
    assert_eq!((&stored["cpus"], stored.get("io_cpus"), stored.get("pins")), (&serde_json::json!([1]), None, None));
    assert_eq!(&serde_json::from_value::<LabStep>(stored).unwrap(), step);
}

#[test]
fn a_macvtap_and_a_switch_exclude_each_other_and_a_bridge_is_not_needed() {
    let both = with("") + &guest("db", "sut", MACVTAP);
    let told = refused(&both);
    assert!(told.starts_with("`web` (paravirtual) and `db` (paravirtual) clash on wire `w0` at `sut`"), "{told}");
    let mut facts = facts();
    facts.kinds.insert("bridge".into(), Some("this kernel has no link kind bridge".into()));
    let alone = topology(&(TWO_HOSTS.to_owned() + &guest("db", "sut", MACVTAP)));
    assert!(plan(&alone, &facts).is_ok());
    facts.guests.as_mut().expect("it is there").macvtap = Err(no("a queue can't be opened"));
    let told = plan(&alone, &facts).expect_err("no macvtap").to_string();
    assert_eq!(told, "guest `db`: paravirtual is unavailable: a queue can't be opened; mend it");
    assert!(guest_availability(&alone.guests[0].attach, &Default::default(), &facts).is_err());
}

#[test]
fn paths_lead_through_tap_and_switch() {
    let text = with("") + &guest("db", "peer", PARAVIRTUAL) + &guest("cache", "sut", "method = \"emulated\"");
    let plan = planned(&text);
    let end = |name: &str| plan.blueprint.guest(&name.parse().unwrap()).unwrap();
    assert_eq!(path(&plan, end("web"), end("db")), "sut/vnet0 sut/vsw0 sut/wire0 peer/wire0 peer/vsw0 peer/vnet0");
    assert_eq!(path(&plan, end("web"), end("cache")), "sut/vnet0 sut/vsw0 sut/vnet1");
    let host = plan.blueprint.host(&"peer".parse().unwrap(), &"w0".parse().unwrap()).unwrap();
    assert_eq!(path(&plan, end("cache"), host), "sut/vnet1 sut/vsw0 sut/wire0 peer/wire0 peer/vsw0");
}

#[test]
fn guests_share_a_switch_with_zones_but_not_a_wire_with_macvlans() {
    let plan = planned(&(with("") + &zone("a", "sut", IoMethod::Bridge) + &zone("b", "sut", IoMethod::SharedIp)));
    let taken: Vec<String> = plan.blueprint.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect();
    assert_eq!(taken.len(), taken.iter().collect::<std::collections::BTreeSet<_>>().len(), "{taken:?}");
    for method in [IoMethod::Macvlan, IoMethod::Exclusive] {
        let text = refused(&(with("") + &zone("a", "sut", method)));
        assert!(
            text.starts_with(&format!("`a` ({method}) and `web` (paravirtual) clash on wire `w0` at `sut`")),
            "{text}"
        );
    }
}

#[test]
fn the_backend_is_the_best_of_the_machine_unless_it_is_named() {
    let chosen = |text: &str, change: fn(&mut GuestFacts)| {
        let mut facts = facts();
        change(facts.guests.as_mut().expect("it is there"));
        let plan = plan(&topology(text), &facts).expect("a good lab");
        plan.blueprint.endpoints.iter().find_map(|endpoint| endpoint.flavour).expect("a guest")
    };
    let lacks = |facts: &mut GuestFacts| facts.vhost = Err(no("no vhost"));
    assert_eq!(chosen(&with(""), |_| {}), Flavour::Backend(Backend::Vhost));
    assert_eq!(chosen(&with(""), lacks), Flavour::Backend(Backend::Userspace));
    assert_eq!(chosen(&with("backend = \"userspace\""), |_| {}), Flavour::Backend(Backend::Userspace));
    let told = refused_by(lacks, &with("backend = \"vhost\""));
    assert_eq!(told, "guest `web`: paravirtual is unavailable: no vhost; mend it");
    let emulated = TWO_HOSTS.to_owned() + &guest("web", "sut", "method = \"emulated\"");
    assert_eq!(chosen(&emulated, lacks), Flavour::Model(EmulatedNic::E1000e));
}

fn no(why: &str) -> Unsupported {
    Unsupported::new(why, "mend it")
}

#[test]
fn guests_that_this_machine_cannot_have_are_refused_with_the_remedy() {
    let igb = TWO_HOSTS.to_owned() + &guest("web", "sut", "method = \"emulated\"\nmodel = \"igb\"");
    let both = |macs: [&str; 2]| {
        let [first, second] = macs.map(|mac| format!("{PARAVIRTUAL}\nmac = \"{mac}\""));
        TWO_HOSTS.to_owned() + &guest("web", "sut", &first) + &guest("db", "peer", &second)
    };
    let told = [
        refused_by(|facts| facts.qemu = Err(no("there is no QEMU")), &with("")),
        refused_by(|facts| facts.tap = Err(no("/dev/net/tun is not permitted")), &with("")),
        refused_by(|facts| facts.systems.clear(), &with("")),
        refused_by(|facts| facts.systems[2].boot = Err(no("kernel 6.12 has no driver `igb`")), &igb),
        refused_by(|facts| facts.qemu.as_mut().expect("it is there").devices.retain(|device| device != "igb"), &igb),
        refused_by(|_| {}, &with("backend = \"vhost-user\"")),
        refused_by(
            |facts| facts.vhost_user.push("passt has no place on the wire".to_owned()),
            &with("backend = \"vhost-user\""),
        ),
        refused_by(|_| {}, &with("memory = \"1 GiB\"\ncount = 5")),
        refused_by(|_| {}, &with("hugepages = true")),
        refused_by(|_| {}, &with("cpus = [7]")),
        refused_by(|_| {}, &with("io_cpus = [0, 8]")),
        refused_by(|_| {}, &with("vhost_cpus = [9]")),
        refused_by(|_| {}, &with("node = 1")),
        refused_by(|_| {}, &both(["02:00:00:00:00:01"; 2])),
        refused_by(
            |facts| {
                facts.labs =
                    "/run/user/1000/a-long-directory-of-somebodys-own/and/one/more/below/it/and/another/labs".into()
            },
            &with(""),
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
    let plan = planned(&both(["02:00:00:00:00:01", "02:00:00:00:00:02"]));
    assert_eq!(plan.blueprint.guests[1].mac.to_string(), "02:00:00:00:00:02");
}

#[test]
fn a_topology_of_a_program_is_checked_too() {
    let mut wrong = topology(&with(""));
    wrong.guests[0].size.vcpus = 0;
    let told = plan(&wrong, &facts()).expect_err("no vCPU").to_string();
    assert_eq!(told, "guest `web`: 0 vCPUs: must be 1 to 256");
    let mut wrong = topology(&with(""));
    wrong.guests[0].wire = "w9".parse().unwrap();
    assert!(matches!(plan(&wrong, &facts()), Err(PlanError::Unknown { what: "wire", .. })));
}

#[test]
fn guests_require_a_survey_of_the_machine() {
    let facts = Facts { guests: None, ..facts() };
    let told = plan(&topology(&with("")), &facts).expect_err("nobody has looked").to_string();
    assert!(told.contains("no search was made for QEMU"), "{told}");
    assert!(plan(&topology(TWO_HOSTS), &facts).is_ok());
}

#[test]
fn guests_of_a_lab_have_their_own_addresses() {
    let plan = planned(&with("count = 40\nmemory = \"96 MiB\""));
    let macs: std::collections::BTreeSet<_> = plan.blueprint.guests.iter().map(|guest| guest.mac).collect();
    assert_eq!(macs.len(), 40);
    let starts = plan.steps.iter().filter(|step| matches!(step, LabStep::StartGuest(_))).count();
    assert_eq!(starts, 40);
    let journal = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&journal).unwrap(), plan);
}

/// Requires neither a kernel nor any other system.
#[test]
fn a_guest_with_a_disk_image_gets_a_seed_and_needs_no_kernel() {
    let system = System::Disk { image: "debian.qcow2".into() };
    let disk = Boot::Disk { disk: "/images/debian.qcow2".into(), format: DiskFormat::Qcow2, keep: false };
    let driver = "virtio_net".to_owned();
    let mut facts = facts();
    facts.guests.as_mut().expect("it is there").systems =
        vec![SystemFacts { system: system.clone(), driver, boot: Ok(disk.clone()) }];
    let plan = plan(&topology(&with("image = \"debian.qcow2\"")), &facts).expect("a good lab");
    let guest = &plan.blueprint.guests[0];
    assert_eq!((&guest.launch.boot, guest.launch.memory), (&disk, ByteSize(1 << 30)));
    let seed = Seed { agent: "/usr/bin/vtax-agent".into(), address: guest.address };
    assert_eq!(guest.launch.seed.as_ref(), Some(&seed));
    let told = plan.to_string();
    let address = format!("\n          addresses: [\"{}\"]\n", guest.address);
    assert!(told.contains("/web/seed/AGENT: /usr/bin/vtax-agent\n") && told.contains(&address), "{told}");
    assert!(!plan.steps.iter().any(|step| step.to_string().contains("#cloud-config")), "an error would repeat it");
    guest_availability(&guest.attach, &system, &facts).expect("as it was asked for");
    assert!(guest_availability(&guest.attach, &System::default(), &facts).is_err());
}
