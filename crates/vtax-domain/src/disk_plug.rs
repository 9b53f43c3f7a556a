//! Hot-plugging and unplugging virtual disks in QEMU.

use std::time::Duration;

use vtax_guest::{launch::Launch, paths, qmp::PATIENCE};
use vtax_journal::Undone;
use vtax_step::recorded_qemu;

use crate::{bindings::BoundDisk, disk, error::BindError};

/// Time within which a domain's system releases a disk: its driver waits for five seconds, in case the request is
/// withdrawn.
const RELEASED: Duration = Duration::from_secs(30);

pub(crate) fn plug(launch: &Launch, process: &str, disk: &BoundDisk) -> Result<(), BindError> {
    Ok(recorded_qemu(launch, process)?.plug_disk(&disk::launch(disk), PATIENCE)?)
}

pub(crate) fn unplug(launch: &Launch, process: &str, disk: &BoundDisk) -> Result<Undone, BindError> {
    let mut qemu = recorded_qemu(launch, process)?;
    let disk = disk::launch(disk);
    let was_there = qemu.is_alive() && qemu.unplug_disk(&disk, RELEASED)?;
    paths::end(launch, &disk)?;
    match was_there {
        true => Ok(Undone::Reverted),
        false => Ok(Undone::AlreadyGone),
    }
}
