use std::path::PathBuf;

use vtax_model::{
    disk::{DiskAttach, DiskDevice},
    guest::{Backend, EmulatedNic, GuestSize, Vnet},
    server::ServerSpec,
};

use super::*;
use crate::{
    LinkName,
    launch::{DiskFormat, GuestDisks, GuestEngine, LaunchVersion, QemuProgram, Seed},
    vdisk::{DiskFile, DiskPaths, DiskSource},
};

fn launch() -> Launch {
    let engine = GuestEngine {
        qemu: QemuProgram {
            path: "/usr/bin/qemu-system-x86_64".into(),
            version: Version { major: 10, minor: 0 },
            sandbox: true,
            q35: None,
            qboot: None,
        },
        accel: Accelerator::Tcg,
        boot: Boot::Kernel {
            kernel: PathBuf::from("/boot/vmlinuz-6.12.0"),
            initramfs: PathBuf::from("/cache/vtax/images/1.cpio"),
            append: Vec::new(),
        },
    };
    let directory = PathBuf::from("/run/vtax/labs/demo/guests/web");
    Launch::new("web".parse().expect("a name"), directory, engine, &GuestSize::default())
}

fn with_nic(kind: NicKind) -> Launch {
    let mac = "02:00:5e:10:00:01".parse().expect("an address");
    Launch { nics: vec![NicLaunch::new(mac, kind)], ..launch() }
}

fn tap() -> LinkName {
    LinkName::new("vnet0")
}

/// One option per line.
fn lines(launch: &Launch) -> String {
    let mut text = String::new();
    for argument in arguments(launch) {
        text += if argument.starts_with('-') { "\n" } else { " " };
        text += &argument;
    }
    text
}

/// Only the lines about NICs.
fn nic(kind: NicKind) -> String {
    let text = lines(&with_nic(kind));
    let network = text.lines().filter(|line| line.contains("net0") || line.contains("backend0"));
    network.collect::<Vec<_>>().join("\n")
}

fn vhost(nic: VirtioNic) -> VirtioNic {
    VirtioNic { backend: Some(Backend::Vhost), ..nic }
}

#[test]
fn a_guest_without_nics_under_tcg() {
    insta::assert_snapshot!(lines(&launch()));
}

#[test]
fn kvm_with_memory_of_huge_pages_on_a_node() {
    let launch = Launch { accel: Accelerator::Kvm, vcpus: 4, hugepages: true, node: Some(1), ..launch() };
    insta::assert_snapshot!(lines(&launch));
}

#[test]
fn a_disk_with_a_seed() {
    let boot = Boot::Disk { disk: "/images/debian,13.qcow2".into(), format: DiskFormat::Qcow2, keep: false };
    let seed = Seed { agent: "/usr/bin/vtax-agent".into(), address: "198.18.0.3/24".parse().expect("an address") };
    insta::assert_snapshot!(lines(&Launch { boot, seed: Some(seed), ..launch() }));
}

#[test]
fn each_kind_of_nic() {
    let options = VirtioNic::default();
    let kinds = [
        NicKind::Virtio { tap: tap(), nic: vhost(options) },
        NicKind::Virtio { tap: tap(), nic: options },
        NicKind::Virtio { tap: tap(), nic: vhost(VirtioNic { vnet: Vnet::Macvtap, ..options }) },
        NicKind::Virtio { tap: tap(), nic: VirtioNic { vnet: Vnet::Macvtap, queues: 3, ..options } },
        NicKind::Emulated { tap: tap(), model: EmulatedNic::E1000e },
        NicKind::Emulated { tap: tap(), model: EmulatedNic::Igb },
        NicKind::Emulated { tap: tap(), model: EmulatedNic::Vmxnet3 },
        NicKind::Emulated { tap: tap(), model: EmulatedNic::Rtl8139 },
    ];
    insta::assert_snapshot!(kinds.map(nic).join("\n\n"));
}

#[test]
fn every_option_of_virtio() {
    let options = VirtioNic {
        backend: None,
        vnet: Vnet::Bridge,
        queues: 4,
        vectors: Some(6),
        packed: true,
        offloads: false,
        mrg_rxbuf: false,
        rx_ring: Some(1024),
        tx_ring: Some(512),
    };
    insta::assert_snapshot!(nic(NicKind::Virtio { tap: tap(), nic: vhost(options) }));
}

#[test]
fn a_virtio_nic_in_a_dedicated_slot_with_the_largest_mtu_and_empty_slots() {
    let mut launch = with_nic(NicKind::Virtio { tap: tap(), nic: VirtioNic::default() });
    launch.nics[0] =
        NicLaunch { slot: Some(16), host_mtu: Some(9000.try_into().expect("an MTU")), ..launch.nics[0].clone() };
    launch.spare_ports = 2;
    launch.removable = vec!["0000:01:10.0".parse().expect("an address")];
    let text = lines(&launch);
    assert!(text.contains("mrg_rxbuf=on,host_mtu=9000,addr=0x10\n"), "{text}");
    assert!(
        text.ends_with(
            "\n-device pcie-root-port,id=spare0,bus=pcie.0,addr=0x7.0,multifunction=on,chassis=100,slot=100\
         \n-device pcie-root-port,id=spare1,bus=pcie.0,addr=0x7.1,multifunction=on,chassis=101,slot=101\
         \n-device vfio-pci,host=0000:01:10.0,rombar=0,id=plugged0,bus=spare0"
        ),
        "{text}"
    );
}

/// A disk on a file shared with others.
fn attached(port: u32, way: &str) -> DiskLaunch {
    let attach: DiskAttach = way.parse().expect("a way");
    let file = DiskFile {
        path: "/disks/shared".into(),
        format: DiskFormat::Raw,
        is_device: false,
        slice: None,
        exclusive: false,
        shared: true,
        direct: true,
    };
    let source = match attach.device {
        DiskDevice::AssignedNvme => DiskSource::Controller { device: "0000:02:00.0".parse().expect("an address") },
        device if device.is_served() => DiskSource::Paths(DiskPaths { files: vec![file], timeout: Some(10) }),
        _ => DiskSource::File(file),
    };
    DiskLaunch { port, serial: format!("row-{port}"), read_only: false, attach: Some(attach), source }
}

#[test]
fn each_way_to_attach_a_disk() {
    let ways = [
        "virtio-blk",
        "virtio-blk:aio=io_uring,iothread,queues=4",
        "virtio-scsi:aio=native,iothread,queues=2",
        "vhost-user-blk:queues=2",
        "nbd:iothread",
        "nvme:aio=native",
        "ahci",
        "ide",
        "assigned-nvme",
    ];
    let disks: Vec<DiskLaunch> = (0..).zip(ways).map(|(port, way)| attached(port, way)).collect();
    let launch = Launch { disks: GuestDisks { ports: disks.len() as u32, disks }, ..launch() };
    let text = lines(&launch);
    let start = text.find("\n-device pcie-root-port").expect("ports for disks");
    let memory = text.lines().find(|line| line.starts_with("-object memory")).expect("RAM");
    insta::assert_snapshot!(format!("{memory}{}", &text[start..]));
    assert_eq!(launch.assigned().count(), 1);
    let huge = Launch { hugepages: true, ..launch };
    assert!(lines(&huge).contains("memfd,id=ram,size=268435456,hugetlb=on,prealloc=on,share=on\n"), "{}", lines(&huge));
}

#[test]
fn a_guest_can_be_started_with_its_processors_stopped() {
    let launch = Launch { paused: true, ..launch() };
    assert!(lines(&launch).contains("\n-S\n"));
}

#[test]
fn endpoints_of_the_host_are_passed_unchanged() {
    let device = "0000:01:10.0".parse().expect("an address");
    let mut launch = with_nic(NicKind::Vfio { device, driver: "igbvf".to_owned() });
    launch.devices.push("0000:81:00.1".parse().expect("an address"));
    let text = lines(&launch);
    assert!(text.contains("\n-device vfio-pci,host=0000:01:10.0,rombar=0,id=nic0\n-device vfio-pci,host=0000:81:00.1"));
    assert!(!text.contains("netdev"), "{text}");
    let written = serde_json::to_string(&launch).expect("it can be written");
    assert!(written.contains(r#"{"kind":"vfio","device":"0000:01:10.0","driver":"igbvf"}"#), "{written}");
    assert_eq!(serde_json::from_str::<Launch>(&written).expect("it can be read"), launch);
}

#[test]
fn on_an_intel_cpu_a_guest_that_may_drive_a_device_of_the_host_has_the_default_firmware() {
    let device = "0000:01:10.0".parse().expect("an address");
    let qboot = Some(PathBuf::from("/usr/share/qemu/qboot.rom"));
    let on_kvm = |launch: Launch| Launch { accel: Accelerator::Kvm, qboot: qboot.clone(), ..launch };
    let assigned = on_kvm(with_nic(NicKind::Vfio { device, driver: "igbvf".to_owned() }));
    let translated = Launch { accel: Accelerator::Tcg, ..assigned.clone() };
    let has_qboot = |launch: &Launch, is_intel| launch.clone().on_cpu(is_intel).qboot.is_some();
    let pluggable = Launch { spare_ports: 1, ..on_kvm(launch()) };
    assert!(!has_qboot(&assigned, true) && !has_qboot(&pluggable, true));
    assert!(has_qboot(&assigned, false) && has_qboot(&translated, true) && has_qboot(&on_kvm(launch()), true));
    assert!(lines(&assigned).contains("\n-bios /usr/share/qemu/qboot.rom\n"), "{}", lines(&assigned));
    assert!(!lines(&assigned.on_cpu(true)).contains("-bios"));
}

#[test]
fn a_server_under_tcg() {
    insta::assert_snapshot!(lines(&server("emulated:nics=4,disks=1")));
}

#[test]
fn a_server_of_many_nodes_under_kvm() {
    let launch = server("emulated:nics=2,nodes=3,cpus=8,sockets=2,memory=2000MiB");
    insta::assert_snapshot!(lines(&Launch { accel: Accelerator::Kvm, ..launch }));
}

/// QEMU 10.0 can't reach virtual functions of a server that starts with RAM above 4 GiB.
#[test]
fn a_server_has_all_of_its_ram_and_none_above_4_gib_from_the_start() {
    for (nodes, mib) in [(1, 1024), (2, 2815), (2, 2816), (3, 4096), (4, 65_535), (4, 2821)] {
        let text = lines(&server(&format!("emulated:nodes={nodes},cpus=4,memory={mib}MiB")));
        let sum = |key: &str| -> u64 {
            let sizes = text.lines().filter_map(|line| line.split_once(key)?.1.split_once(",size="));
            sizes.map(|(_, size)| size.trim_end_matches('M').parse::<u64>().expect("MiB")).sum()
        };
        let (board, modules) = (sum("id=ram"), sum("id=more"));
        assert_eq!(board + modules, mib, "{text}");
        assert!(board < 0xb00 && modules.is_multiple_of(128 * nodes), "{text}");
        assert!(text.contains(&format!("-m {board}M")), "{text}");
    }
}

#[test]
fn a_server_of_one_node_still_has_two_root_complexes() {
    let text = lines(&server("emulated:nodes=1"));
    assert!(text.contains("pxb-pcie,id=complex1,bus=pcie.0,bus_nr=128\n") && !text.contains("numa_node"), "{text}");
}

fn server(spec: &str) -> Launch {
    let spec: ServerSpec = spec.parse().expect("a server");
    Launch { vcpus: spec.cpus, memory: spec.memory, server: Some(spec), ..launch() }
}

#[test]
fn descriptor_numbers_continue_from_one_use_to_the_next() {
    let nic = |queues| VirtioNic { vnet: Vnet::Macvtap, queues, ..VirtioNic::default() };
    let mut launch = with_nic(NicKind::Virtio { tap: tap(), nic: vhost(nic(2)) });
    launch.nics.push(NicLaunch { kind: NicKind::Virtio { tap: tap(), nic: nic(1) }, ..launch.nics[0].clone() });
    launch.accel = Accelerator::Kvm;
    let text = lines(&launch);
    for part in [
        "-add-fd fd=10,set=1\n-accel kvm,device=/dev/fdset/1\n",
        "-kernel /proc/self/fd/11\n-initrd /proc/self/fd/12\n",
        "id=net0,fds=13:14,vhost=on,vhostfds=15:16\n",
        "id=net1,fd=17,vhost=off\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_disk_is_passed_with_its_backing_files() {
    let boot = Boot::Disk { disk: "/a.qcow2".into(), format: DiskFormat::Qcow2, keep: true };
    let image = |read, write, is_device, format| ImageFile { read, write, is_device, format };
    let (qcow2, raw) = (DiskFormat::Qcow2, DiskFormat::Raw);
    let images = vec![image(7, Some(8), false, qcow2), image(9, None, false, qcow2), image(11, None, true, raw)];
    let files = QemuFiles { kvm: None, boot: BootFiles::Disk(images), nics: Vec::new(), disks: Vec::new(), lent: None };
    let text = arguments_with(&Launch { boot, ..launch() }, &files).join(" ");
    let sets = "-add-fd fd=7,set=1 -add-fd fd=8,set=1 -add-fd fd=9,set=2 -add-fd fd=11,set=3 ";
    let drive = "-drive if=none,id=disk,format=qcow2,snapshot=off,file.driver=file,file.filename=/dev/fdset/1,\
        backing.driver=qcow2,backing.file.driver=file,backing.file.filename=/dev/fdset/2,\
        backing.backing.driver=raw,backing.backing.file.driver=host_device,backing.backing.file.filename=/dev/fdset/3 ";
    assert!(text.contains(&format!("{sets}{drive}")), "{text}");
}

#[test]
fn a_directory_shared_with_a_guest_is_passed_open_and_read_only() {
    let lent = lines(&Launch { lent: Some("/cache/vtax/carried/fio".into()), ..launch() });
    for part in [
        "\n-fsdev local,id=lent,path=/proc/self/fd/12,security_model=none,readonly=on,multidevs=remap\n",
        "\n-device virtio-9p-pci,fsdev=lent,mount_tag=vtax-lent,disable-legacy=on",
        " -- --guest --lent vtax-lent\n",
    ] {
        assert!(lent.contains(part), "{part}: {lent}");
    }
    assert!(!lines(&launch()).contains("lent"));
}

#[test]
fn a_qemu_without_seccomp_is_started_without_it() {
    let mut launch = launch();
    assert!(lines(&launch).contains("\n-sandbox on,"));
    launch.qemu.sandbox = false;
    assert!(!lines(&launch).contains("-sandbox"));
}

#[test]
fn an_older_qemu_opens_kvm_itself() {
    let mut launch = Launch { accel: Accelerator::Kvm, ..launch() };
    launch.qemu.version = Version { major: 8, minor: 2 };
    assert!(lines(&launch).contains("\n-accel kvm\n"), "{}", lines(&launch));
}

#[test]
fn an_older_qemu_gets_no_unsupported_option() {
    let options = VirtioNic { offloads: false, ..VirtioNic::default() };
    let mut launch = with_nic(NicKind::Virtio { tap: tap(), nic: options });
    launch.qemu.version = Version::LEAST;
    let text = lines(&launch);
    assert!(!text.contains("uso") && !text.contains("i8042"), "{text}");
}

#[test]
fn a_launch_survives_the_journal() {
    let options = VirtioNic { queues: 2, ..VirtioNic::default() };
    let launch = with_nic(NicKind::Virtio { tap: tap(), nic: vhost(options) });
    let text = serde_json::to_string(&launch).expect("it can be written");
    assert!(text.contains("\"02:00:5e:10:00:01\""), "{text}");
    assert_eq!(serde_json::from_str::<Launch>(&text).expect("it can be read"), launch);
}

/// As written by vtax before launches had versions.
#[test]
fn a_launch_without_a_version_is_read_as_the_first() {
    let mut stored = serde_json::to_value(launch()).expect("it can be written");
    assert!(stored.as_object_mut().is_some_and(|fields| fields.remove("version").is_some()));
    let old: Launch = serde_json::from_value(stored.clone()).expect("it can be read");
    assert!(old.version < LaunchVersion::CURRENT && old.machine.is_none() && !old.incoming);
    assert_eq!(Launch { version: LaunchVersion::CURRENT, ..old }, launch());
    stored["version"] = 99.into();
    let error = serde_json::from_value::<Launch>(stored).expect_err("of another vtax").to_string();
    assert!(error.contains("launch of version 99"), "{error}");
}

#[test]
fn a_target_has_the_recorded_machine_and_waits_for_its_guest() {
    let (machine, cpu) = ("pc-q35-9.2".parse().ok(), "Cascadelake-Server,-avx512f".parse().ok());
    let pinned = Launch { machine, cpu, incoming: true, ..launch() };
    let text = lines(&pinned);
    for part in
        ["\n-incoming defer\n", "\n-machine pc-q35-9.2,memory-backend=ram,", "\n-cpu Cascadelake-Server,-avx512f\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let written = serde_json::to_string(&pinned).expect("it can be written");
    assert_eq!(serde_json::from_str::<Launch>(&written).expect("it can be read"), pinned);
}
