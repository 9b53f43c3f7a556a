//! What a guest is started with, as data.
//!
//! A [`Launch`] says everything that QEMU is told, so that a plan can carry it, print it and
//! test it. Its directory holds what a running guest is reached by: sockets and logs with
//! fixed names, which is how another process finds them after this one is gone.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use vtax_model::{
    guest::{Accelerator, Backend, EmulatedNic, VirtioNic, Vnet},
    server::ServerSpec,
    topology::Name,
    units::ByteSize,
};
use vtax_sys::{netlink::MacAddr, pci};

use super::version::Version;
use crate::place::LinkName;

/// The name of the virtio-serial port on which the agent in a guest serves.
pub const AGENT_PORT: &str = "org.vtax.agent.0";
/// The name by which a server mounts the host's files.
pub const ROOT_TAG: &str = "vtax-root";
/// What the agent's port needs.
const PORT_DRIVERS: [&str; 2] = ["virtio_pci", "virtio_console"];
/// What a server needs to have the host's files, and links, NICs and guests of its own. Nothing loads
/// them later: of this kernel there are no modules in the host's files. One that begins with `-` may
/// be missing, or fail as it is for other CPUs.
const SERVER_DRIVERS: [&str; 22] = [
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
    "-kvm_amd",
    "-kvm_intel",
];
/// The serial number of the seed's disk, by which it is found in the guest.
pub(super) const SEED_SERIAL: &str = "vtax-seed";

/// The QEMU of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuProgram {
    /// The program.
    pub path: PathBuf,
    /// What it says it is.
    pub version: Version,
}

/// One guest, as QEMU is to start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The guest's name.
    pub name: Name,
    /// The guest's own directory, which must exist: QEMU makes its sockets and logs there.
    pub directory: PathBuf,
    /// QEMU.
    pub qemu: QemuProgram,
    /// What runs the guest's instructions.
    pub accel: Accelerator,
    /// Number of virtual CPUs, at least 1. They are one socket's cores, a thread each.
    pub vcpus: u32,
    /// The guest's RAM.
    pub memory: ByteSize,
    /// RAM in huge pages of the machine's default size, all of it reserved before the guest
    /// starts: QEMU ends at once if there are too few.
    #[serde(default)]
    pub hugepages: bool,
    /// The NUMA node of the host that the RAM is bound to.
    #[serde(default)]
    pub node: Option<u32>,
    /// What it boots.
    pub boot: Boot,
    /// Its NICs, in the order in which the guest finds them.
    #[serde(default)]
    pub nics: Vec<NicLaunch>,
    /// Further endpoints of the host's that it gets whole, each bound to vfio-pci: what else is below
    /// the root complex or in the IOMMU group of its NIC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<pci::PciAddress>,
    /// What makes it a server that has guests of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,
    /// What brings the agent into the system of a disk image.
    #[serde(default)]
    pub seed: Option<Seed>,
}

/// What a small disk has on it beside the user's, with the volume name `CIDATA`: cloud-init's seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// The agent's program.
    pub agent: PathBuf,
    /// The address of the first NIC.
    pub address: Ipv4Net,
}

/// What a guest boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "boot", rename_all = "kebab-case")]
pub enum Boot {
    /// A kernel with an initramfs of ours, whose first process is the agent.
    Kernel {
        /// A bzImage, or what [`Kernel::bootable`](super::kernel::Kernel::bootable) makes of it.
        kernel: PathBuf,
        /// An initramfs, as [`image::build`](super::image::build) makes it.
        initramfs: PathBuf,
        /// More kernel parameters, before those of ours.
        #[serde(default)]
        append: Vec<String>,
    },
    /// The user's own disk image.
    Disk {
        /// The image.
        disk: PathBuf,
        /// Its format.
        format: DiskFormat,
        /// Whether the guest's writes stay in the image. Otherwise they go to a temporary file
        /// that is removed with the guest.
        #[serde(default)]
        keep: bool,
    },
}

/// The format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// QEMU's own.
    Qcow2,
    /// The plain blocks.
    Raw,
}

/// One NIC of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicLaunch {
    /// Its hardware address, by which the agent in the guest finds it.
    #[serde(with = "as_text")]
    pub mac: MacAddr,
    /// What it is.
    pub kind: NicKind,
}

/// What a NIC is and how the host serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NicKind {
    /// virtio-net on a tap.
    Virtio {
        /// A tap that exists in the namespace that QEMU is started in, made with a virtio-net
        /// header, and with `multi_queue` exactly if there are several queues. With
        /// [`Vnet::Macvtap`] it is a macvtap, of which QEMU gets the queues open.
        tap: LinkName,
        /// The device; its rings are served by the host's kernel if the backend is vhost, else by
        /// QEMU's main loop.
        nic: VirtioNic,
    },
    /// virtio-net whose rings another program serves, in memory that it shares with the guest.
    VhostUser {
        /// The socket on which that program listens already.
        socket: PathBuf,
        /// The device.
        nic: VirtioNic,
    },
    /// A NIC of hardware, imitated by QEMU, on a tap.
    Emulated {
        /// As for virtio-net; of one queue.
        tap: LinkName,
        /// The hardware.
        model: EmulatedNic,
    },
    /// A PCI function of the host's, whole or virtual, that the guest drives itself.
    Vfio {
        /// The function, bound to vfio-pci.
        device: pci::PciAddress,
        /// The module that drives it in the guest.
        driver: String,
    },
}

impl Launch {
    /// The socket behind the agent's port.
    pub fn agent_socket(&self) -> PathBuf {
        self.directory.join("agent.sock")
    }

    /// The socket behind the serial console, for one reader at a time.
    pub fn console_socket(&self) -> PathBuf {
        self.directory.join("console.sock")
    }

    /// All that the console has said.
    pub fn console_log(&self) -> PathBuf {
        self.directory.join("console.log")
    }

    /// The socket of QEMU's monitor, for one client at a time.
    pub fn qmp_socket(&self) -> PathBuf {
        self.directory.join("qmp.sock")
    }

    /// What QEMU itself has said.
    pub fn stderr_log(&self) -> PathBuf {
        self.directory.join("qemu.log")
    }

    /// The directory that the guest sees as the seed's disk.
    pub fn seed_directory(&self) -> PathBuf {
        self.directory.join("seed")
    }

    /// How long it may take to come up, on a machine that is busy with others of its kind. A kernel of
    /// ours does in seconds; a distribution's system starts a hundred programs before the agent.
    pub fn patience(&self) -> Duration {
        match (&self.boot, self.accel) {
            (Boot::Kernel { .. }, _) => Duration::from_secs(180),
            (Boot::Disk { .. }, Accelerator::Kvm) => Duration::from_secs(180),
            (Boot::Disk { .. }, Accelerator::Tcg) => Duration::from_secs(900),
        }
    }

    /// The drivers without which the guest is deaf or mute, as names of kernel modules.
    pub fn drivers(&self) -> Vec<&str> {
        let mut drivers = if self.server.is_some() { server_drivers() } else { PORT_DRIVERS.to_vec() };
        for nic in &self.nics {
            if !drivers.contains(&nic.kind.driver()) {
                drivers.push(nic.kind.driver());
            }
        }
        drivers
    }

    /// How many queues QEMU gets open for each NIC, as it can't open them itself.
    pub fn handed_queues(&self) -> Vec<u32> {
        self.nics.iter().map(|nic| nic.kind.macvtap().map_or(0, |(_, queues)| queues)).collect()
    }

    /// How many threads of the host's kernel serve its NICs' rings: one for each pair of queues.
    pub fn vhost_threads(&self) -> u32 {
        let of = |nic: &NicLaunch| match &nic.kind {
            NicKind::Virtio { nic, .. } if nic.backend == Some(Backend::Vhost) => nic.queues,
            _ => 0,
        };
        self.nics.iter().map(of).sum()
    }

    /// Whether RAM must be a file that another process can map.
    pub(super) fn shares_memory(&self) -> bool {
        self.nics.iter().any(|nic| matches!(nic.kind, NicKind::VhostUser { .. }))
    }
}

/// As [`Launch::drivers`], of any server.
pub(crate) fn server_drivers() -> Vec<&'static str> {
    PORT_DRIVERS.into_iter().chain(SERVER_DRIVERS).collect()
}

impl NicKind {
    /// The Linux module that drives it in the guest.
    pub fn driver(&self) -> &str {
        match self {
            NicKind::Virtio { .. } | NicKind::VhostUser { .. } => "virtio_net",
            NicKind::Emulated { model, .. } => model.driver(),
            NicKind::Vfio { driver, .. } => driver,
        }
    }

    /// QEMU's name of the device.
    pub fn device(&self) -> &'static str {
        match self {
            NicKind::Virtio { .. } | NicKind::VhostUser { .. } => "virtio-net-pci",
            NicKind::Emulated { model, .. } => model.name(),
            NicKind::Vfio { .. } => "vfio-pci",
        }
    }

    /// The macvtap that it hangs on, with its number of queues.
    pub fn macvtap(&self) -> Option<(&LinkName, u32)> {
        match self {
            NicKind::Virtio { tap, nic } if nic.vnet == Vnet::Macvtap => Some((tap, nic.queues)),
            _ => None,
        }
    }

    /// The tap that it hangs on, if it hangs on one.
    pub fn tap(&self) -> Option<&LinkName> {
        match self {
            NicKind::Virtio { tap, .. } | NicKind::Emulated { tap, .. } => Some(tap),
            NicKind::VhostUser { .. } | NicKind::Vfio { .. } => None,
        }
    }
}

impl DiskFormat {
    /// By the file's first bytes: qcow2 begins with `QFI\xfb`.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of(disk: &Path) -> std::io::Result<DiskFormat> {
        use std::io::Read;
        let mut magic = Vec::new();
        std::fs::File::open(disk)?.take(4).read_to_end(&mut magic)?;
        Ok(if magic == *b"QFI\xfb" { DiskFormat::Qcow2 } else { DiskFormat::Raw })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            DiskFormat::Qcow2 => "qcow2",
            DiskFormat::Raw => "raw",
        }
    }
}

mod as_text {
    use std::{fmt, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
