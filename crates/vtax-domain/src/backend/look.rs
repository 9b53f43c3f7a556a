//! Inspects a volume's backend, and checks that a domain can have it.

use std::{
    fs::{self, File, Metadata},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_model::{
    domain::{DiskSlice, Volume, VolumeFormat, VolumeOption},
    units::ByteSize,
};
use vtax_sys::foreign_file;

use super::{
    BackendError, BackendPart,
    host_use::{self, WantedUse},
    image::{self, ImageHeader},
};

/// Identifies a backend, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendId {
    /// Number of the device, or of the file system that contains the file.
    pub device: u64,
    /// Inode number of the file; 0 for a device.
    pub inode: u64,
}

impl BackendId {
    /// Returns true for a block device.
    pub(crate) fn is_device(self) -> bool {
        self.inode == 0
    }
}

/// Backend of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskBackend {
    pub(crate) path: PathBuf,
    pub(crate) id: BackendId,
    pub(crate) is_device: bool,
    /// Size of the resulting disk.
    pub(crate) size: ByteSize,
}

/// Checks what can be checked when a volume is exported: the backend exists, and matches the volume's properties. For
/// users who may not read it, only its existence is checked.
pub fn check_backend(volume: &Volume) -> Result<(), BackendError> {
    match DiskBackend::look(volume) {
        Err(BackendError::Missing { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        looked => looked.map(drop),
    }
}

/// Returns the format of the backend, if the user hasn't specified it. A file that looks like a qcow2 without being
/// named so may have been written by a domain, which could thus make vtax read another file of the host.
pub fn find_format(backend: &str) -> Result<VolumeFormat, BackendError> {
    let path = Path::new(backend);
    let is_called = path.extension().is_some_and(|extension| extension == "qcow2");
    let header = foreign_file::open_disk(path).and_then(|file| image::header(&file));
    match (header, is_called) {
        (Ok(ImageHeader::Other), true) => Err(BackendError::Image {
            path: path.to_owned(),
            why: "is not a qcow2 image; use format=raw, or create one: qemu-img create -f qcow2".to_owned(),
        }),
        (Ok(ImageHeader::Other), false) => Ok(VolumeFormat::Raw),
        (Ok(_), false) => Err(BackendError::Image {
            path: path.to_owned(),
            why: "starts like a qcow2 image, which a domain may have written; use format=qcow2 or format=raw"
                .to_owned(),
        }),
        (_, true) => Ok(VolumeFormat::Qcow2),
        (Err(_), false) => Ok(VolumeFormat::Raw),
    }
}

impl DiskBackend {
    /// Inspects the backend. Nothing is locked or changed.
    pub(crate) fn look(volume: &Volume) -> Result<DiskBackend, BackendError> {
        let missing = |error| BackendError::Missing { path: PathBuf::from(&volume.backend), error };
        let path = fs::canonicalize(&volume.backend).map_err(missing)?;
        let found = fs::metadata(&path).map_err(missing)?;
        let is_device = found.file_type().is_block_device();
        if !is_device && !found.is_file() {
            return Err(BackendError::NoDisk { path });
        }
        if volume.has(VolumeOption::Slice) && !(is_device && host_use::is_partition(found.rdev())) {
            return Err(BackendError::NoPartition { path });
        }
        let mut file = foreign_file::open_disk(&path).map_err(missing)?;
        let id = identity(&found, is_device);
        let whole = match volume.format {
            VolumeFormat::Raw => file.seek(SeekFrom::End(0)).map_err(missing)?,
            VolumeFormat::Qcow2 => virtual_size(&path, &file)?,
        };
        let size = ByteSize(sized(&path, whole, volume.slice)?);
        Ok(DiskBackend { path, id, is_device, size })
    }

    /// Checks that nothing on the host uses it, and that all of it can be written. A domain that `arrives` shares it
    /// with its source.
    pub(crate) fn check_free(&self, volume: &Volume, arrives: bool) -> Result<(), BackendError> {
        let (writes, alone) = (!volume.has(VolumeOption::Ro), volume.has(VolumeOption::Excl));
        let wanted = WantedUse { writes, alone, arrives };
        let user = match self.is_device {
            true => host_use::of_device(&self.path, self.id.device, wanted)
                .map_err(|error| BackendError::Missing { path: self.path.clone(), error })?,
            false => host_use::of_file(&self.path, wanted),
        };
        match user {
            Some(why) => Err(BackendError::InUse { path: self.path.clone(), why }),
            None if wanted.writes && !self.is_device => self.check_room(volume),
            None => Ok(()),
        }
    }

    /// A sparse file takes space as it is written.
    fn check_room(&self, volume: &Volume) -> Result<(), BackendError> {
        const BLOCK: u64 = 512;
        let missing = |error| BackendError::Missing { path: self.path.clone(), error };
        let found = fs::metadata(&self.path).map_err(missing)?;
        let system = rustix::fs::statvfs(&self.path).map_err(|errno| missing(errno.into()))?;
        let whole = match volume.format {
            VolumeFormat::Raw => found.len(),
            VolumeFormat::Qcow2 => self.size.0,
        };
        let missing = whole.saturating_sub(found.blocks().saturating_mul(BLOCK));
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        match missing > free {
            true => {
                Err(BackendError::NoRoom { path: self.path.clone(), missing: ByteSize(missing), free: ByteSize(free) })
            }
            false => Ok(()),
        }
    }

    pub(crate) fn part(&self, volume: &Volume) -> BackendPart {
        BackendPart { id: self.id, slice: volume.slice }
    }
}

impl BackendPart {
    /// Returns true if the two share blocks.
    pub(crate) fn meets(&self, other: &BackendPart) -> bool {
        self.id == other.id
            && match (self.slice, other.slice) {
                (Some(own), Some(other)) => own.overlaps(other),
                _ => true,
            }
    }
}

fn identity(found: &Metadata, is_device: bool) -> BackendId {
    match is_device {
        true => BackendId { device: found.rdev(), inode: 0 },
        false => BackendId { device: found.dev(), inode: found.ino() },
    }
}

fn virtual_size(path: &Path, file: &File) -> Result<u64, BackendError> {
    let refused = |why: &str| BackendError::Image { path: path.to_owned(), why: why.to_owned() };
    match image::header(file).map_err(|error| BackendError::Missing { path: path.to_owned(), error })? {
        ImageHeader::Qcow2 { size } => Ok(size),
        ImageHeader::Refused(why) => Err(refused(why)),
        ImageHeader::Other => {
            Err(refused("is no longer a qcow2 image; restore it, or export it again with format=raw"))
        }
    }
}

fn sized(path: &Path, whole: u64, slice: Option<DiskSlice>) -> Result<u64, BackendError> {
    let path = || path.to_owned();
    match slice {
        _ if whole == 0 => Err(BackendError::Empty { path: path() }),
        Some(slice) if slice.end() > whole => Err(BackendError::Beyond { path: path(), size: ByteSize(whole), slice }),
        Some(slice) => Ok(slice.size().0),
        None if !whole.is_multiple_of(DiskSlice::SECTOR) => {
            Err(BackendError::Ragged { path: path(), size: ByteSize(whole) })
        }
        None => Ok(whole),
    }
}
