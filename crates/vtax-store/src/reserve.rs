//! Disk space reserved so that results can be removed from a full disk.
//!
//! SQLite cannot delete a row without first writing to its log, so results on a full disk could not be removed.
//! Therefore a file next to the database occupies some space, and is removed first.

use std::fs::{self, OpenOptions};

use rustix::fs::{FallocateFlags, fallocate};
use vtax_sys::directory::open_private;

use crate::error::StoreLocation;

/// Size in bytes: room for the log's index (32 KiB) and for deleting a few samples at a time.
const SIZE: u64 = 1 << 20;
/// Ending of the file's name. The file also shows that the database has been written.
pub(crate) const ENDING: &str = ".reserve";

/// Reserves the space, if the disk has it. Nothing else depends on it, so failures are ignored.
pub(crate) fn hold(place: &StoreLocation) {
    let path = place.beside(ENDING);
    let Ok(file) = open_private(&path, OpenOptions::new().write(true).create(true).truncate(false)) else { return };
    if file.metadata().is_ok_and(|metadata| metadata.len() == SIZE) {
        return;
    }
    if fallocate(&file, FallocateFlags::empty(), 0, SIZE).is_err() {
        release(place);
    }
}

/// Returns the space to the disk.
pub(crate) fn release(place: &StoreLocation) {
    let _ = fs::remove_file(place.beside(ENDING));
}
