//! Devices that are plugged and unplugged while the guest runs, and their open files.
//!
//! A device belongs to the guest until its system has released it.

use std::{
    io::{self, IoSlice, Write},
    mem::MaybeUninit,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::{
    cmsg_space,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Monitor, PATIENCE};
use crate::{arguments::DeviceOptions, error::GuestError};

/// The answer to `add-fd`.
#[derive(Deserialize)]
struct AddedFile {
    #[serde(rename = "fdset-id")]
    set: u64,
}

/// Outcome of asking the guest's system to release a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// The guest released it, and QEMU has removed it.
    Gone,
    /// There was none.
    NotThere,
    /// The system still holds it.
    Kept,
}

/// QEMU's error class for a device that doesn't exist.
const NOT_FOUND: &str = "DeviceNotFound";

/// If a guest's system hasn't released a device within this time, it is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

impl Monitor {
    /// Passes a copy of an open file to QEMU under a name, which a new device can refer to.
    pub fn give_file(&mut self, name: &str, file: BorrowedFd<'_>) -> Result<(), GuestError> {
        const COMMAND: &str = "getfd";
        let deadline = Instant::now() + PATIENCE;
        let request = self.request(COMMAND, &json!({ "fdname": name }));
        let sent = self.write_until(deadline).and_then(|()| self.write_with(request.as_bytes(), file));
        sent.map_err(|error| self.takes_nothing(COMMAND, &error))?;
        self.answer::<Value>(COMMAND, deadline).map(|_| ())
    }

    /// Makes QEMU close a file that no device uses.
    pub fn close_file(&mut self, name: &str) -> Result<(), GuestError> {
        self.command("closefd", json!({ "fdname": name }))
    }

    /// Adds the host side of a NIC. Its open files are passed first, with [`Monitor::give_file`].
    pub fn add_netdev(&mut self, netdev: &DeviceOptions) -> Result<(), GuestError> {
        self.command("netdev_add", netdev.json("type"))
    }

    /// Removes the host side of an unplugged NIC.
    pub fn remove_netdev(&mut self, id: &str) -> Result<(), GuestError> {
        self.command("netdev_del", json!({ "id": id }))
    }

    /// Passes a copy of an open file to QEMU in a separate set, and returns the set's number. Disk backends can be
    /// opened from it.
    pub fn add_file(&mut self, file: BorrowedFd<'_>) -> Result<u64, GuestError> {
        const COMMAND: &str = "add-fd";
        let deadline = Instant::now() + PATIENCE;
        let request = self.request(COMMAND, &json!({}));
        let sent = self.write_until(deadline).and_then(|()| self.write_with(request.as_bytes(), file));
        sent.map_err(|error| self.takes_nothing(COMMAND, &error))?;
        let added: AddedFile = self.answer(COMMAND, deadline)?;
        Ok(added.set)
    }

    /// Makes QEMU close the files of a set. Backends opened from it stay open.
    pub fn remove_file_set(&mut self, set: u64) -> Result<(), GuestError> {
        self.command("remove-fd", json!({ "fdset-id": set }))
    }

    /// Adds a disk's backend.
    pub fn add_blocks(&mut self, blocks: Value) -> Result<(), GuestError> {
        self.command("blockdev-add", blocks)
    }

    /// Serves a disk's backend in the rings of a guest's virtio-blk (vhost-user), for the QEMU that connects to a
    /// socket as for [`Monitor::start_nbd_server`].
    pub fn serve_rings(
        &mut self,
        listener: &str,
        node: &str,
        name: &str,
        writable: bool,
        queues: u32,
    ) -> Result<(), GuestError> {
        let export = json!({
            "type": "vhost-user-blk",
            "id": name,
            "node-name": node,
            "writable": writable,
            "addr": { "type": "fd", "str": listener },
            "num-queues": queues,
        });
        self.command("block-export-add", export)
    }

    /// Reads the first block of a disk's backend. QEMU's report goes to its messages.
    pub fn read_block(&mut self, node: &str) -> Result<(), GuestError> {
        let line = format!("qemu-io {node} \"read 0 512\"");
        self.command("human-monitor-command", json!({ "command-line": line }))
    }

    /// Removes the backend of an unplugged disk.
    pub fn remove_blocks(&mut self, node: &str) -> Result<(), GuestError> {
        self.command("blockdev-del", json!({ "node-name": node }))
    }

    /// Plugs in a device.
    pub fn add_device(&mut self, device: &DeviceOptions) -> Result<(), GuestError> {
        self.command("device_add", device.json("driver"))
    }

    /// Plugs in a device that may take QEMU a while: all of the guest's memory is locked for the first one.
    pub fn add_device_slowly(&mut self, device: &DeviceOptions, patience: Duration) -> Result<(), GuestError> {
        self.ask::<Value>("device_add", device.json("driver"), Instant::now() + patience).map(|_| ())
    }

    /// Makes the guest's system release a device. Other events in the meantime are dropped.
    ///
    /// QEMU refuses the request while the system is still initializing the device, and also shortly after an earlier
    /// request, e.g. by a killed vtax. So the request is repeated until the device no longer exists.
    pub fn pull_device(&mut self, id: &str, deadline: Instant) -> Result<Pulled, GuestError> {
        let mut was_there = false;
        loop {
            match self.command("device_del", json!({ "id": id })) {
                Err(GuestError::Refused { class, .. }) if class == NOT_FOUND => {
                    return Ok(if was_there { Pulled::Gone } else { Pulled::NotThere });
                }
                Err(GuestError::Refused { .. }) | Ok(()) => was_there = true,
                Err(error) => return Err(error),
            }
            if self.wait_removed(id, deadline.min(Instant::now() + ASKED_AGAIN))? {
                return Ok(Pulled::Gone);
            }
            if Instant::now() >= deadline {
                return Ok(Pulled::Kept);
            }
        }
    }

    /// Waits until QEMU reports that a device is gone.
    fn wait_removed(&mut self, id: &str, deadline: Instant) -> Result<bool, GuestError> {
        while let Some(event) = self.event(deadline)? {
            if event.name == "DEVICE_DELETED" && event.data.get("device").and_then(Value::as_str) == Some(id) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The file is sent with the first byte.
    fn write_with(&mut self, request: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
        let files = [file];
        let mut space = [const { MaybeUninit::uninit() }; cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let sent = sendmsg(&self.stream, &[IoSlice::new(request)], &mut control, SendFlags::NOSIGNAL)?;
        self.stream.write_all(&request[sent..])
    }
}
