//! The arguments of QEMU, as a pure function of the launch.
//!
//! The machine is a bare q35. It has only the devices that a measurement needs, so that it boots fast and nothing else
//! wakes its threads. QEMU runs as a dedicated user, so it receives files that only root may open as open descriptors,
//! and its own files have names relative to its working directory, outside of which it has no access.

mod device;
mod disks;
mod server;
#[cfg(test)]
mod tests;

use std::{fmt::Display, os::fd::RawFd};

use vtax_model::{
    guest::{Accelerator, VirtioNic},
    units::Mtu,
};
use vtax_sys::pci;

use super::{
    files::{BootFiles, ImageFile, NicFiles, QemuFiles},
    launch::{
        AGENT_PORT, AGENT_PORT_ID, AGENT_SOCKET, Boot, CONSOLE_LOG, CONSOLE_SOCKET, EVENTS_SOCKET, LENT_TAG, Launch,
        NicKind, NicLaunch, QMP_SOCKET, SEED, SEED_SERIAL, Version,
    },
    machine::{CpuModel, MACHINE_ALIAS, MachineType},
    vdisk::DiskLaunch,
};

pub use device::DeviceOptions;
pub(crate) use disks::disk_device;

/// The label of the agent's character device in QEMU.
pub(super) const AGENT_CHARDEV: &str = "agent";
/// The label of the serial console's character device in QEMU.
pub(super) const CONSOLE_CHARDEV: &str = "console";

/// The first descriptor number passed to QEMU, as printed and stored.
const FIRST_FILE: RawFd = 10;

/// QEMU denies itself all system calls required only by features that no guest here uses: obsolete ones, changing
/// users, starting programs, and changing its priority. All devices of these guests work with that.
pub(super) const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// With these two features, the kernel and the C library clear and copy memory with one instruction (`rep stosb`),
/// which the translator executes byte by byte. Without them they loop over whole words, which takes a fraction of the
/// time.
const TRANSLATED_CPU: &str = "max,-erms,-fsrm";

/// The arguments without the program. Descriptors are numbered from 10 here, and get their real numbers at the start.
pub fn arguments(launch: &Launch) -> Vec<String> {
    arguments_with(launch, &QemuFiles::counted(launch, FIRST_FILE))
}

/// The descriptors passed to QEMU: their numbers in [`arguments`], and their names.
pub fn open_files(launch: &Launch) -> impl Iterator<Item = (RawFd, String)> {
    (FIRST_FILE..).zip(QemuFiles::named(launch).into_all())
}

/// The arguments with the numbers of the descriptors.
pub(super) fn arguments_with(launch: &Launch, files: &QemuFiles<RawFd>) -> Vec<String> {
    let mut list = Arguments::default();
    identity(&mut list, launch);
    machine(&mut list, launch, files.kvm);
    // The first devices go to the first root complex, whose bus is the default until there is another.
    control(&mut list, launch);
    boot(&mut list, launch, &files.boot);
    if launch.seed.is_some() {
        seed_disk(&mut list);
    }
    for (index, (nic, files)) in launch.nics.iter().zip(&files.nics).enumerate() {
        network(&mut list, index, nic, files, launch.qemu.version);
    }
    disks::disks(&mut list, launch.disks.ports, &launch.disks.disks, &files.disks);
    for device in &launch.devices {
        list.add("-device", assigned(*device).to_string());
    }
    if let Some(folder) = files.lent {
        lend(&mut list, folder);
    }
    (0..launch.spare_ports).for_each(|port| spare_port(&mut list, port));
    for (port, device) in (0..).zip(&launch.removable) {
        list.add("-device", plugged(port, *device).to_string());
    }
    if let Some(spec) = &launch.server {
        server::devices(&mut list, spec);
    }
    list.list
}

/// The id of the `index`-th NIC in QEMU's monitor.
pub fn nic_id(index: usize) -> String {
    format!("nic{index}")
}

/// The id of the `port`-th empty slot.
pub(super) fn spare_id(port: u32) -> String {
    format!("spare{port}")
}

/// The id of the host side of the `index`-th NIC in QEMU's monitor.
pub(super) fn netdev_id(index: usize) -> String {
    format!("net{index}")
}

#[derive(Default)]
struct Arguments {
    list: Vec<String>,
    /// Number of sets of open files.
    sets: usize,
}

impl Arguments {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.list.push(option.to_owned());
        self.list.push(value.into());
    }

    /// The name under which QEMU opens one of these files (`/dev/fdset/N`).
    fn file_set(&mut self, numbers: &[RawFd]) -> String {
        self.sets += 1;
        let set = self.sets;
        for number in numbers {
            self.add("-add-fd", format!("fd={number},set={set}"));
        }
        format!("/dev/fdset/{set}")
    }
}

fn identity(list: &mut Arguments, launch: &Launch) {
    let name = &launch.name;
    list.add("-name", format!("guest={name},process=vtax-{name},debug-threads=on"));
    list.add("-msg", "timestamp=on");
    list.list.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    list.add("-display", "none");
    if launch.paused {
        list.list.push("-S".to_owned());
    }
    if launch.incoming {
        // The monitor sets the source address, after capabilities and keys.
        list.add("-incoming", "defer");
    }
    if launch.qemu.sandbox {
        list.add("-sandbox", SANDBOX);
    }
}

fn machine(list: &mut Arguments, launch: &Launch, kvm: Option<RawFd>) {
    let ram = match launch.server {
        // The RAM belongs to the server's nodes.
        Some(_) => server::MACHINE,
        None => ",memory-backend=ram",
    };
    // These q35 devices prolong a guest's boot: a SATA and an SMBus controller, and the keyboard and mouse, which Linux
    // waits for.
    let bare = match launch.qemu.version >= Version::NO_I8042 {
        true => ",vmport=off,sata=off,smbus=off,i8042=off",
        false => ",vmport=off,sata=off,smbus=off",
    };
    // A BIOS without a screen uses the serial console, and so does the boot loader through the BIOS.
    let firmware = if matches!(launch.boot, Boot::Disk { .. }) { ",graphics=off" } else { "" };
    let (accelerator, cpu) = match (launch.accel, &launch.server) {
        (Accelerator::Kvm, _) => ("kvm", "host".to_owned()),
        (Accelerator::Tcg, None) => ("tcg,thread=multi", TRANSLATED_CPU.to_owned()),
        (Accelerator::Tcg, Some(_)) => ("tcg,thread=multi", format!("{TRANSLATED_CPU},{}", server::VIRTUALIZATION)),
    };
    let cpu = launch.cpu.as_ref().map_or(cpu, CpuModel::to_string);
    let machine = launch.machine.as_ref().map_or(MACHINE_ALIAS, MachineType::as_str);
    // A core dump of QEMU would be as large as the guest's RAM.
    list.add("-machine", format!("{machine}{ram},dump-guest-core=off{bare}{firmware}"));
    match kvm {
        Some(number) => {
            let set = list.file_set(&[number]);
            list.add("-accel", format!("{accelerator},device={set}"));
        }
        None => list.add("-accel", accelerator),
    }
    list.add("-cpu", cpu);
    let sockets = launch.server.map_or(1, |spec| spec.sockets);
    list.add("-smp", format!("{},sockets={sockets},cores={},threads=1", launch.vcpus, launch.vcpus / sockets));
    match &launch.server {
        Some(spec) => {
            list.add("-m", server::Ram::of(spec).sizes(spec));
            server::nodes(list, spec);
        }
        None => {
            list.add("-m", format!("{}B", launch.memory.0));
            list.add("-object", memory(launch));
        }
    }
}

fn memory(launch: &Launch) -> String {
    // A storage daemon that serves the guest's rings has the guest's memory, too.
    let is_shared = launch.disks.disks.iter().any(DiskLaunch::is_vhost_user);
    // A memfd can have huge pages without a mounted hugetlbfs.
    let (backend, pages) = match launch.hugepages {
        true => ("memfd", ",hugetlb=on,prealloc=on"),
        false => (if is_shared { "memfd" } else { "ram" }, ""),
    };
    let share = if is_shared { ",share=on" } else { "" };
    let mut object = format!("memory-backend-{backend},id=ram,size={}{pages}{share}", launch.memory.0);
    if let Some(node) = launch.node {
        object += &format!(",host-nodes={node},policy=bind");
    }
    object
}

fn control(list: &mut Arguments, launch: &Launch) {
    list.add("-chardev", format!("{},logfile={},logappend=off", socket(CONSOLE_CHARDEV, CONSOLE_SOCKET), CONSOLE_LOG));
    list.add("-serial", format!("chardev:{CONSOLE_CHARDEV}"));
    list.add("-chardev", socket("qmp", QMP_SOCKET));
    list.add("-mon", "chardev=qmp,mode=control");
    if launch.has_events {
        list.add("-chardev", socket("events", EVENTS_SOCKET));
        list.add("-mon", "chardev=events,mode=control");
    }
    list.add("-chardev", socket(AGENT_CHARDEV, AGENT_SOCKET));
    list.add("-device", pci("virtio-serial-pci,id=ports,max_ports=2"));
    list.add(
        "-device",
        format!("virtserialport,bus=ports.0,nr=1,chardev={AGENT_CHARDEV},id={AGENT_PORT_ID},name={AGENT_PORT}"),
    );
}

fn socket(id: &str, name: &str) -> String {
    format!("socket,id={id},path={name},server=on,wait=off")
}

fn boot(list: &mut Arguments, launch: &Launch, files: &BootFiles<RawFd>) {
    match (&launch.boot, files) {
        (Boot::Kernel { append, .. }, BootFiles::Kernel { kernel, initramfs }) => {
            list.add("-kernel", own_file(*kernel));
            list.add("-initrd", own_file(*initramfs));
            if let Some(qboot) = &launch.qboot {
                list.add("-bios", qboot.display().to_string());
            }
            list.add("-append", command_line(launch, append));
        }
        (Boot::Disk { format, keep, .. }, BootFiles::Disk(images)) => {
            let snapshot = if *keep { "off" } else { "on" };
            let images = images_of(list, images);
            list.add("-drive", format!("if=none,id=disk,format={format},snapshot={snapshot}{images}"));
            list.add("-device", pci("virtio-blk-pci,drive=disk,bootindex=0"));
            // If the disk doesn't boot, the BIOS tries nothing else and restarts. QEMU exits then.
            list.add("-boot", "strict=on,reboot-timeout=0");
            // Unlike the agent's kernel, the image's programs may need random numbers before enough entropy is
            // collected.
            list.add("-device", pci("virtio-rng-pci"));
        }
        _ => unreachable!("the files were opened for this boot"),
    }
}

/// Each image is in a set of descriptors, from which QEMU takes the writable one if necessary.
fn images_of(list: &mut Arguments, images: &[ImageFile<RawFd>]) -> String {
    let mut options = String::new();
    for (depth, image) in images.iter().enumerate() {
        let numbers: Vec<RawFd> = [Some(image.read), image.write].into_iter().flatten().collect();
        let set = list.file_set(&numbers);
        let driver = if image.is_device { "host_device" } else { "file" };
        let of = "backing.".repeat(depth);
        if depth > 0 {
            options += &format!(",{of}driver={}", image.format);
        }
        options += &format!(",{of}file.driver={driver},{of}file.filename={set}");
    }
    options
}

/// A single descriptor, for options that don't support sets.
fn own_file(number: RawFd) -> String {
    format!("/proc/self/fd/{number}")
}

/// Kernel parameters that shorten the boot. None changes the path of a packet.
fn command_line(launch: &Launch, append: &[String]) -> String {
    let hostname = format!("hostname={}", launch.name);
    let quick = [
        "console=ttyS0",
        "quiet",
        "loglevel=4",
        // After a panic the kernel reboots immediately, and QEMU exits instead of rebooting it.
        "panic=-1",
        // Allows a failure policy of logical domains to stop a guest with a panic.
        "unknown_nmi_panic",
        "reboot=t",
        "net.ifnames=0",
        "random.trust_cpu=on",
        "no_timer_check",
        // ACPI reports all root buses. Without this the kernel probes each slot of 256 buses, and each probe is a VM
        // exit.
        "pci=lastbus=0",
        "cryptomgr.notests",
        "8250.nr_uarts=1",
        // As for agents on hosts: see `vtax_sys::layout`.
        "nokaslr",
        "norandmaps",
    ];
    let steady: &[&str] = match launch.accel {
        Accelerator::Kvm => &[],
        // Under TCG the guest has the host's timestamp counter. Without this parameter Linux checks it against a timer
        // that QEMU serves late, marks the counter as unstable and uses another clock, each reading of which is a VM
        // exit.
        Accelerator::Tcg => &["tsc=reliable"],
    };
    let own = quick.iter().chain(steady).copied().chain([hostname.as_str()]);
    let (for_kernel, for_agent) = match launch.server {
        Some(_) => (&server::KERNEL[..], &server::AGENT[..]),
        None => (&[][..], &["--guest"][..]),
    };
    let lent: &[&str] = if launch.lent.is_some() && !launch.lent_later { &["--lent", LENT_TAG] } else { &[] };
    let ticking = match (&launch.server, launch.accel) {
        (Some(_), Accelerator::Tcg) => &server::TICKING[..],
        _ => &[],
    };
    let append = append.iter().map(String::as_str).chain(for_kernel.iter().copied()).chain(ticking.iter().copied());
    let for_agent = for_agent.iter().chain(lent).copied();
    append.chain(own).chain(["--"]).chain(for_agent).collect::<Vec<_>>().join(" ")
}

/// QEMU presents a directory as a FAT disk. cloud-init finds it by its volume label.
fn seed_disk(list: &mut Arguments) {
    list.add(
        "-drive",
        format!("if=none,id=seed,format=raw,read-only=on,file.driver=vvfat,file.dir={SEED},file.label=CIDATA"),
    );
    list.add("-device", pci(&format!("virtio-blk-pci,drive=seed,serial={SEED_SERIAL}")));
}

/// Shares a directory of the host with the guest, read-only.
fn lend(list: &mut Arguments, folder: RawFd) {
    let path = own_file(folder);
    list.add("-fsdev", format!("local,id=lent,path={path},security_model=none,readonly=on,multidevs=remap"));
    list.add("-device", pci(&format!("virtio-9p-pci,fsdev=lent,mount_tag={LENT_TAG}")));
}

fn network(list: &mut Arguments, index: usize, nic: &NicLaunch, files: &NicFiles<RawFd>, version: Version) {
    // A device of the host has no tap.
    if nic.kind.tap().is_some() {
        list.add("-netdev", netdev(index, files).to_string());
    }
    // The first root complex is the default bus until there is another.
    let device = device(index, nic, version).with_some("addr", nic.slot.map(|slot| format!("{slot:#x}")));
    list.add("-device", device.to_string());
}

/// An empty slot: a port that is one function of the slot below those of the disks. A server's NICs have the lower
/// chassis numbers.
fn spare_port(list: &mut Arguments, port: u32) {
    const FIRST_CHASSIS: u32 = 100;
    let number = FIRST_CHASSIS + port;
    let device = DeviceOptions::new("pcie-root-port").with("id", spare_id(port)).with("bus", "pcie.0");
    let device = device.with("addr", format!("{:#x}.{port}", DiskLaunch::SLOTS.start - 1)).with("multifunction", true);
    list.add("-device", device.with("chassis", number).with("slot", number).to_string());
}

/// The name of a device in the `port`-th slot for plugging.
pub(super) fn plugged_id(port: u32) -> String {
    format!("plugged{port}")
}

/// A host device in that slot.
pub(super) fn plugged(port: u32, device: pci::PciAddress) -> DeviceOptions {
    assigned(device).with("id", plugged_id(port)).with("bus", spare_id(port))
}

/// The guest's side of its `index`-th NIC.
pub(super) fn device(index: usize, nic: &NicLaunch, version: Version) -> DeviceOptions {
    let served = |driver: &str| {
        let device = DeviceOptions::new(driver).with("netdev", netdev_id(index));
        device.with("id", nic_id(index)).with("mac", nic.mac.to_string())
    };
    match &nic.kind {
        NicKind::Virtio { nic: options, .. } => {
            let device = virtio(served("virtio-net-pci"), options, version);
            device.with_some("host_mtu", nic.host_mtu.map(Mtu::get))
        }
        NicKind::Emulated { model, .. } => served((*model).into()).with("romfile", ""),
        // The device has its own address. A virtual function got its address from the host's physical function.
        NicKind::Vfio { device, .. } => assigned(*device).with("id", nic_id(index)),
    }
}

/// The host's side of the `index`-th NIC: the queue descriptors of a tap or macvtap, by number or name. The host's
/// kernel serves the NIC's rings if there are files of vhost.
pub(super) fn netdev<F: Display>(index: usize, files: &NicFiles<F>) -> DeviceOptions {
    let of = |one: &'static str, several: &'static str, files: &[F]| {
        let names: Vec<String> = files.iter().map(F::to_string).collect();
        (if files.len() > 1 { several } else { one }, names.join(":"))
    };
    let (queues, open) = of("fd", "fds", &files.queues);
    let tap = DeviceOptions::new("tap").with("id", netdev_id(index)).with(queues, open);
    match files.vhost.as_slice() {
        [] => tap.with("vhost", false),
        vhost => {
            let (vhost, open) = of("vhostfd", "vhostfds", vhost);
            tap.with("vhost", true).with(vhost, open)
        }
    }
}

/// A virtio device of the current standard, without a boot ROM.
fn virtio(device: DeviceOptions, nic: &VirtioNic, version: Version) -> DeviceOptions {
    let device = device.with("disable-legacy", "on").with("romfile", "");
    let device = device.with("mq", nic.queues > 1).with("vectors", vectors(nic));
    let device = device.with("packed", nic.packed).with("mrg_rxbuf", nic.mrg_rxbuf);
    let device = device.with_some("rx_queue_size", nic.rx_ring).with_some("tx_queue_size", nic.tx_ring);
    let off: &[&[&str]] = match (nic.offloads, version >= Version::USO) {
        (true, _) => &[],
        (false, false) => &[&OFFLOADS],
        (false, true) => &[&OFFLOADS, &USO],
    };
    off.iter().copied().flatten().fold(device, |device, offload| device.with(offload, false))
}

/// Unless specified by the user: one vector per queue and two for the rest, so that none is shared.
fn vectors(nic: &VirtioNic) -> u32 {
    nic.vectors.unwrap_or(2 * nic.queues + 2)
}

/// The device's feature bits for checksums and segmentation in both directions.
const OFFLOADS: [&str; 11] = [
    "csum",
    "gso",
    "host_tso4",
    "host_tso6",
    "host_ecn",
    "host_ufo",
    "guest_csum",
    "guest_tso4",
    "guest_tso6",
    "guest_ecn",
    "guest_ufo",
];

/// Only newer versions of QEMU support segmentation of UDP.
const USO: [&str; 3] = ["host_uso", "guest_uso4", "guest_uso6"];

/// A virtio device of the current standard.
fn pci(device: &str) -> String {
    format!("{device},disable-legacy=on")
}

/// It has no boot ROM: only a BIOS booting from the network would run it.
fn assigned(device: pci::PciAddress) -> DeviceOptions {
    DeviceOptions::new("vfio-pci").with("host", device.to_string()).with("rombar", 0)
}
