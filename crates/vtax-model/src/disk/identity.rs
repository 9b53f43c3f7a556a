//! Identity of the path to a disk. Two figures are comparable only if it is equal, or is the deliberate change.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::Display;

use super::DiskUser;
use crate::{foreign::ForeignText, units::ByteSize};

/// Path from a test to the disk's blocks, as seen by the machine that runs the test.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskIdentity {
    /// The specified device or file.
    pub path: ForeignText,
    /// True if the test bypasses the page cache.
    pub direct: bool,
    /// The file system that the file is on; absent for a device.
    pub filesystem: Option<FilesystemIdentity>,
    /// The block device; absent if the file system has none, e.g. tmpfs or a network file system.
    pub device: Option<BlockIdentity>,
    /// The user of the disk, if it isn't the host itself.
    pub user: Option<DiskUser>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemIdentity {
    /// Its kind, such as `ext4`.
    pub kind: ForeignText,
    /// Its mount options.
    pub options: ForeignText,
}

/// A block device and how the kernel treats it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockIdentity {
    /// The kernel's name of the whole disk, such as `nvme0n1`.
    pub name: ForeignText,
    /// The driver, such as `virtio_blk`, if it is known.
    pub driver: Option<ForeignText>,
    /// Vendor and model reported by the disk.
    pub model: Option<ForeignText>,
    /// The scheduler in force.
    pub scheduler: Option<ForeignText>,
    /// Number of requests that the scheduler or driver accepts per hardware queue.
    pub requests: Option<u32>,
    /// Number of the driver's hardware queues.
    pub queues: Option<u32>,
    /// True if it is a rotating disk.
    pub rotational: Option<bool>,
    /// The unit in which it is addressed.
    pub sector: Option<ByteSize>,
    /// Volatile write cache reported by the device.
    pub write_cache: Option<WriteCache>,
    /// The file behind a loop device.
    pub backing_file: Option<ForeignText>,
    /// True if a loop device reads and writes that file through the page cache.
    pub backing_cached: Option<bool>,
    /// The devices that a mapped device or an array consists of, by their kernel's names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<LowerBlock>,
}

/// A device below another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowerBlock {
    pub name: ForeignText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ForeignText>,
}

/// Persistence of a completed write: whether it survives a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// Only after a flush.
    #[strum(to_string = "write back")]
    Back,
    /// Yes.
    #[strum(to_string = "write through")]
    Through,
}

/// A cache in this machine's memory that a test reads from or writes to instead of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum DiskCache {
    /// The test doesn't use O_DIRECT.
    #[strum(to_string = "the page cache of this machine")]
    Page,
    /// The file system exists only in memory.
    #[strum(to_string = "an in-memory file system")]
    Memory,
    /// A loop device accesses its file through the page cache.
    #[strum(to_string = "the page cache behind a loop device")]
    Loop,
    /// The host serves a domain's disk through its page cache.
    #[strum(to_string = "the page cache of the domain's host")]
    Host,
}

/// File systems whose files are in memory.
const OF_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];

impl DiskIdentity {
    /// Returns the caches in this machine's memory on the path: if there are any, these were measured. Caches further
    /// down, in a hypervisor or in the disk, can't be seen from here; see [`BlockIdentity::write_cache`].
    pub fn caches(&self) -> Vec<DiskCache> {
        let memory = self.filesystem.as_ref().is_some_and(|found| OF_MEMORY.contains(&found.kind.raw()));
        let behind = self.device.as_ref().and_then(|device| device.backing_cached) == Some(true);
        let host = self.user.as_ref().is_some_and(DiskUser::is_cached);
        let found = [
            (DiskCache::Page, !self.direct),
            (DiskCache::Memory, memory),
            (DiskCache::Loop, behind),
            (DiskCache::Host, host),
        ];
        found.into_iter().filter(|(_, there)| *there).map(|(cache, _)| cache).collect()
    }

    /// Returns true if what is measured is memory of this machine.
    pub fn is_cached(&self) -> bool {
        !self.caches().is_empty()
    }
}

/// One line, for a table's note.
impl fmt::Display for DiskIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if let Some(filesystem) = &self.filesystem {
            write!(f, " on {}", filesystem.kind)?;
        }
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        f.write_str(if self.direct { ", O_DIRECT" } else { ", not O_DIRECT" })?;
        if let Some(user) = &self.user {
            write!(f, ", {user}")?;
        }
        for cache in self.caches() {
            write!(f, ", CACHED: {cache}")?;
        }
        Ok(())
    }
}

impl fmt::Display for BlockIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.requests.map(|requests| format!("queue of {requests}"));
        let texts = [&self.driver, &self.model].map(|text| text.as_ref().map(ToString::to_string));
        let scheduler = self.scheduler.as_ref().map(|name| format!("scheduler {name}"));
        let cache = self.write_cache.map(|cache| cache.to_string());
        let turning = (self.rotational == Some(true)).then(|| "rotational".to_owned());
        let file = self.backing_file.as_ref().map(|file| format!("file {file}"));
        let below: Vec<String> = self.below.iter().map(|lower| lower.name.to_string()).collect();
        let below = (!below.is_empty()).then(|| format!("made of {}", below.join(", ")));
        let parts = texts.into_iter().chain([scheduler, requests, turning, cache, file, below]).flatten();
        let parts: Vec<String> = parts.collect();
        match parts.is_empty() {
            true => write!(f, "{}", self.name),
            false => write!(f, "{} ({})", self.name, parts.join(", ")),
        }
    }
}
