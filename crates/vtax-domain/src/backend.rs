//! What is behind a volume, as this host has it: a file or a block device that nobody else uses.

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

/// Why a file or a block device can't be what is behind a volume.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BackendError {
    #[error("{} can't be used: {error}; {}", path.display(), remedy(error))]
    #[diagnostic(code("bad-backend"))]
    Missing { path: PathBuf, error: io::Error },
    #[error("{} is neither a file nor a block device; name one", path.display())]
    #[diagnostic(code("bad-backend"))]
    NoDisk { path: PathBuf },
    #[error("{} is empty; make it as large as the disk is to be: truncate -s 8G {}", path.display(), path.display())]
    #[diagnostic(code("bad-backend"))]
    Empty { path: PathBuf },
    #[error("{} isn't a whole number of sectors of 512 bytes, but {size}; make it one: truncate -s %512", path.display())]
    #[diagnostic(code("bad-backend"))]
    Ragged { path: PathBuf, size: ByteSize },
    #[error("{} {why}", path.display())]
    #[diagnostic(code("bad-backend"))]
    Image { path: PathBuf, why: String },
    #[error("{} isn't a partition, which options=slice is for; leave it out, or say slice=OFFSET+SIZE", path.display())]
    #[diagnostic(code("bad-backend"))]
    NoPartition { path: PathBuf },
    #[error("{} ends at {size}, before slice={slice} ends; name a part of it", path.display())]
    #[diagnostic(code("bad-backend"))]
    Beyond { path: PathBuf, size: ByteSize, slice: DiskSlice },
    #[error("{} is in use: {why}", path.display())]
    #[diagnostic(code("backend-in-use"))]
    InUse { path: PathBuf, why: String },
    #[error("{} and {} can't be paths of {group}: {why}", path.display(), other.display())]
    #[diagnostic(code("bad-backend"))]
    Paths { path: PathBuf, other: PathBuf, group: Name, why: String },
    #[error(
        "{} can grow by {missing}, and its file system has {free} left; make room there, or make it smaller",
        path.display()
    )]
    #[diagnostic(code("no-room"))]
    NoRoom { path: PathBuf, missing: ByteSize, free: ByteSize },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "make it first (truncate -s 8G, qemu-img create), or name another",
        _ => "name one that this host can read",
    }
}

/// A part of a backend in bytes, as disks of other domains have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendPart {
    /// The file system and the number of the file in it, or the number of the device.
    pub id: BackendId,
    /// The part.
    pub slice: Option<DiskSlice>,
}
