//! Disks of a guest beside the one that it boots: files and block devices of the host, as virtio disks.
//!
//! Each has a port of its own, where it can be plugged in and pulled out. The disk of a port is always at the same place of the
//! guest's PCI bus, and has the same serial number, so the guest's system finds it under the same names.

use std::{ops::Range, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vtax_model::units::ByteSize;

use super::launch::DiskFormat;

/// The name of what a storage daemon serves.
pub(super) const EXPORT: &str = "disk";
/// Without a timeout, requests wait for a path. QEMU takes no larger number than one that fits 32 bits.
const FOR_EVER: u32 = u32::MAX;

/// A disk of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLaunch {
    /// The number of its port, from 0 on.
    pub port: u32,
    /// Its serial number in the guest, of at most 20 bytes.
    pub serial: String,
    /// Whether the guest can only read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// What is behind it.
    pub source: DiskSource,
}

/// What is behind a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case")]
pub enum DiskSource {
    /// A file or a block device, which QEMU has itself.
    File(DiskFile),
    /// Several ways to the same blocks, each with a storage daemon of its own ([`paths`](super::paths)).
    Paths(DiskPaths),
}

/// The ways to the blocks of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPaths {
    /// The first one is used at first.
    pub files: Vec<DiskFile>,
    /// The seconds after which requests fail if no daemon answers; they wait if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}

/// A file or a block device behind a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFile {
    /// Its path, without symbolic links.
    pub path: PathBuf,
    /// What is in it. A qcow2 has all of its blocks in itself.
    pub format: DiskFormat,
    /// Whether it is a block device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_device: bool,
    /// The offset and the size of the part that is the disk; all of it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<(ByteSize, ByteSize)>,
    /// Whether no other program may use it meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
}

impl DiskLaunch {
    /// The PCI slots of the ports for disks. QEMU gives lower ones to the devices before them.
    pub const SLOTS: Range<u32> = 9..12;

    /// The name by which QEMU's monitor knows the disk.
    pub fn id(&self) -> String {
        format!("vdisk{}", self.port)
    }

    /// The name of what is behind it.
    pub(super) fn node(&self) -> String {
        format!("blocks{}", self.port)
    }

    /// The file that QEMU gets open, if it has one itself.
    pub(super) fn file(&self) -> Option<&DiskFile> {
        match &self.source {
            DiskSource::File(file) => Some(file),
            DiskSource::Paths(_) => None,
        }
    }

    /// The name of the socket by which QEMU is connected to a storage daemon, in its directory.
    pub(super) fn socket(&self) -> String {
        format!("disk{}.nbd", self.port)
    }

    /// What QEMU is told about what is behind the disk. If it is a file, its open file is in this set.
    pub(super) fn blocks(&self, set: Option<&str>) -> Value {
        match &self.source {
            DiskSource::File(file) => file.blocks(&self.node(), self.read_only, set.unwrap_or_default(), false),
            DiskSource::Paths(paths) => json!({
                "driver": "nbd",
                "node-name": self.node(),
                "read-only": self.read_only,
                "server": { "type": "unix", "path": self.socket() },
                "export": EXPORT,
                "reconnect-delay": paths.timeout.unwrap_or(FOR_EVER),
            }),
        }
    }
}

impl DiskFile {
    /// A node of QEMU's block layer of this name. If it is direct, no block is in the host's memory only.
    pub(super) fn blocks(&self, node: &str, read_only: bool, set: &str, direct: bool) -> Value {
        let driver = if self.is_device { "host_device" } else { "file" };
        let cache = json!({ "direct": direct });
        let file = json!({ "driver": driver, "filename": set, "read-only": read_only, "cache": cache });
        let format = self.format.to_string();
        let mut blocks =
            json!({ "driver": format, "node-name": node, "read-only": read_only, "cache": cache, "file": file });
        if let Some((offset, size)) = self.slice {
            blocks["offset"] = offset.0.into();
            blocks["size"] = size.0.into();
        }
        blocks
    }
}
