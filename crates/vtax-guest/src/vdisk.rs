//! Disks of a guest in addition to the boot disk: files and block devices of the host.
//!
//! Each has a dedicated port, where it can be plugged and unplugged. The disk of a port always has the same place on
//! the guest's PCI bus, and the same serial number, so the guest's system finds it under the same names.

mod inside;

use std::{ops::Range, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vtax_model::{
    disk::{DiskAttach, DiskDevice, HostAio},
    units::ByteSize,
};
use vtax_sys::pci::PciAddress;

use super::launch::DiskFormat;

pub use inside::{drivers, models};

/// The export name of a storage daemon.
pub(super) const EXPORT: &str = "disk";
/// Without a timeout, requests wait for a path. QEMU accepts no number beyond 32 bits.
const FOR_EVER: u32 = u32::MAX;

/// A disk of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLaunch {
    /// The number of its port, from 0.
    pub port: u32,
    /// Its serial number in the guest, of at most 20 bytes.
    pub serial: String,
    /// True if it is read-only for the guest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Attachment method. If absent, it is a virtio-blk with QEMU's defaults, which can be plugged and unplugged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<DiskAttach>,
    /// Its backend.
    pub source: DiskSource,
}

/// Backend of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case")]
pub enum DiskSource {
    /// A file or block device, which QEMU opens itself.
    File(DiskFile),
    /// Several paths to the same blocks, each with a dedicated storage daemon ([`paths`](super::paths)).
    Paths(DiskPaths),
    /// An NVMe controller of the host, bound to vfio-pci.
    Controller {
        /// Its address on the host.
        device: PciAddress,
    },
}

/// The paths to a disk's blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPaths {
    /// The first one is used initially.
    pub files: Vec<DiskFile>,
    /// Timeout in seconds, after which requests fail if no daemon answers; they wait if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}

/// A file or block device behind a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFile {
    /// Its path, without symbolic links.
    pub path: PathBuf,
    /// Its format. A qcow2 file contains all of its blocks.
    pub format: DiskFormat,
    /// True if it is a block device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_device: bool,
    /// Offset and size of the part used as the disk; everything if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<(ByteSize, ByteSize)>,
    /// True if no other program may use it at the same time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// True if other disks use the same blocks at the same time. QEMU doesn't lock them then, and no open file has
    /// exclusive access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// True if the host's page cache is bypassed (`O_DIRECT`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
}

impl DiskLaunch {
    /// The PCI slots of the disk ports. QEMU assigns lower slots to the devices before them.
    pub const SLOTS: Range<u32> = 8..12;
    /// The functions of a slot, each of which is a port.
    pub(super) const PORTS_OF_SLOT: u32 = 8;
    /// The maximum number of disks of a guest.
    pub const MOST: u32 = (DiskLaunch::SLOTS.end - DiskLaunch::SLOTS.start) * DiskLaunch::PORTS_OF_SLOT;

    /// Device in the port.
    pub fn device(&self) -> DiskDevice {
        self.attach.map_or(DiskDevice::VirtioBlk, |attach| attach.device)
    }

    pub(super) fn aio(&self) -> HostAio {
        self.attach.map_or(HostAio::default(), |attach| attach.aio)
    }

    /// The slot and the function of its port on the first root complex.
    pub(super) fn slot(&self) -> (u32, u32) {
        DiskLaunch::slot_of(self.port)
    }

    pub(super) fn slot_of(port: u32) -> (u32, u32) {
        (DiskLaunch::SLOTS.start + port / DiskLaunch::PORTS_OF_SLOT, port % DiskLaunch::PORTS_OF_SLOT)
    }

    /// The disk's id in QEMU's monitor.
    pub fn id(&self) -> String {
        format!("vdisk{}", self.port)
    }

    /// The id of its backend in QEMU's monitor.
    pub fn node(&self) -> String {
        node(self.port)
    }

    /// The file passed to QEMU, if QEMU opens the disk itself.
    pub(super) fn file(&self) -> Option<&DiskFile> {
        match &self.source {
            DiskSource::File(file) => Some(file),
            DiskSource::Paths(_) | DiskSource::Controller { .. } => None,
        }
    }

    /// Returns true if it is a device with several paths. If one path fails with errors, another may still work.
    pub fn has_device_paths(&self) -> bool {
        matches!(&self.source, DiskSource::Paths(paths) if paths.files.iter().all(|file| file.is_device))
    }

    /// The name of the socket through which QEMU connects to a storage daemon, in its directory.
    pub(super) fn socket(&self) -> String {
        format!("disk{}.{}", self.port, if self.is_vhost_user() { "vhost" } else { "nbd" })
    }

    /// Returns true if a storage daemon serves the guest's rings, in the guest's memory.
    pub(super) fn is_vhost_user(&self) -> bool {
        self.device() == DiskDevice::VhostUserBlk
    }

    /// Returns true if its blocks are served by storage daemons.
    pub fn has_daemons(&self) -> bool {
        matches!(self.source, DiskSource::Paths(_))
    }

    /// The name of the QEMU thread that serves only this disk, if there is one. Linux shows it as `IO NAME`.
    pub fn iothread(&self) -> Option<String> {
        self.attach.filter(|attach| attach.iothread).map(|_| format!("disk-io{}", self.port))
    }

    /// QEMU's description of the disk's backend, unless it has none of its blocks. An open file of the disk is in this
    /// set.
    pub(super) fn blocks(&self, set: Option<&str>) -> Option<Value> {
        match &self.source {
            DiskSource::File(file) => {
                Some(file.blocks(&self.node(), self.read_only, set.unwrap_or_default(), self.aio(), file.direct))
            }
            DiskSource::Controller { .. } => None,
            DiskSource::Paths(_) if self.is_vhost_user() => None,
            DiskSource::Paths(paths) => Some(json!({
                "driver": "nbd",
                "node-name": self.node(),
                "read-only": self.read_only,
                "server": { "type": "unix", "path": self.socket() },
                "export": EXPORT,
                "reconnect-delay": paths.timeout.unwrap_or(FOR_EVER),
            })),
        }
    }
}

/// The id of the backend of the disk at a port in QEMU's monitor.
pub(super) fn node(port: u32) -> String {
    format!("blocks{port}")
}

impl DiskFile {
    /// A node of QEMU's block layer with this name. If it is direct, no block is only in the host's memory.
    pub(super) fn blocks(&self, node: &str, read_only: bool, set: &str, aio: HostAio, direct: bool) -> Value {
        let driver = if self.is_device { "host_device" } else { "file" };
        let cache = json!({ "direct": direct });
        let mut file = json!({ "driver": driver, "filename": set, "read-only": read_only, "cache": cache });
        if aio != HostAio::default() {
            file["aio"] = aio.to_string().into();
        }
        if self.shared {
            file["locking"] = "off".into();
        }
        let format = self.format.to_string();
        let mut blocks =
            json!({ "driver": format, "node-name": node, "read-only": read_only, "cache": cache, "file": file });
        if self.format == DiskFormat::Qcow2 {
            // An image with external blocks was refused, and QEMU looks for none, even if the image has changed since.
            blocks["backing"] = Value::Null;
        }
        if let Some((offset, size)) = self.slice {
            blocks["offset"] = offset.0.into();
            blocks["size"] = size.0.into();
        }
        blocks
    }
}
