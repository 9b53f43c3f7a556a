//! Parts of a volume in their text form.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::super::DomainError;
use crate::{topology::Name, units::ByteSize};

/// Export option of a volume.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = DomainError, parse_err_fn = unknown_option)]
pub enum VolumeOption {
    /// Read-only; several domains can share it.
    Ro,
    /// The backend is a partition of a disk.
    Slice,
    /// No other program can use the backend at the same time.
    Excl,
}

fn unknown_option(text: &str) -> DomainError {
    DomainError::value("options", text, "any of ro, slice and excl, separated by commas")
}

/// Format of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = DomainError, parse_err_fn = unknown_format)]
pub enum VolumeFormat {
    /// The plain blocks of the disk.
    #[default]
    Raw,
    /// An image in QEMU's own format.
    Qcow2,
}

fn unknown_format(text: &str) -> DomainError {
    DomainError::value("format", text, "raw or qcow2")
}

/// A part of a backend: an offset and a size, written as `1G+512M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct DiskSlice {
    offset: u64,
    size: u64,
}

impl DiskSlice {
    /// Offset and size are whole sectors.
    pub const SECTOR: u64 = 512;

    /// Returns the position of its first byte in the backend.
    pub fn offset(self) -> ByteSize {
        ByteSize(self.offset)
    }

    /// Returns its length.
    pub fn size(self) -> ByteSize {
        ByteSize(self.size)
    }

    /// Returns the offset of the first byte after it.
    pub fn end(self) -> u64 {
        self.offset + self.size
    }

    /// Returns true if both share bytes.
    pub fn overlaps(self, other: DiskSlice) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

impl FromStr for DiskSlice {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<DiskSlice, DomainError> {
        let whole = |text: &str| {
            let ByteSize(bytes) = text.parse().ok()?;
            bytes.is_multiple_of(DiskSlice::SECTOR).then_some(bytes)
        };
        let slice = || {
            let (offset, size) = text.split_once('+')?;
            let slice = DiskSlice { offset: whole(offset)?, size: whole(size)? };
            (slice.size > 0 && slice.offset.checked_add(slice.size)? <= i64::MAX.cast_unsigned()).then_some(slice)
        };
        slice().ok_or_else(|| {
            DomainError::value("slice", text, "an offset and a size in whole 512-byte sectors, e.g. 1G+512M")
        })
    }
}

impl fmt::Display for DiskSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", Exact(self.offset), Exact(self.size))
    }
}

/// A number of bytes in the largest unit that makes it a whole number.
struct Exact(u64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("G", 30), ("M", 20), ("K", 10)];
        match units.iter().find(|(_, shift)| self.0 > 0 && self.0.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A volume by its name and its service: `vol1@primary-vds0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct VolumeName {
    /// Name of the volume within its service, before the `@`.
    pub volume: Name,
    /// The disk service that exports it.
    pub service: Name,
}

impl FromStr for VolumeName {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<VolumeName, DomainError> {
        let name = || {
            let (volume, service) = text.split_once('@')?;
            Some(VolumeName { volume: volume.parse().ok()?, service: service.parse().ok()? })
        };
        name().ok_or_else(|| {
            DomainError::value(
                "volume",
                text,
                "VOLUME@SERVICE: two names of lower-case letters, digits and `-`, a letter first",
            )
        })
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.volume, self.service))
    }
}
