//! Checks that a file may be written, fits on its file system, and supports O_DIRECT if the test uses it.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};
use vtax_model::{disk::DiskTest, units::ByteSize};
use vtax_sys::process::disk_free;

use super::{DiskTarget, TargetError};
use vtax_sys::block::KernelFiles;

use crate::path::mount_of;

/// Unit of `st_blocks` (stat(2)).
const ALLOCATED: u64 = 512;

pub(super) fn check(path: &Path, files: &KernelFiles, test: &DiskTest) -> Result<(), TargetError> {
    check_use(path, files)?;
    match test.direct {
        true => check_direct(path, files),
        false => Ok(()),
    }
}

/// Refuses a file to which the kernel itself writes.
fn check_use(path: &Path, files: &KernelFiles) -> Result<(), TargetError> {
    let same = |other: &Path| match (fs::metadata(path), fs::metadata(other)) {
        (Ok(own), Ok(other)) => (own.dev(), own.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    let swaps = files.swaps().map_err(TargetError::unusable(path))?;
    if let Some(swap) = swaps.into_iter().find(|swap| same(swap)) {
        return Err(TargetError::Swap { path: path.to_owned(), swap });
    }
    match files.loops().into_iter().find(|(_, file)| same(file)) {
        Some((by, _)) => Err(TargetError::Loop { path: path.to_owned(), by }),
        None => Ok(()),
    }
}

/// Opens the file, or an unnamed one in its directory, in the same way as the test.
fn check_direct(path: &Path, files: &KernelFiles) -> Result<(), TargetError> {
    match open_direct(path) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            let mount = mount_of(path, files);
            let filesystem = mount.map(|mount| mount.filesystem).unwrap_or_default().into();
            Err(TargetError::NoDirect { path: path.to_owned(), filesystem })
        }
        // Some file systems don't support unnamed files. fio then reports the fault.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        Err(error) => Err(TargetError::unusable(path)(error)),
    }
}

fn open_direct(path: &Path) -> io::Result<File> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.custom_flags(direct).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let nameless = direct | OFlags::TMPFILE.bits().cast_signed();
            options.custom_flags(nameless).open(path.parent().unwrap_or(Path::new("/")))
        }
        opened => opened,
    }
}

/// Checks that all files together have room on their file systems.
pub(super) fn check_room(targets: &[DiskTarget], test: &DiskTest) -> Result<(), TargetError> {
    let mut wanted: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
    for DiskTarget { path, .. } in targets.iter().filter(|target| !target.is_device) {
        let allocated = fs::metadata(path).map_or(0, |found| found.blocks().saturating_mul(ALLOCATED));
        let folder = path.parent().unwrap_or(Path::new("/"));
        let filesystem = fs::metadata(folder).map_err(TargetError::unusable(path))?.dev();
        let sum = wanted.entry(filesystem).or_insert_with(|| (0, path.clone()));
        sum.0 = sum.0.saturating_add(test.range.0.saturating_sub(allocated));
    }
    for (needed, path) in wanted.into_values() {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let unknown = |error: vtax_sys::SysError| TargetError::unusable(&path)(io::Error::other(error.to_string()));
        let free = disk_free(folder).map_err(unknown)?;
        if free < needed {
            return Err(TargetError::NoRoom { path, needed: ByteSize(needed), free: ByteSize(free) });
        }
    }
    Ok(())
}
