//! Whether a block device is in use, and whether it is large enough.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};
use vtax_model::{disk::DiskTest, units::ByteSize};

use super::TargetError;
use crate::kernel_files::{BlockDirectory, DeviceNumber, KernelFiles};

/// The unit of `size` in sysfs, whatever the device's own is.
const SECTOR: u64 = 512;

pub(super) fn check(path: &Path, files: &KernelFiles, test: &DiskTest) -> Result<(), TargetError> {
    let fail = TargetError::unusable(path);
    let number = DeviceNumber::of(fs::metadata(path).map_err(&fail)?.rdev());
    let gone = || fail(io::Error::other("the kernel has no such block device"));
    let device = files.block(number).ok_or_else(gone)?;
    let mut parts = device.partitions();
    parts.push(device.clone());
    parts.iter().try_for_each(|part| check_use(path, files, part))?;
    check_alone(path)?;
    check_size(path, &device, test)
}

/// Whether the device or a partition of it is mounted, swapped to, or a part of another device.
fn check_use(path: &Path, files: &KernelFiles, part: &BlockDirectory) -> Result<(), TargetError> {
    let fail = TargetError::unusable(path);
    let (path, device, number) = (path.to_owned(), part.name(), part.number());
    let is_part = |other: &Path| number.is_some() && number_of(other) == number;
    // btrfs mounts have a number of their own, and the device only as their source.
    let mounts = files.mounts().map_err(&fail)?;
    if let Some(mount) = mounts.iter().find(|mount| Some(mount.device) == number || is_part(&mount.source)) {
        return Err(TargetError::Mounted { path, device, at: mount.target.display().to_string().into() });
    }
    if let Some(swap) = files.swaps().map_err(&fail)?.into_iter().find(|swap| is_part(swap)) {
        return Err(TargetError::Swap { path, swap });
    }
    match part.holders().into_iter().next() {
        Some(by) => Err(TargetError::Held { path, device, by }),
        None => Ok(()),
    }
}

/// The number of a device by its path.
fn number_of(path: &Path) -> Option<DeviceNumber> {
    let found = fs::metadata(path).ok()?;
    found.file_type().is_block_device().then(|| DeviceNumber::of(found.rdev()))
}

/// A device can be opened exclusively (O_EXCL of open(2)) only if nothing in the kernel has it: no mount of any namespace,
/// no array, no mapped device.
fn check_alone(path: &Path) -> Result<(), TargetError> {
    let exclusive = (OFlags::EXCL | OFlags::NONBLOCK).bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(exclusive).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            Err(TargetError::Busy { path: path.to_owned() })
        }
        Err(error) => Err(TargetError::unusable(path)(error)),
    }
}

fn check_size(path: &Path, device: &BlockDirectory, test: &DiskTest) -> Result<(), TargetError> {
    let path = PathBuf::from(path);
    if device.number_in("ro") == Some(1) {
        return Err(TargetError::ReadOnly { path });
    }
    let size = ByteSize(device.number_in("size").unwrap_or_default().saturating_mul(SECTOR));
    if size < test.range {
        return Err(TargetError::TooSmall { path, size, range: test.range });
    }
    match device.whole().number_in("queue/logical_block_size").map(ByteSize) {
        Some(sector) if sector.0 > 0 && !test.block.get().0.is_multiple_of(sector.0) => {
            Err(TargetError::Sector { path, sector, block: test.block })
        }
        _ => Ok(()),
    }
}
