//! Backend of a volume on this host: a file or block device without other users.

mod host_use;
mod image;
mod look;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_model::{domain::DiskSlice, topology::Name, units::ByteSize};

pub(crate) use self::look::DiskBackend;
pub use self::look::{BackendId, check_backend, find_format};

/// Reason why a file or a block device can't be the backend of a volume.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum BackendError {
    #[error("{} cannot be used: {error}; {}", path.display(), remedy(error))]
    #[diagnostic(code("bad-backend"))]
    Missing { path: PathBuf, error: io::Error },
    #[error("{} is neither a file nor a block device; use one of these", path.display())]
    #[diagnostic(code("bad-backend"))]
    NoDisk { path: PathBuf },
    #[error("{} is empty; extend it to the size of the disk: truncate -s 8G {}", path.display(), path.display())]
    #[diagnostic(code("bad-backend"))]
    Empty { path: PathBuf },
    #[error("{} has {size}, not a whole number of 512-byte sectors; round it up: truncate -s %512", path.display())]
    #[diagnostic(code("bad-backend"))]
    Ragged { path: PathBuf, size: ByteSize },
    #[error("{} {why}", path.display())]
    #[diagnostic(code("bad-backend"))]
    Image { path: PathBuf, why: String },
    #[error("{} is not a partition, as options=slice requires; omit it, or use slice=OFFSET+SIZE", path.display())]
    #[diagnostic(code("bad-backend"))]
    NoPartition { path: PathBuf },
    #[error("{} ends at {size}, before the end of slice={slice}; choose a part of it", path.display())]
    #[diagnostic(code("bad-backend"))]
    Beyond { path: PathBuf, size: ByteSize, slice: DiskSlice },
    #[error("{} is in use: {why}", path.display())]
    #[diagnostic(code("backend-in-use"))]
    InUse { path: PathBuf, why: String },
    #[error("{} and {} cannot be paths of {group}: {why}", path.display(), other.display())]
    #[diagnostic(code("bad-backend"))]
    Paths { path: PathBuf, other: PathBuf, group: Name, why: String },
    #[error(
        "{} can grow by {missing}, and its file system has {free} left; free space there, or shrink it",
        path.display()
    )]
    #[diagnostic(code("no-room"))]
    NoRoom { path: PathBuf, missing: ByteSize, free: ByteSize },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "create it first (truncate -s 8G, qemu-img create), or use another",
        _ => "use one that this host can read",
    }
}

/// Part of a backend in bytes, as used by disks of other domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendPart {
    /// File system and inode number of the file, or number of the device.
    pub id: BackendId,
    pub slice: Option<DiskSlice>,
}
