//! Files of a target to which disks are copied.
//!
//! vtax writes only to a file that this host exports under the name of the disk's volume, that has the size of the
//! disk, and that has no data. So nothing can be lost, whatever the outcome, and a failed attempt leaves the file empty
//! again.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{OFlags, SeekFrom, seek, statvfs},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use vtax_model::{topology::Name, units::ByteSize};

use crate::{
    backend::{BackendId, DiskBackend},
    error::BindError,
};

/// Disk that is copied to a file of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskCopy {
    pub disk: Name,
    pub size: ByteSize,
    /// The file at the target.
    pub(super) path: PathBuf,
    pub(super) id: BackendId,
}

impl DiskCopy {
    pub(super) fn new(disk: &Name, to: &DiskBackend) -> DiskCopy {
        DiskCopy { disk: disk.clone(), size: to.size, path: to.path.clone(), id: to.id }
    }

    /// Returns true if no part of the file has data. If the file system cannot report this, everything counts as data.
    pub(super) fn is_empty(path: &Path) -> io::Result<bool> {
        match seek(File::open(path)?, SeekFrom::Data(0)) {
            Err(Errno::NXIO) => Ok(true),
            Err(errno) => Err(errno.into()),
            Ok(_) => Ok(false),
        }
    }

    /// Returns the free space on the file's file system for users of this host.
    pub(super) fn free(path: &Path) -> io::Result<ByteSize> {
        let system = statvfs(path)?;
        Ok(ByteSize(system.f_bavail.saturating_mul(system.f_frsize)))
    }

    /// Removes the data of a failed copy, if it is still the same file.
    pub(super) fn discard(&self) -> Result<(), BindError> {
        let options = || {
            let mut options = File::options();
            options.write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            options
        };
        let is_it = |found: &Metadata| (found.dev(), found.ino()) == (self.id.device, self.id.inode);
        match fs::symlink_metadata(&self.path) {
            Ok(found) if is_it(&found) => {}
            _ => return Ok(()),
        }
        let emptied = options().open(&self.path).and_then(|file| {
            let is_own = is_it(&file.metadata()?);
            if is_own { file.set_len(0).and_then(|()| file.set_len(self.size.0)) } else { Ok(()) }
        });
        emptied.map_err(BindError::file("empty", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const SIZE: u64 = 8 << 20;

    fn copy(path: &Path) -> DiskCopy {
        let found = fs::metadata(path).expect("ours");
        let id = BackendId { device: found.dev(), inode: found.ino() };
        DiskCopy { disk: "data".parse().expect("a name"), size: ByteSize(SIZE), path: path.to_owned(), id }
    }

    #[test]
    fn a_failed_copy_leaves_the_file_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.img");
        let file = File::create(&path).expect("ours");
        file.set_len(SIZE).expect("ours");
        assert!(DiskCopy::is_empty(&path).expect("readable"));
        let copy = copy(&path);
        file.write_all_at(b"blocks", 4 << 20).expect("ours");
        assert!(!DiskCopy::is_empty(&path).expect("readable"));
        copy.discard().expect("ours");
        assert!(DiskCopy::is_empty(&path).expect("readable"));
        assert_eq!(fs::metadata(&path).expect("ours").len(), SIZE);
    }

    #[test]
    fn another_file_of_this_name_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.img");
        let made = File::create(&path).expect("ours");
        let copy = copy(&path);
        // It has the other file's inode number as long as that is open.
        fs::remove_file(&path).expect("ours");
        fs::write(&path, "kept").expect("ours");
        copy.discard().expect("nothing to do");
        assert_eq!(fs::read_to_string(&path).expect("ours"), "kept");
        fs::remove_file(&path).expect("ours");
        copy.discard().expect("nothing to do");
        drop(made);
    }
}
