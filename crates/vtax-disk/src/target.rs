//! Checks before anything is written to a disk or a file.
//!
//! A test overwrites its disks. So a device in use is refused, and so is one with any contents, unless the user permits
//! their destruction. Everything is checked before the first byte is written, and refusals include a remedy.

mod content;
mod device;
mod file;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use vtax_model::{
    disk::{BlockSize, DiskTest},
    foreign::ForeignText,
    units::ByteSize,
};

use vtax_sys::block::KernelFiles;

use crate::path::mount_of;

/// Disk that may be tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTarget {
    /// Absolute path without symbolic links.
    pub path: PathBuf,
    /// Set for a block device; otherwise it is a file, which may not exist yet.
    pub is_device: bool,
}

/// Reason why a disk cannot be tested.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum TargetError {
    #[error("cannot use {}: {source}", path.display())]
    #[diagnostic(code("disk-unusable"))]
    Unusable { path: PathBuf, source: io::Error },
    #[error("{} is {what}; name a block device or a file", path.display())]
    #[diagnostic(code("disk-unusable"))]
    NoDisk { path: PathBuf, what: &'static str },
    #[error("{} and {} are the same; name each disk once", first.display(), second.display())]
    #[diagnostic(code("bad-disk-name"))]
    Twice { first: PathBuf, second: PathBuf },
    #[error("{} is in use: {device} is mounted on {at}; unmount it first: umount {at}", path.display())]
    #[diagnostic(code("disk-in-use"))]
    Mounted { path: PathBuf, device: String, at: ForeignText },
    #[error("{} is in use: {device} is part of {by}; dismantle that first, or test {by} itself", path.display())]
    #[diagnostic(code("disk-in-use"))]
    Held { path: PathBuf, device: String, by: String },
    #[error("{} is in use as swap; disable it first: swapoff {}", path.display(), swap.display())]
    #[diagnostic(code("disk-in-use"))]
    Swap { path: PathBuf, swap: PathBuf },
    #[error("{} is in use: it backs the loop device {by}; detach that first: losetup -d /dev/{by}", path.display())]
    #[diagnostic(code("disk-in-use"))]
    Loop { path: PathBuf, by: String },
    #[error(
        "{} is in use: the kernel reports that something holds it exclusively, perhaps in another container or \
         mount namespace; find it with lsof and lsblk, and stop it first",
        path.display()
    )]
    #[diagnostic(code("disk-in-use"))]
    Busy { path: PathBuf },
    #[error(
        "{} is not empty: it has {what}, which a test overwrites; if it is not needed, add --destroy-data",
        path.display()
    )]
    #[diagnostic(code("disk-not-empty"))]
    NotEmpty { path: PathBuf, what: String },
    #[error("cannot write {}: the device is read-only; a test writes each block before reading it", path.display())]
    #[diagnostic(code("disk-unusable"))]
    ReadOnly { path: PathBuf },
    #[error("{} has {size} but the test uses {range}; set a range of at most {size}", path.display())]
    #[diagnostic(code("disk-too-small"))]
    TooSmall { path: PathBuf, size: ByteSize, range: ByteSize },
    #[error(
        "{} needs {needed} more, its file system has {free} free; free some space or use a smaller range",
        path.display()
    )]
    #[diagnostic(code("disk-too-small"))]
    NoRoom { path: PathBuf, needed: ByteSize, free: ByteSize },
    #[error(
        "cannot open {} with O_DIRECT: its file system {filesystem} always uses the page cache; name a file on \
         another file system, or set direct=off to measure the cache",
        path.display()
    )]
    #[diagnostic(code("no-direct-io"))]
    NoDirect { path: PathBuf, filesystem: ForeignText },
    #[error(
        "{} is addressed in units of {sector}, and a block of {block} is not a multiple of that; use one, e.g. block={sector}",
        path.display()
    )]
    #[diagnostic(code("disk-sector"))]
    Sector { path: PathBuf, sector: ByteSize, block: BlockSize },
}

impl TargetError {
    fn unusable(path: &Path) -> impl Fn(io::Error) -> TargetError {
        move |source| TargetError::Unusable { path: path.to_owned(), source }
    }
}

/// Checks all disks of a test. `destroy_data` is the user's consent to the loss of their contents.
pub fn check(paths: &[PathBuf], test: &DiskTest, destroy_data: bool) -> Result<Vec<DiskTarget>, TargetError> {
    let files = KernelFiles::own();
    let mut seen: BTreeMap<(u64, u64), &PathBuf> = BTreeMap::new();
    let mut found = Vec::new();
    for path in paths {
        let target = DiskTarget::find(path, &files)?;
        if let Some(first) = target.identity().and_then(|identity| seen.insert(identity, path)) {
            return Err(TargetError::Twice { first: first.clone(), second: path.clone() });
        }
        target.check(&files, test, destroy_data)?;
        found.push(target);
    }
    file::check_room(&found, test)?;
    Ok(found)
}

impl DiskTarget {
    /// Holds a block device exclusively while the file is open, so that it can't be mounted or become a part of another
    /// device. Programs that only open it, such as QEMU, still can. A file can't be held.
    pub fn hold(&self) -> Result<Option<File>, TargetError> {
        self.is_device.then(|| device::hold(&self.path)).transpose()
    }

    fn find(path: &Path, files: &KernelFiles) -> Result<DiskTarget, TargetError> {
        let no_disk = |what| TargetError::NoDisk { path: path.to_owned(), what };
        let kind = match fs::metadata(path) {
            Ok(found) => found.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let target = DiskTarget::of_new_file(path)?;
                // The device of that name is missing: a file in its place would use the machine's memory.
                let among_devices =
                    mount_of(&target.path, files).is_some_and(|mount| mount.target == Path::new("/dev"));
                return if among_devices { Err(TargetError::unusable(path)(error)) } else { Ok(target) };
            }
            Err(error) => return Err(TargetError::unusable(path)(error)),
        };
        let path = fs::canonicalize(path).map_err(TargetError::unusable(path))?;
        match kind {
            _ if kind.is_block_device() => Ok(DiskTarget { path, is_device: true }),
            _ if kind.is_file() => Ok(DiskTarget { path, is_device: false }),
            _ if kind.is_dir() => Err(no_disk("a directory")),
            _ if kind.is_char_device() => Err(no_disk("a character device")),
            _ => Err(no_disk("neither a file nor a block device")),
        }
    }

    /// Returns the target of a new file. fio creates the file, but not its directory.
    fn of_new_file(path: &Path) -> Result<DiskTarget, TargetError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = fs::canonicalize(folder).map_err(TargetError::unusable(path))?;
        let name = path.file_name().ok_or(TargetError::NoDisk { path: path.to_owned(), what: "not a file name" })?;
        Ok(DiskTarget { path: folder.join(name), is_device: false })
    }

    /// Returns an identity that distinguishes it from other disks; `None` if it doesn't exist yet.
    fn identity(&self) -> Option<(u64, u64)> {
        let found = fs::metadata(&self.path).ok()?;
        Some(if self.is_device { (found.rdev(), u64::MAX) } else { (found.dev(), found.ino()) })
    }

    fn check(&self, files: &KernelFiles, test: &DiskTest, destroy_data: bool) -> Result<(), TargetError> {
        match self.is_device {
            true => device::check(&self.path, files, test)?,
            false => file::check(&self.path, files, test)?,
        }
        if destroy_data {
            return Ok(());
        }
        match content::look(&self.path).map_err(TargetError::unusable(&self.path))? {
            Some(what) => Err(TargetError::NotEmpty { path: self.path.clone(), what }),
            None => Ok(()),
        }
    }
}
