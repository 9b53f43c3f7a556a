//! Launch parameters of a guest, as data.
//!
//! A [`Launch`] determines everything that QEMU is given, so that a plan can store, print and test it. Its directory
//! has the sockets and logs of the running guest under fixed names, so that another process finds them after this one
//! has exited.

mod difference;
mod version;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::Display;
use vtax_model::{
    guest::{Accelerator, Backend, EmulatedNic, GuestSize, VirtioNic, Vnet},
    server::{ServerDisk, ServerSpec},
    topology::Name,
    units::{ByteSize, Mtu},
};
use vtax_sys::{netlink::MacAddr, pci};

pub use difference::{DiskAspect, LaunchDifference, LaunchItem, NicAspect};
pub use version::{LaunchVersion, Version};

use crate::{
    LinkName,
    machine::{CpuModel, MachineType},
    vdisk::{DiskLaunch, DiskSource},
};

/// The name of the agent's virtio-serial port in a guest.
pub const AGENT_PORT: &str = "org.vtax.agent.0";
/// The id of that port in QEMU's monitor.
pub const AGENT_PORT_ID: &str = "port";
/// The tag under which a server mounts the host's files.
pub const ROOT_TAG: &str = "vtax-root";
/// The tag under which a guest mounts the directory shared with it.
pub const LENT_TAG: &str = "vtax-lent";
/// The modules required for that directory in a guest.
pub const LENT_DRIVERS: [&str; 2] = ["9p", "9pnet_virtio"];
/// The modules for the agent's port in a guest: its bus and the device.
pub const PORT_DRIVERS: [&str; 2] = ["virtio_pci", "virtio_console"];
/// The modules for a logical domain's virtio NICs and disks, for tagged VLANs, for nested interfaces with addresses of
/// `alt-mac-addrs`, and for the directory with carried programs. Each domain loads them, since all of these may be
/// added while it runs. A kernel may lack all but the first.
pub const DOMAIN_DRIVERS: [&str; 6] = ["virtio_net", "-virtio_blk", "-8021q", "-macvlan", "-9p", "-9pnet_virtio"];
/// The modules that a server needs for the host's files, and for links, NICs and its own guests. They can't be loaded
/// later, since the host's files have no modules of this kernel. Modules with a leading `-` may be missing, or fail
/// because they are for other CPUs.
const SERVER_DRIVERS: [&str; 39] = [
    "9p",
    "9pnet_virtio",
    "overlay",
    "igb",
    "igbvf",
    "vfio_pci",
    "vfio_iommu_type1",
    "tun",
    "tap",
    "vhost_net",
    "veth",
    "bridge",
    "macvlan",
    "macvtap",
    "ipvlan",
    "vxlan",
    "8021q",
    "dummy",
    "sch_tbf",
    "sch_netem",
    // libcrc32c requires it, and so does nf_tables: no module declares the dependency.
    "-crc32c_generic",
    "-nf_tables",
    "-nft_meta_bridge",
    "-ifb",
    "-sch_ingress",
    "-cls_u32",
    "-act_mirred",
    "-kvm_amd",
    "-kvm_intel",
    // For the state disk. ext4 requires crc32c_generic, too.
    "-virtio_blk",
    "-ext4",
    "-pvpanic_pci",
    // Block devices for measurements and for logical domains, and their layers: slow ones, failing ones, and thin ones.
    "-nvme",
    "-null_blk",
    "-brd",
    "-dm_mod",
    "-dm_delay",
    "-dm_flakey",
    "-dm_thin_pool",
];
/// Exists if KVM uses the virtualization of an Intel CPU.
const KVM_INTEL: &str = "/sys/module/kvm_intel";

/// The files in a guest's directory, which is QEMU's working directory.
pub(super) const AGENT_SOCKET: &str = "agent.sock";
pub(super) const CONSOLE_SOCKET: &str = "console.sock";
pub(super) const CONSOLE_LOG: &str = "console.log";
pub(super) const QMP_SOCKET: &str = "qmp.sock";
pub(super) const EVENTS_SOCKET: &str = "events.sock";
pub(super) const SEED: &str = "seed";
/// The serial number of the seed disk, by which the guest finds it.
pub(super) const SEED_SERIAL: &str = "vtax-seed";
/// The file behind a server's state disk.
pub(super) const STATE_DISK: &str = "state.img";
/// Its serial number, by which the agent finds it.
pub(super) const STATE_SERIAL: &str = "vtax-state";
/// Its size. The file is sparse, and so are those of the NVMe controllers.
const STATE_MOST: u64 = 256 << 20;

/// The QEMU of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuProgram {
    pub path: PathBuf,
    pub version: Version,
    /// True if it supports `-sandbox`, which is an option of its build and of the kernel.
    #[serde(default)]
    pub sandbox: bool,
    /// The machine behind its alias `q35`, if reported. The alias changes with each version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q35: Option<MachineType>,
    /// The file of qboot, if it is among this QEMU's files. This firmware does nothing but start a kernel: SeaBIOS
    /// configures all PCI devices first, which the kernel does again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qboot: Option<PathBuf>,
}

/// Hypervisor of a guest on this machine, and the guest's boot source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestEngine {
    pub qemu: QemuProgram,
    pub accel: Accelerator,
    pub boot: Boot,
}

/// One guest, as QEMU is to start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    #[serde(default = "LaunchVersion::first", skip_serializing_if = "LaunchVersion::is_first")]
    pub version: LaunchVersion,
    pub name: Name,
    /// The guest's directory, which must exist: QEMU creates its sockets and logs there, on a separate file system.
    pub directory: PathBuf,
    pub qemu: QemuProgram,
    pub accel: Accelerator,
    /// The machine type, which a guest keeps when it migrates. If absent, it is QEMU's alias `q35`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineType>,
    /// The CPU model. If absent, it is the host's own CPU under KVM, and under TCG everything that QEMU can emulate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuModel>,
    /// The number of virtual CPUs, at least 1. They are cores of one socket with one thread each.
    pub vcpus: u32,
    pub memory: ByteSize,
    /// True if the RAM is in huge pages of the default size. QEMU exits immediately if there are too few.
    #[serde(default)]
    pub hugepages: bool,
    /// The NUMA node of the host that the RAM is bound to.
    pub node: Option<u32>,
    pub boot: Boot,
    /// Path of qboot, if that is its firmware. If absent, it is QEMU's default, SeaBIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qboot: Option<PathBuf>,
    /// Its NICs, in the order in which the guest finds them.
    #[serde(default)]
    pub nics: Vec<NicLaunch>,
    /// The other devices below the root complex or in the IOMMU group of its NIC, each bound to vfio-pci.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<pci::PciAddress>,
    /// The options of an emulated server, if the guest is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,
    /// Files that install the agent in a disk image.
    pub seed: Option<Seed>,
    /// A directory of the host that the guest sees read-only, such as a program with its libraries. Its contents must
    /// be world-readable, since QEMU's user reads them; the directories above it may be inaccessible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent: Option<PathBuf>,
    /// True if its system mounts that directory only on request, not at boot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lent_later: bool,
    /// Number of empty slots for NICs plugged in at run time ([`Qemu::plug`](super::process::Qemu::plug)).
    #[serde(default)]
    pub spare_ports: u32,
    /// Host devices in the first of those slots from the start, so that they can be unplugged
    /// ([`Qemu::unplug_device`](super::process::Qemu::unplug_device)). Each is bound to vfio-pci.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removable: Vec<pci::PciAddress>,
    /// Its disks in addition to the boot disk.
    #[serde(default, skip_serializing_if = "GuestDisks::is_none")]
    pub disks: GuestDisks,
    /// True if its processors are stopped until [`Monitor::resume`](super::qmp::Monitor::resume).
    #[serde(default)]
    pub paused: bool,
    /// True if it has a second monitor, for a client that stays connected to receive events.
    #[serde(default)]
    pub has_events: bool,
    /// True if it doesn't boot, but waits for an incoming guest ([`migration`](crate::migration)). With `paused`, its
    /// processors stay stopped after the guest has arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incoming: bool,
}

/// A guest's disks in addition to the boot disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDisks {
    /// Number of its ports for disks. Empty ones accept a disk while the guest runs
    /// ([`Qemu::plug_disk`](super::process::Qemu::plug_disk)).
    pub ports: u32,
    /// The disks attached at the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskLaunch>,
}

impl GuestDisks {
    fn is_none(&self) -> bool {
        *self == GuestDisks::default()
    }
}

/// The contents of a small second disk with the volume label `CIDATA`: cloud-init's seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// The agent's program.
    pub agent: PathBuf,
    /// The address of the first NIC.
    pub address: IpNet,
}

/// Boot source of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "boot", rename_all = "kebab-case")]
pub enum Boot {
    /// A kernel with our initramfs, whose first process is the agent.
    Kernel {
        /// A bzImage, or the result of [`Kernel::bootable`](super::kernel::Kernel::bootable).
        kernel: PathBuf,
        initramfs: PathBuf,
        /// Additional kernel parameters, before our own.
        #[serde(default)]
        append: Vec<String>,
    },
    /// The user's own disk image.
    Disk {
        disk: PathBuf,
        format: DiskFormat,
        /// True if the guest's writes are kept in the image, instead of a temporary file.
        #[serde(default)]
        keep: bool,
    },
}

/// The format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DiskFormat {
    /// QEMU's own format.
    Qcow2,
    /// Raw blocks.
    Raw,
}

/// One NIC of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicLaunch {
    /// Its hardware address, by which the agent in the guest finds it.
    pub mac: MacAddr,
    /// Virtio with its backend, an emulated model, or a function of the host.
    pub kind: NicKind,
    /// Its slot on the first root complex, such as 16. QEMU assigns the lowest free slots to the devices before it, so
    /// a fixed slot has to be above those. If absent, QEMU chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// The largest MTU that a virtio NIC advertises to the guest's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_mtu: Option<Mtu>,
}

impl NicLaunch {
    /// A NIC in a slot that QEMU chooses.
    pub fn new(mac: MacAddr, kind: NicKind) -> NicLaunch {
        NicLaunch { mac, kind, slot: None, host_mtu: None }
    }
}

/// NIC model and its backend on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NicKind {
    /// virtio-net on a tap.
    Virtio {
        /// A tap in the namespace in which QEMU is started. It has a virtio-net header, and `multi_queue` if and only
        /// if there are several queues. With [`Vnet::Macvtap`] it is a macvtap, and QEMU receives its queue
        /// descriptors.
        tap: LinkName,
        /// The device. The host's kernel serves its rings if the backend is vhost; otherwise QEMU's main loop does.
        nic: VirtioNic,
    },
    /// A hardware NIC emulated by QEMU, on a tap.
    Emulated {
        /// A single-queue tap as for virtio-net.
        tap: LinkName,
        model: EmulatedNic,
    },
    /// A PCI function of the host, physical or virtual, driven by the guest.
    Vfio { device: pci::PciAddress, driver: String },
}

impl Launch {
    /// A guest of this size that starts running immediately, without NICs and devices.
    pub fn new(name: Name, directory: PathBuf, engine: GuestEngine, size: &GuestSize) -> Launch {
        let GuestEngine { qemu, accel, boot } = engine;
        Launch {
            version: LaunchVersion::CURRENT,
            name,
            directory,
            machine: qemu.q35.clone(),
            qboot: qemu.qboot.clone().filter(|_| matches!(boot, Boot::Kernel { .. })),
            cpu: None,
            qemu,
            accel,
            vcpus: size.vcpus,
            memory: size.memory,
            hugepages: size.hugepages,
            node: size.node,
            boot,
            nics: Vec::new(),
            devices: Vec::new(),
            server: None,
            seed: None,
            lent: None,
            lent_later: false,
            spare_ports: 0,
            removable: Vec::new(),
            disks: GuestDisks::default(),
            paused: false,
            has_events: false,
            incoming: false,
        }
    }

    /// Returns the launch with the firmware that suits the devices of the host that it has or may get.
    pub fn with_firmware_for_devices(self) -> Launch {
        self.on_cpu(Path::new(KVM_INTEL).exists())
    }

    /// qboot leaves the MTRRs disabled. On an Intel CPU, KVM before Linux 6.11 then doesn't cache the guest's RAM if
    /// the IOMMU can't make the devices' accesses coherent, and a guest before Linux 6.2 can't combine its writes to a
    /// device.
    pub(super) fn on_cpu(mut self, is_intel: bool) -> Launch {
        let has_devices = self.spare_ports > 0 || self.assigned().next().is_some();
        if is_intel && self.accel == Accelerator::Kvm && has_devices {
            self.qboot = None;
        }
        self
    }

    /// The socket behind the agent's port.
    pub fn agent_socket(&self) -> PathBuf {
        self.directory.join(AGENT_SOCKET)
    }

    /// The socket behind the serial console, for one reader at a time.
    pub fn console_socket(&self) -> PathBuf {
        self.directory.join(CONSOLE_SOCKET)
    }

    /// Path of the file to which QEMU writes the guest's serial output.
    pub fn console_log(&self) -> PathBuf {
        self.directory.join(CONSOLE_LOG)
    }

    /// The socket of QEMU's monitor, for one client at a time.
    pub fn qmp_socket(&self) -> PathBuf {
        self.directory.join(QMP_SOCKET)
    }

    /// The socket of QEMU's second monitor, for one client at a time, if it has one.
    pub fn events_socket(&self) -> PathBuf {
        self.directory.join(EVENTS_SOCKET)
    }

    /// The log of QEMU's own messages.
    pub fn stderr_log(&self) -> PathBuf {
        self.directory.join("qemu.log")
    }

    /// The files behind a server's disks, and their sizes: those of the state disk, which persists across reboots, and
    /// of the empty ones. They are removed with the directory.
    pub(super) fn server_disks(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        let state = |_: &ServerSpec| (self.directory.join(STATE_DISK), STATE_MOST);
        let empty = |disk| (self.directory.join(server_disk(disk)), ServerSpec::DISK_SIZE.0);
        let disks = self.server.iter().flat_map(ServerSpec::empty_disks).map(empty);
        self.server.as_ref().map(state).into_iter().chain(disks)
    }

    /// The directory presented to the guest as the seed disk.
    pub fn seed_directory(&self) -> PathBuf {
        self.directory.join(SEED)
    }

    /// Time limit on a busy machine: our kernel takes seconds; a distribution starts many programs first.
    pub fn patience(&self) -> Duration {
        let slow = matches!((&self.boot, self.accel), (Boot::Disk { .. }, Accelerator::Tcg));
        Duration::from_secs(if slow { 900 } else { 180 })
    }

    /// Returns the number of tap and macvtap queue descriptors that QEMU receives for each NIC. Its user may not open
    /// them.
    pub fn handed_queues(&self) -> Vec<u32> {
        self.nics.iter().map(|nic| nic.kind.queues()).collect()
    }

    /// Returns the number of host kernel threads that serve its NICs' rings.
    pub fn vhost_threads(&self) -> u32 {
        self.nics.iter().map(|nic| nic.kind.vhost_threads()).sum()
    }

    /// Host devices driven by the guest itself.
    pub(super) fn assigned(&self) -> impl Iterator<Item = pci::PciAddress> {
        let of_nic = |nic: &NicLaunch| match nic.kind {
            NicKind::Vfio { device, .. } => Some(device),
            _ => None,
        };
        let of_disk = |disk: &DiskLaunch| match disk.source {
            DiskSource::Controller { device } => Some(device),
            _ => None,
        };
        let others = self.devices.iter().chain(&self.removable).copied();
        self.nics.iter().filter_map(of_nic).chain(others).chain(self.disks.disks.iter().filter_map(of_disk))
    }
}

/// The name of the file behind an empty disk of a server.
pub(super) fn server_disk(disk: ServerDisk) -> String {
    format!("{disk}.img")
}

/// The kernel modules that a server needs.
pub fn server_drivers() -> Vec<&'static str> {
    PORT_DRIVERS.into_iter().chain(SERVER_DRIVERS).collect()
}

impl NicKind {
    /// Returns the number of queue descriptors that QEMU receives for its tap or macvtap.
    pub fn queues(&self) -> u32 {
        match self {
            NicKind::Virtio { nic, .. } => nic.queues,
            NicKind::Emulated { .. } => 1,
            NicKind::Vfio { .. } => 0,
        }
    }

    /// Returns the number of host kernel threads that serve its rings: one per queue pair.
    pub(super) fn vhost_threads(&self) -> u32 {
        match self {
            NicKind::Virtio { nic, .. } if nic.backend == Some(Backend::Vhost) => nic.queues,
            _ => 0,
        }
    }

    /// Returns whether its tap is a macvtap.
    pub fn is_macvtap(&self) -> bool {
        matches!(self, NicKind::Virtio { nic, .. } if nic.vnet == Vnet::Macvtap)
    }

    /// The tap or macvtap that it is attached to, if any.
    pub fn tap(&self) -> Option<&LinkName> {
        match self {
            NicKind::Virtio { tap, .. } | NicKind::Emulated { tap, .. } => Some(tap),
            NicKind::Vfio { .. } => None,
        }
    }
}
