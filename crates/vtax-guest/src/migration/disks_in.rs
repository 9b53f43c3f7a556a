//! The target's side of disk copies: the disks are served to the source until the guest has arrived.

use std::{
    os::{fd::AsFd, unix::net::UnixListener},
    path::Path,
};

use serde_json::Value;
use vtax_model::topology::Name;

use super::{
    MigrationError, MigrationKey,
    key::{DISK_KEY_ID, give_key},
};
use crate::{
    error::GuestError,
    process::Qemu,
    qmp::{Monitor, PATIENCE, TlsEndpoint},
    vdisk::{DiskFile, DiskLaunch},
};

/// The name under which QEMU receives the socket.
const LISTENER: &str = "disks";

/// Serves disks of a QEMU that awaits a guest, each as an export with its name, on a new socket with this path. The
/// guest's own disks aren't touched: each export has a separate node on the same file, which nobody reads until it is
/// removed.
pub fn serve_disks(
    qemu: &mut Qemu,
    socket: &Path,
    key: Option<&MigrationKey>,
    disks: &[(Name, u32)],
) -> Result<(), MigrationError> {
    let mut monitor = qemu.monitor(PATIENCE)?;
    let mut serve = || {
        // A socket left by a killed vtax would have been removed with its domain.
        let listener = UnixListener::bind(socket).map_err(GuestError::file("listen at", socket))?;
        let file = give_key(&mut monitor, qemu.launch(), key, (DISK_KEY_ID, TlsEndpoint::Server))?;
        monitor.give_file(LISTENER, listener.as_fd())?;
        monitor.start_nbd_server(LISTENER, file.as_ref().map(|_| DISK_KEY_ID))?;
        for (name, port) in disks {
            let is_it = |disk: &&DiskLaunch| disk.port == *port;
            if let Some(disk) = qemu.launch().disks.disks.iter().find(is_it) {
                export(&mut monitor, disk, name)?;
            }
        }
        // The source connects later.
        file.into_iter().for_each(super::key::KeyFile::keep);
        Ok(())
    };
    serve().map_err(|error: GuestError| MigrationError::of_command(error).explained(qemu))
}

/// Ends the exports of [`serve_disks`]. Required before the guest runs: the source has disconnected, and nobody else
/// may write to its disks.
pub fn end_disks(qemu: &mut Qemu, disks: &[u32]) -> Result<(), GuestError> {
    let mut monitor = qemu.monitor(PATIENCE)?;
    // A refusal means that it doesn't exist.
    let refused_or = |done: Result<(), GuestError>| match done {
        Err(GuestError::Refused { .. }) => Ok(()),
        done => done,
    };
    refused_or(monitor.stop_nbd_server())?;
    disks.iter().try_for_each(|port| refused_or(monitor.remove_blocks(&super::copy_node(*port))))?;
    refused_or(monitor.remove_object(DISK_KEY_ID))
}

fn export(monitor: &mut Monitor, disk: &DiskLaunch, name: &Name) -> Result<(), GuestError> {
    let Some((opened, file)) = disk.open_unlocked()?.zip(disk.file()) else { return Ok(()) };
    let (set, node) = (monitor.add_file(opened.as_fd())?, super::copy_node(disk.port));
    let added = monitor.add_blocks(blocks(file, &node, &format!("/dev/fdset/{set}"), disk));
    monitor.remove_file_set(set)?;
    added?;
    monitor.export_blocks(&node, name.as_str(), true)
}

/// A second node on the disk's file. Blocks without data take no space.
fn blocks(file: &DiskFile, node: &str, set: &str, disk: &DiskLaunch) -> Value {
    // QEMU's locks are held by the guest's own node.
    let unlocked = DiskFile { shared: true, ..file.clone() };
    let mut blocks = unlocked.blocks(node, false, set, disk.aio(), file.direct);
    blocks["discard"] = "unmap".into();
    blocks["file"]["discard"] = "unmap".into();
    blocks
}
