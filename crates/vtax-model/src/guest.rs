//! Guests: their size, boot source and NIC.

mod flavour;
mod mac;
mod table;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumString, IntoStaticStr};

pub use flavour::{Flavour, UnknownFlavour};
pub use mac::{BadMac, Mac};
pub(crate) use table::{GuestOptions, GuestTable, span, value};

use crate::{
    method::IoMethod,
    study::{GuestPath, Queueing, Row},
    units::ByteSize,
    vf::{BadRate, VfOptions},
};

/// The virtual machine of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSize {
    /// Virtual CPUs, 1 to [`GuestSize::MOST_VCPUS`].
    pub vcpus: u32,
    /// Its RAM, whole MiB.
    pub memory: ByteSize,
    /// True if the RAM consists of huge pages.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub hugepages: bool,
    /// The host's CPUs that the vCPUs are pinned to, in turn; unpinned if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// The host's CPUs that QEMU's own threads may run on; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io_cpus: Vec<u32>,
    /// The host's CPUs that the vhost threads, one for each pair of queues, are pinned to, in turn; unpinned if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vhost_cpus: Vec<u32>,
    /// The NUMA node that the RAM is from; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

impl GuestSize {
    /// Maximum number of vCPUs: a tap can have no more queues (`MAX_TAP_QUEUES`), and each vCPU has
    /// one.
    pub const MOST_VCPUS: u32 = 256;
    /// Minimum memory: a distribution's kernel with its initramfs doesn't start with less.
    pub const LEAST_MEMORY: ByteSize = ByteSize(96 << 20);
    /// Default memory of a guest with a disk image, in which a distribution's whole system runs.
    pub const OF_A_DISK: ByteSize = ByteSize(1 << 30);
}

impl Default for GuestSize {
    fn default() -> Self {
        GuestSize {
            vcpus: 1,
            memory: ByteSize(256 << 20),
            hugepages: false,
            cpus: Vec::new(),
            io_cpus: Vec::new(),
            vhost_cpus: Vec::new(),
            node: None,
        }
    }
}

/// Accelerator of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Accelerator {
    /// The CPU itself, through the kernel's KVM.
    Kvm,
    /// QEMU's translator: no timing in such a guest is valid for a real one.
    Tcg,
}

/// Boot source of a guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// A kernel, and vtax's agent as its first process.
    Own {
        /// A bzImage; if absent, one found on the host.
        kernel: Option<PathBuf>,
    },
    /// The user's disk image with its own system.
    Disk {
        /// qcow2 or raw.
        image: PathBuf,
    },
}

impl Default for System {
    fn default() -> Self {
        System::Own { kernel: None }
    }
}

/// Attachment of a guest's NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase")]
pub enum Attach {
    /// virtio-net.
    Paravirtual(VirtioNic),
    /// An emulated hardware NIC.
    Emulated {
        /// The emulated hardware.
        model: EmulatedNic,
    },
    /// A virtual function of the NIC at the host's end of the wire.
    #[serde(rename = "sr-iov")]
    SrIov(VfOptions),
    /// The NIC at the host's end of the wire.
    Assigned,
    /// The NIC at the host's end of the wire, and everything else below its root complex.
    #[serde(rename = "root-domain")]
    RootDomain,
}

/// A virtio-net device.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtioNic {
    /// Backend of its rings; if absent, [`Backend::Vhost`] if the host supports it, else [`Backend::Userspace`].
    pub backend: Option<Backend>,
    /// Connection of its tap to the host's wire.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub vnet: Vnet,
    /// Number of queue pairs, at most one per vCPU.
    pub queues: u32,
    /// Number of MSI-X vectors; if absent, one for each queue and two more.
    pub vectors: Option<u32>,
    /// The packed ring of virtio 1.1.
    pub packed: bool,
    /// True if checksums and segmentation are left to the host.
    pub offloads: bool,
    /// True if a packet may span several receive buffers.
    pub mrg_rxbuf: bool,
    /// Descriptors of a receive queue; QEMU's default (256) if absent.
    pub rx_ring: Option<u32>,
    /// Descriptors of a transmit queue; QEMU's default (256) if absent.
    pub tx_ring: Option<u32>,
}

impl Default for VirtioNic {
    fn default() -> Self {
        VirtioNic {
            backend: None,
            vnet: Vnet::Bridge,
            queues: 1,
            vectors: None,
            packed: false,
            offloads: true,
            mrg_rxbuf: true,
            rx_ring: None,
            tx_ring: None,
        }
    }
}

/// Backend of the rings of a virtio-net device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Backend {
    /// The host's kernel (vhost-net).
    Vhost,
    /// QEMU.
    Userspace,
    /// Another program, in memory that it shares with the guest.
    VhostUser,
}

/// Connection of a paravirtual NIC's tap to the host's wire.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, Display, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Vnet {
    /// By a vsw: a bridge with the wire's end as a port, which receives every frame.
    #[default]
    Bridge,
    /// By a macvtap: the driver of the wire's end passes each frame with the guest's address to the guest.
    Macvtap,
}

/// Hardware that a hypervisor emulates.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum EmulatedNic {
    /// Intel 82574L.
    #[default]
    E1000e,
    /// Intel 82576.
    Igb,
    /// VMware's.
    Vmxnet3,
    /// Realtek 8139C+.
    Rtl8139,
}

impl EmulatedNic {
    /// The Linux module that drives it. QEMU's rtl8139 is the C+ revision, which `8139too` leaves to `8139cp`.
    pub fn driver(self) -> &'static str {
        match self {
            EmulatedNic::Rtl8139 => "8139cp",
            other => other.into(),
        }
    }
}

impl Attach {
    /// Number of descriptors that QEMU accepts for a ring (`VIRTIO_NET_RX_QUEUE_MIN_SIZE`, `VIRTQUEUE_MAX_SIZE`).
    const RING: std::ops::RangeInclusive<u32> = 256..=1024;
    /// QEMU shortens longer transmit rings without a message, except vhost-user's (`virtio_net_max_tx_queue_size`).
    const TX_RING_OF_A_TAP: u32 = 256;
    /// Maximum size of an MSI-X table (PCI Local Bus Specification 3.0, 6.8.2).
    const MOST_VECTORS: u32 = 2048;

    /// The I/O method.
    pub fn method(&self) -> IoMethod {
        match self {
            Attach::Paravirtual(_) => IoMethod::Paravirtual,
            Attach::Emulated { .. } => IoMethod::Emulated,
            Attach::SrIov(_) => IoMethod::SrIov,
            Attach::Assigned => IoMethod::Assigned,
            Attach::RootDomain => IoMethod::RootDomain,
        }
    }

    /// Returns true if the guest is assigned a PCI device of the host.
    pub fn is_device(&self) -> bool {
        matches!(self, Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain)
    }

    /// Returns its kind, if specified.
    pub fn flavour(&self) -> Option<Flavour> {
        match self {
            Attach::Paravirtual(nic) => nic.backend.map(Flavour::Backend),
            Attach::Emulated { model } => Some(Flavour::Model(*model)),
            Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain => None,
        }
    }

    /// Number of queue pairs. The driver of a PCI device chooses it itself.
    pub fn queues(&self) -> u32 {
        match self {
            Attach::Paravirtual(nic) => nic.queues,
            Attach::Emulated { .. } | Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain => 1,
        }
    }

    /// Checks that a machine of this size can have such a NIC.
    pub fn check(&self, size: &GuestSize) -> Result<(), BadGuest> {
        size.check()?;
        let nic = match self {
            Attach::Paravirtual(nic) => nic,
            Attach::SrIov(vf) => return vf.rate_mbit().map(drop).map_err(BadGuest::Rate),
            Attach::Emulated { .. } | Attach::Assigned | Attach::RootDomain => return Ok(()),
        };
        let tap = nic.backend != Some(Backend::VhostUser);
        let bad_ring = |ring: &u32| !Attach::RING.contains(ring) || !ring.is_power_of_two();
        match nic {
            VirtioNic { vnet, backend: Some(Backend::VhostUser), .. } if *vnet != Vnet::Bridge => {
                Err(BadGuest::NoTap(*vnet))
            }
            VirtioNic { queues, .. } if size.vhost_cpus.len() > *queues as usize => {
                Err(BadGuest::VhostPins { pins: size.vhost_cpus.len(), queues: *queues })
            }
            VirtioNic { queues, .. } if !(1..=size.vcpus).contains(queues) => {
                Err(BadGuest::Queues { queues: *queues, vcpus: size.vcpus })
            }
            VirtioNic { vectors: Some(vectors), .. } if *vectors > Attach::MOST_VECTORS => {
                Err(BadGuest::Vectors(*vectors))
            }
            VirtioNic { rx_ring: Some(ring), .. } if bad_ring(ring) => {
                Err(BadGuest::Ring { option: "rx_ring", ring: *ring })
            }
            VirtioNic { tx_ring: Some(ring), .. } if bad_ring(ring) => {
                Err(BadGuest::Ring { option: "tx_ring", ring: *ring })
            }
            VirtioNic { tx_ring: Some(ring), .. } if tap && *ring > Attach::TX_RING_OF_A_TAP => {
                Err(BadGuest::TxRing(*ring))
            }
            _ => Ok(()),
        }
    }
}

impl GuestSize {
    const MIB: u64 = 1 << 20;

    pub(crate) fn check(&self) -> Result<(), BadGuest> {
        let GuestSize { vcpus, memory, cpus, .. } = self;
        match self {
            _ if !(1..=GuestSize::MOST_VCPUS).contains(vcpus) => Err(BadGuest::Vcpus(*vcpus)),
            _ if *memory < GuestSize::LEAST_MEMORY || !memory.0.is_multiple_of(GuestSize::MIB) => {
                Err(BadGuest::Memory(*memory))
            }
            _ if cpus.len() > *vcpus as usize => Err(BadGuest::Pins { pins: cpus.len(), vcpus: *vcpus }),
            _ => Ok(()),
        }
    }
}

/// An impossible guest, by the option that makes it so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum BadGuest {
    #[error("{0} vCPUs: must be 1 to {most}", most = GuestSize::MOST_VCPUS)]
    #[diagnostic(code("bad-guest"))]
    Vcpus(u32),
    #[error("memory {0}: must be whole MiB, at least {least}", least = GuestSize::LEAST_MEMORY)]
    #[diagnostic(code("bad-guest"))]
    Memory(ByteSize),
    #[error("{pins} cpus for {vcpus} vcpus: specify at most one per vCPU")]
    #[diagnostic(code("bad-guest"))]
    Pins { pins: usize, vcpus: u32 },
    #[error("{pins} vhost_cpus for {queues} queues: a queue has one vhost thread; specify at most one per queue")]
    #[diagnostic(code("bad-guest"))]
    VhostPins { pins: usize, queues: u32 },
    #[error("vnet = \"{0}\" is a kind of tap, which backend = \"vhost-user\" does not use; remove one of them")]
    #[diagnostic(code("bad-guest"))]
    NoTap(Vnet),
    #[error(
        "{queues} queues and {vcpus} vcpus: a NIC has at least 1 queue and at most one per vCPU; increase vcpus, or reduce queues"
    )]
    #[diagnostic(code("bad-guest"))]
    Queues { queues: u32, vcpus: u32 },
    #[error(
        "a disk of {queues} queues and {vcpus} vcpus: it has at most one queue per vCPU; increase vcpus, or reduce queues"
    )]
    #[diagnostic(code("bad-guest"))]
    DiskQueues { queues: u32, vcpus: u32 },
    #[error("{0} vectors: a PCI device has at most {most}", most = Attach::MOST_VECTORS)]
    #[diagnostic(code("bad-guest"))]
    Vectors(u32),
    #[error("{option} = {ring}: must be 256, 512 or 1024")]
    #[diagnostic(code("bad-guest"))]
    Ring { option: &'static str, ring: u32 },
    #[error("tx_ring = {0}: QEMU supports at most 256 with a tap; remove it, or use backend = \"vhost-user\"")]
    #[diagnostic(code("bad-guest"))]
    TxRing(u32),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Rate(BadRate),
}

impl BadGuest {
    /// Returns the file option that it is about.
    pub fn option(&self) -> &'static str {
        match self {
            BadGuest::Vcpus(_) => "vcpus",
            BadGuest::Memory(_) => "memory",
            BadGuest::Pins { .. } => "cpus",
            BadGuest::VhostPins { .. } => "vhost_cpus",
            BadGuest::NoTap(_) => "vnet",
            BadGuest::Queues { .. } => "queues",
            BadGuest::DiskQueues { .. } => "attach",
            BadGuest::Vectors(_) => "vectors",
            BadGuest::Ring { option, .. } => option,
            BadGuest::TxRing(_) => "tx_ring",
            BadGuest::Rate(_) => "rate",
        }
    }
}

/// Defaults of a study's guests (`[guest]`), unless its rows override them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestDefaults {
    /// Their machines.
    pub size: GuestSize,
    /// Their boot source.
    pub system: System,
    /// The NIC of `paravirtual` rows.
    pub virtio: VirtioNic,
    /// The NIC of `emulated` rows.
    pub model: EmulatedNic,
    /// The virtual functions of `sr-iov` rows.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub vf: VfOptions,
}

impl GuestDefaults {
    /// The NIC of a row's guests; none if the row has no guests.
    pub fn attach(&self, row: Row) -> Option<Attach> {
        let GuestDefaults { virtio, model, vf, .. } = self;
        match row {
            Row::Method(IoMethod::Paravirtual) => Some(Attach::Paravirtual(*virtio)),
            Row::Method(IoMethod::Emulated) => Some(Attach::Emulated { model: *model }),
            Row::Method(IoMethod::SrIov) | Row::Queue(Queueing::Function) => Some(Attach::SrIov(*vf)),
            Row::Method(IoMethod::Assigned) => Some(Attach::Assigned),
            Row::Method(IoMethod::RootDomain) => Some(Attach::RootDomain),
            Row::Device(Flavour::Backend(backend)) => {
                Some(Attach::Paravirtual(VirtioNic { backend: Some(backend), ..*virtio }))
            }
            Row::Device(Flavour::Model(model)) => Some(Attach::Emulated { model }),
            Row::Queue(Queueing::Shared) => Some(Attach::Paravirtual(VirtioNic { vnet: Vnet::Bridge, ..*virtio })),
            Row::Queue(Queueing::PerGuest) => Some(Attach::Paravirtual(VirtioNic { vnet: Vnet::Macvtap, ..*virtio })),
            Row::Path(GuestPath::HostToHost) => None,
            Row::Path(_) => Some(Attach::Paravirtual(*virtio)),
            Row::Tuned { path: Some(_), .. } => self.attach(row.untuned()),
            Row::Method(_)
            | Row::Zones { .. }
            | Row::Engine(_)
            | Row::Nic(_)
            | Row::Load(_)
            | Row::Pods(_)
            | Row::Disk(_)
            | Row::Migration(_)
            | Row::AsIs
            | Row::Tuned { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
