//! Virtual disks of domains, and the services that export their backends.
//!
//! A disk service (vds) exports volumes. A volume is a file, a block device, or a part of one. A virtual disk (vdisk)
//! of a domain is one volume; if the volume is in a multipath group (mpgroup), all volumes of the group are paths to
//! the same blocks, and the disk continues on the next one if one fails.

mod changes;
mod exports;
mod kinds;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub(super) use self::exports::VolumeUsers;
pub use self::kinds::{DiskSlice, VolumeFormat, VolumeName, VolumeOption};
use super::DomainError;
use crate::topology::Name;

/// A disk service (vds) of a service domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskService {
    /// The domain that it runs in.
    pub domain: Name,
    /// Its exported volumes.
    #[serde(default)]
    pub volumes: BTreeMap<Name, Volume>,
}

/// A volume exported by a disk service.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The absolute path of a file or a block device.
    pub backend: String,
    /// Format of the backend. It is stored because a domain can write data to a raw disk that looks like a qcow2.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub format: VolumeFormat,
    /// Export options.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub options: BTreeSet<VolumeOption>,
    /// The part of the backend that is exported; all of it if absent.
    pub slice: Option<DiskSlice>,
    /// The group of volumes that are paths to the same blocks.
    pub mpgroup: Option<Name>,
}

/// A virtual disk (vdisk) of a domain.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualDisk {
    /// Its name, unique among the disks of its domain. The domain sees it as the disk's serial number.
    pub name: Name,
    /// The exported volume that stores its blocks.
    pub volume: VolumeName,
    /// Its number among the disks of the domain, which determines its place on the domain's PCI
    /// bus.
    pub id: u32,
    /// Timeout in seconds after which requests fail if no path answers; without one, they wait.
    pub timeout: Option<u32>,
}

/// Changes of a volume: only present fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeChange {
    pub options: Option<BTreeSet<VolumeOption>>,
    /// `Some(None)` makes it all of the backend.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_with::rust::double_option")]
    pub slice: Option<Option<DiskSlice>>,
    /// `Some(None)` removes it from its group.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_with::rust::double_option")]
    pub mpgroup: Option<Option<Name>>,
}

/// Changes of a virtual disk: only present fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskChange {
    pub volume: Option<VolumeName>,
    pub id: Option<u32>,
    /// 0: requests wait.
    pub timeout: Option<u32>,
}

impl VolumeChange {
    /// Applies it without checks.
    pub fn fill(self, volume: &mut Volume) {
        let VolumeChange { options, slice, mpgroup } = self;
        volume.options = options.unwrap_or_else(|| std::mem::take(&mut volume.options));
        volume.slice = slice.unwrap_or(volume.slice);
        volume.mpgroup = mpgroup.unwrap_or_else(|| volume.mpgroup.take());
    }
}

impl Volume {
    /// Returns a volume that is all of a backend.
    pub fn new(backend: String, format: VolumeFormat) -> Volume {
        Volume { backend, format, options: BTreeSet::new(), slice: None, mpgroup: None }
    }

    /// Maximum number of volumes in a group.
    pub const MOST_PATHS: usize = 4;

    /// Returns true if the volume is exported with this option.
    pub fn has(&self, option: VolumeOption) -> bool {
        self.options.contains(&option)
    }

    /// Returns true if both share blocks of the backend.
    pub fn overlaps(&self, other: &Volume) -> bool {
        self.backend == other.backend
            && match (self.slice, other.slice) {
                (Some(own), Some(other)) => own.overlaps(other),
                _ => true,
            }
    }

    /// Checks that a path can be a backend, whether or not it exists.
    pub fn check_backend(backend: &str) -> Result<(), DomainError> {
        // XML cannot represent the last two.
        let is_odd = |letter: char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}');
        match backend.starts_with('/') && backend.len() <= 1024 && !backend.contains(is_odd) {
            true => Ok(()),
            false => Err(DomainError::value(
                "backend",
                backend,
                "the absolute path of a file or a block device, in one line",
            )),
        }
    }
}

impl VirtualDisk {
    /// Returns the disk that a document describes, without checks; `None` if its number is missing.
    pub fn described(name: Name, volume: VolumeName, change: DiskChange) -> Option<VirtualDisk> {
        Some(VirtualDisk { name, volume, id: change.id?, timeout: change.timeout })
    }

    /// Maximum number of disks of a domain: each has a separate port on the domain's PCI bus.
    pub const MOST: u32 = 32;
    /// Maximum length of a virtio disk's serial number.
    const SERIAL: usize = 20;

    /// Returns the serial number by which the domain knows it: its name. If too long, only its beginning and its end
    /// are kept.
    pub fn serial(&self) -> String {
        let name = self.name.as_str();
        match name.len() > VirtualDisk::SERIAL {
            true => format!("{}{}", &name[..VirtualDisk::SERIAL / 2], &name[name.len() - VirtualDisk::SERIAL / 2..]),
            false => name.to_owned(),
        }
    }
}
