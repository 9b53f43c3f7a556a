//! Comparison of the launches of one guest on two hosts.
//!
//! QEMU's own checks are insufficient. It refuses a different RAM size, number of processors or queues, but it accepts
//! a different CPU model, after which the guest crashes, and a different hardware address or a missing CPU feature,
//! with which the guest continues but is silently different. So everything visible to the guest is compared here.
//! Properties visible only to its host may differ: paths, taps, NUMA nodes, huge pages, ring backends, disk threads.

use std::fmt;

use strum::Display;
use vtax_model::{guest::VirtioNic, units::Mtu};

use super::{Boot, DiskFormat, GuestDisks, Launch, NicKind, NicLaunch, Version};
use crate::vdisk::{DiskFile, DiskLaunch, DiskSource};

/// A property of a guest in which two launches differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchDifference {
    pub item: LaunchItem,
    /// The value in this launch.
    pub here: String,
    /// The value in the other launch.
    pub there: String,
}

impl fmt::Display for LaunchDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} here, {} there", self.item, self.here, self.there)
    }
}

/// A property visible to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum LaunchItem {
    #[strum(to_string = "accelerator")]
    Accelerator,
    #[strum(to_string = "machine type")]
    Machine,
    /// It is in the guest's memory, where its size must be the same.
    #[strum(to_string = "firmware")]
    Firmware,
    /// Two launches without a CPU model have the same value, although their hosts may have different CPUs.
    #[strum(to_string = "CPU model")]
    Cpu,
    /// QEMU before version 7.1 always has one.
    #[strum(to_string = "keyboard controller")]
    KeyboardController,
    #[strum(to_string = "vCPUs")]
    Vcpus,
    #[strum(to_string = "memory")]
    Memory,
    #[strum(to_string = "boot source")]
    Boot,
    #[strum(to_string = "kernel parameters")]
    KernelParameters,
    #[strum(to_string = "emulated server")]
    Server,
    #[strum(to_string = "seed disk")]
    Seed,
    #[strum(to_string = "shared directory")]
    SharedDirectory,
    #[strum(to_string = "host devices")]
    HostDevices,
    #[strum(to_string = "removable host devices")]
    RemovableDevices,
    #[strum(to_string = "slots for NICs")]
    NicSlots,
    #[strum(to_string = "NICs")]
    Nics,
    /// A property of the NIC with this index.
    #[strum(to_string = "NIC {0}: {1}")]
    Nic(usize, NicAspect),
    #[strum(to_string = "ports for disks")]
    DiskPorts,
    #[strum(to_string = "disks")]
    Disks,
    /// A property of the disk in this port.
    #[strum(to_string = "disk {0}: {1}")]
    Disk(u32, DiskAspect),
}

/// A property of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum NicAspect {
    #[strum(to_string = "MAC address")]
    Mac,
    #[strum(to_string = "model")]
    Model,
    #[strum(to_string = "slot")]
    Slot,
    #[strum(to_string = "MTU")]
    Mtu,
    #[strum(to_string = "queues")]
    Queues,
    #[strum(to_string = "interrupt vectors")]
    Vectors,
    #[strum(to_string = "packed ring")]
    PackedRing,
    #[strum(to_string = "offloads")]
    Offloads,
    #[strum(to_string = "mergeable receive buffers")]
    MergeableBuffers,
    #[strum(to_string = "receive ring")]
    ReceiveRing,
    #[strum(to_string = "transmit ring")]
    TransmitRing,
}

/// A property of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum DiskAspect {
    #[strum(to_string = "device")]
    Device,
    #[strum(to_string = "port")]
    Port,
    #[strum(to_string = "serial number")]
    Serial,
    #[strum(to_string = "access")]
    Access,
    #[strum(to_string = "queues")]
    Queues,
    #[strum(to_string = "image format")]
    Format,
    #[strum(to_string = "size")]
    Size,
}

impl Launch {
    /// Returns everything in which a guest of this launch would find the other one different, in the order in which a
    /// user would look for it.
    pub fn differences(&self, other: &Launch) -> Vec<LaunchDifference> {
        // A new field doesn't compile until it is handled here.
        let Launch {
            version: _,
            name: _,
            directory: _,
            qemu: _,
            accel: _,
            machine: _,
            cpu: _,
            vcpus: _,
            memory: _,
            hugepages: _,
            node: _,
            boot: _,
            qboot: _,
            nics: _,
            devices: _,
            server: _,
            seed: _,
            lent: _,
            lent_later: _,
            spare_ports: _,
            removable: _,
            disks: _,
            paused: _,
            has_events: _,
            incoming: _,
        } = self;
        let mut found = LaunchComparison::default();
        found.machine(self, other);
        found.boot(&self.boot, &other.boot);
        found.devices(self, other);
        found.nics(&self.nics, &other.nics);
        found.disks(&self.disks, &other.disks);
        found.0
    }
}

#[derive(Default)]
struct LaunchComparison(Vec<LaunchDifference>);

impl LaunchComparison {
    fn compare<T: PartialEq + fmt::Display>(&mut self, item: LaunchItem, here: T, there: T) {
        if here != there {
            self.0.push(LaunchDifference { item, here: here.to_string(), there: there.to_string() });
        }
    }

    fn compare_named<T: PartialEq + fmt::Display>(
        &mut self,
        item: LaunchItem,
        here: Option<T>,
        there: Option<T>,
        absent: &'static str,
    ) {
        let name = |value: Option<T>| value.map_or_else(|| absent.to_owned(), |value| value.to_string());
        self.compare(item, name(here), name(there));
    }

    fn machine(&mut self, here: &Launch, there: &Launch) {
        self.compare(LaunchItem::Accelerator, here.accel, there.accel);
        self.compare_named(LaunchItem::Machine, here.machine.as_ref(), there.machine.as_ref(), "not recorded");
        let firmware = |launch: &Launch| if launch.qboot.is_some() { "qboot" } else { "SeaBIOS" };
        self.compare(LaunchItem::Firmware, firmware(here), firmware(there));
        self.compare_named(LaunchItem::Cpu, here.cpu.as_ref(), there.cpu.as_ref(), "the host's own");
        let keyboard = |launch: &Launch| presence(launch.qemu.version < Version::NO_I8042);
        self.compare(LaunchItem::KeyboardController, keyboard(here), keyboard(there));
        self.compare(LaunchItem::Vcpus, here.vcpus, there.vcpus);
        self.compare(LaunchItem::Memory, here.memory, there.memory);
        self.compare_named(LaunchItem::Server, here.server, there.server, "none");
    }

    fn devices(&mut self, here: &Launch, there: &Launch) {
        self.compare(LaunchItem::Seed, presence(here.seed.is_some()), presence(there.seed.is_some()));
        self.compare(LaunchItem::SharedDirectory, presence(here.lent.is_some()), presence(there.lent.is_some()));
        self.compare(LaunchItem::HostDevices, here.devices.len(), there.devices.len());
        self.compare(LaunchItem::RemovableDevices, here.removable.len(), there.removable.len());
        self.compare(LaunchItem::NicSlots, here.spare_ports, there.spare_ports);
    }

    /// The paths may differ: comparing the contents is up to the caller.
    fn boot(&mut self, here: &Boot, there: &Boot) {
        let source = |boot: &Boot| match boot {
            Boot::Kernel { .. } => "a kernel".to_owned(),
            Boot::Disk { format, keep: true, .. } => format!("a disk ({format})"),
            Boot::Disk { format, keep: false, .. } => format!("a disk ({format}, changes discarded)"),
        };
        self.compare(LaunchItem::Boot, source(here), source(there));
        if let (Boot::Kernel { append: here, .. }, Boot::Kernel { append: there, .. }) = (here, there) {
            self.compare(LaunchItem::KernelParameters, here.join(" "), there.join(" "));
        }
    }

    fn nics(&mut self, here: &[NicLaunch], there: &[NicLaunch]) {
        self.compare(LaunchItem::Nics, here.len(), there.len());
        for (number, (here, there)) in here.iter().zip(there).enumerate() {
            let item = |aspect| LaunchItem::Nic(number, aspect);
            self.compare(item(NicAspect::Mac), here.mac, there.mac);
            let slot = |nic: &NicLaunch| nic.slot;
            self.compare_named(item(NicAspect::Slot), slot(here), slot(there), "the next free one");
            let mtu = |nic: &NicLaunch| nic.host_mtu.map(Mtu::get);
            self.compare_named(item(NicAspect::Mtu), mtu(here), mtu(there), "not reported");
            self.compare(item(NicAspect::Model), model(&here.kind), model(&there.kind));
            if let (NicKind::Virtio { nic: here, .. }, NicKind::Virtio { nic: there, .. }) = (&here.kind, &there.kind) {
                self.virtio(item, here, there);
            }
        }
    }

    fn virtio(&mut self, item: impl Fn(NicAspect) -> LaunchItem, here: &VirtioNic, there: &VirtioNic) {
        // The host's side of a NIC may differ.
        let VirtioNic { backend: _, vnet: _, queues, vectors, packed, offloads, mrg_rxbuf, rx_ring, tx_ring } = here;
        const BY_QUEUES: &str = "by queues";
        const DEFAULT: &str = "QEMU's default";
        self.compare(item(NicAspect::Queues), queues, &there.queues);
        self.compare_named(item(NicAspect::Vectors), vectors.as_ref(), there.vectors.as_ref(), BY_QUEUES);
        self.compare(item(NicAspect::PackedRing), state(*packed), state(there.packed));
        self.compare(item(NicAspect::Offloads), state(*offloads), state(there.offloads));
        self.compare(item(NicAspect::MergeableBuffers), state(*mrg_rxbuf), state(there.mrg_rxbuf));
        self.compare_named(item(NicAspect::ReceiveRing), rx_ring.as_ref(), there.rx_ring.as_ref(), DEFAULT);
        self.compare_named(item(NicAspect::TransmitRing), tx_ring.as_ref(), there.tx_ring.as_ref(), DEFAULT);
    }

    fn disks(&mut self, here: &GuestDisks, there: &GuestDisks) {
        self.compare(LaunchItem::DiskPorts, here.ports, there.ports);
        self.compare(LaunchItem::Disks, here.disks.len(), there.disks.len());
        for (here, there) in here.disks.iter().zip(&there.disks) {
            let item = |aspect| LaunchItem::Disk(here.port, aspect);
            self.compare(item(DiskAspect::Port), here.port, there.port);
            self.compare(item(DiskAspect::Serial), &here.serial, &there.serial);
            let access = |disk: &DiskLaunch| if disk.read_only { "read-only" } else { "read-write" };
            self.compare(item(DiskAspect::Access), access(here), access(there));
            self.compare(item(DiskAspect::Device), disk_model(here), disk_model(there));
            let queues = |disk: &DiskLaunch| disk.attach.map(|attach| attach.queues);
            self.compare_named(item(DiskAspect::Queues), queues(here), queues(there), "QEMU's default");
            let (here, there) = (first_file(here), first_file(there));
            let format = |file: Option<&DiskFile>| file.map(|file| file.format);
            self.compare_named::<DiskFormat>(item(DiskAspect::Format), format(here), format(there), "none");
            let size = |file: Option<&DiskFile>| file.and_then(|file| file.slice).map(|(_, size)| size);
            self.compare_named(item(DiskAspect::Size), size(here), size(there), "the whole file");
        }
    }
}

fn presence(is_there: bool) -> &'static str {
    if is_there { "present" } else { "absent" }
}

fn state(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn model(kind: &NicKind) -> &'static str {
    match kind {
        NicKind::Virtio { .. } => "virtio-net",
        NicKind::Emulated { model, .. } => (*model).into(),
        NicKind::Vfio { .. } => "a function of the host",
    }
}

fn disk_model(disk: &DiskLaunch) -> String {
    match disk.source {
        DiskSource::Controller { .. } => "an NVMe controller of the host".to_owned(),
        DiskSource::File(_) | DiskSource::Paths(_) => disk.device().to_string(),
    }
}

fn first_file(disk: &DiskLaunch) -> Option<&DiskFile> {
    match &disk.source {
        DiskSource::File(file) => Some(file),
        DiskSource::Paths(paths) => paths.files.first(),
        DiskSource::Controller { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::guest::{Accelerator, Backend, GuestSize};

    use super::*;
    use crate::{
        LinkName,
        launch::{GuestEngine, QemuProgram},
    };

    fn launch() -> Launch {
        let qemu = QemuProgram {
            path: "/bin/false".into(),
            version: Version { major: 10, minor: 0 },
            sandbox: true,
            q35: "pc-q35-10.0".parse().ok(),
            qboot: None,
        };
        let boot = Boot::Kernel { kernel: "/k".into(), initramfs: "/i".into(), append: Vec::new() };
        let engine = GuestEngine { qemu, accel: Accelerator::Tcg, boot };
        let mut launch = Launch::new("web".parse().expect("a name"), "/g".into(), engine, &GuestSize::default());
        launch.nics.push(nic("vnet0", VirtioNic::default()));
        let file = DiskFile {
            path: "/d".into(),
            format: DiskFormat::Raw,
            is_device: false,
            slice: None,
            exclusive: false,
            shared: false,
            direct: false,
        };
        let source = DiskSource::File(file);
        launch.disks.disks.push(DiskLaunch {
            port: 1,
            serial: "data".to_owned(),
            read_only: false,
            attach: None,
            source,
        });
        launch
    }

    fn nic(tap: &str, nic: VirtioNic) -> NicLaunch {
        let kind = NicKind::Virtio { tap: LinkName::new(tap), nic };
        NicLaunch::new("02:00:5e:10:00:01".parse().expect("an address"), kind)
    }

    fn told(change: impl FnOnce(&mut Launch)) -> Vec<String> {
        let mut other = launch();
        change(&mut other);
        launch().differences(&other).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn host_only_properties_may_differ() {
        let found = told(|other| {
            other.name = "mail".parse().expect("a name");
            other.directory = "/elsewhere".into();
            other.qemu.path = "/opt/qemu".into();
            other.hugepages = true;
            other.node = Some(1);
            other.incoming = true;
            other.paused = true;
            other.nics[0] = nic("vnet7", VirtioNic { backend: Some(Backend::Userspace), ..VirtioNic::default() });
            let DiskSource::File(file) = &mut other.disks.disks[0].source else { unreachable!("it is a file") };
            file.path = "/dev/sdb".into();
            file.is_device = true;
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn guest_visible_differences_are_found() {
        let found = told(|other| {
            other.vcpus += 1;
            other.memory.0 *= 2;
            other.machine = "pc-q35-9.2".parse().ok();
            other.qboot = Some("/q".into());
            other.cpu = "qemu64".parse().ok();
            other.qemu.version = Version { major: 7, minor: 0 };
            other.nics[0].mac = "02:00:5e:10:00:02".parse().expect("an address");
            other.nics[0].slot = Some(16);
            other.disks.disks[0].serial = "other".to_owned();
        });
        insta::assert_snapshot!(found.join("\n"), @r"
        machine type: pc-q35-10.0 here, pc-q35-9.2 there
        firmware: SeaBIOS here, qboot there
        CPU model: the host's own here, qemu64 there
        keyboard controller: absent here, present there
        vCPUs: 1 here, 2 there
        memory: 256 MiB here, 512 MiB there
        NIC 0: MAC address: 02:00:5e:10:00:01 here, 02:00:5e:10:00:02 there
        NIC 0: slot: the next free one here, 16 there
        disk 1: serial number: data here, other there
        ");
    }

    #[test]
    fn each_option_of_virtio_is_compared() {
        let nic_of = |options| nic("vnet0", options);
        let found = told(|other| {
            other.nics[0] = nic_of(VirtioNic {
                queues: 2,
                vectors: Some(3),
                packed: true,
                offloads: false,
                mrg_rxbuf: false,
                rx_ring: Some(1024),
                tx_ring: Some(512),
                ..VirtioNic::default()
            });
        });
        assert_eq!(found.len(), 7, "{found:#?}");
        assert_eq!(found[5], "NIC 0: receive ring: QEMU's default here, 1024 there");
    }

    #[test]
    fn a_missing_nic_and_another_boot_source_are_found() {
        let found = told(|other| {
            other.nics.clear();
            other.boot = Boot::Disk { disk: "/d".into(), format: DiskFormat::Qcow2, keep: true };
            other.spare_ports = 4;
            other.lent = Some("/carried".into());
        });
        insta::assert_snapshot!(found.join("\n"), @r"
        boot source: a kernel here, a disk (qcow2) there
        shared directory: absent here, present there
        slots for NICs: 0 here, 4 there
        NICs: 1 here, 0 there
        ");
    }
}
