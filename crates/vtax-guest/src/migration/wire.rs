//! The connection between the two ends of a migration.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use crate::{error::GuestError, qmp::Monitor};

/// The name under which QEMU receives a connected socket.
const FILE: &str = "migration";

/// The connection between the two ends of a migration.
#[derive(Debug)]
pub enum MigrationWire {
    /// A socket whose other end is given to the other QEMU. It can lead anywhere, e.g. through an ssh connection.
    Connected(OwnedFd),
    /// An address at which the target listens, in the namespace of its QEMU. With port 0 it selects a free port
    /// ([`IncomingGuest::address`](super::IncomingGuest::address)).
    Tcp(SocketAddr),
}

impl MigrationWire {
    /// The address in QEMU's form.
    pub(super) fn uri(&self) -> String {
        match self {
            MigrationWire::Connected(_) => format!("fd:{FILE}"),
            MigrationWire::Tcp(address) => format!("tcp:{address}"),
        }
    }

    /// Passes the socket to QEMU if it is connected, and closes ours: QEMU has to notice when the other end is closed.
    pub(super) fn give(self, monitor: &mut Monitor) -> Result<(), GuestError> {
        match self {
            MigrationWire::Connected(socket) => monitor.give_file(FILE, socket.as_fd()),
            MigrationWire::Tcp(_) => Ok(()),
        }
    }

    pub(super) fn is_one_connection(&self) -> bool {
        matches!(self, MigrationWire::Connected(_))
    }
}
