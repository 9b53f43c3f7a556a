//! Checks that a block device is unused and large enough.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use vtax_model::{disk::DiskTest, units::ByteSize};
use vtax_sys::block::{BlockDirectory, BlockUse, DeviceNumber, KernelFiles, claim};

use super::TargetError;

/// Unit of `size` in sysfs, whatever the device's sector size.
const SECTOR: u64 = 512;

pub(super) fn check(path: &Path, files: &KernelFiles, test: &DiskTest) -> Result<(), TargetError> {
    let fail = TargetError::unusable(path);
    let number = DeviceNumber::of(fs::metadata(path).map_err(&fail)?.rdev());
    let gone = || fail(io::Error::other("no such block device in the kernel"));
    let device = files.block(number).ok_or_else(gone)?;
    match files.user(&device).map_err(&fail)? {
        Some(user) => return Err(refused(path, user)),
        None => drop(hold(path)?),
    }
    check_size(path, &device, test)
}

/// Claims the device, so that neither the kernel nor another program that opens it exclusively can use it in the
/// meantime.
pub(super) fn hold(path: &Path) -> Result<File, TargetError> {
    let claimed = claim(path).map_err(TargetError::unusable(path))?;
    claimed.ok_or_else(|| TargetError::Busy { path: path.to_owned() })
}

fn refused(path: &Path, user: BlockUse) -> TargetError {
    let path = path.to_owned();
    match user {
        BlockUse::Mounted { device, at } => TargetError::Mounted { path, device, at: at.display().to_string().into() },
        BlockUse::Swap { path: swap } => TargetError::Swap { path, swap },
        BlockUse::Held { device, by } => TargetError::Held { path, device, by },
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
