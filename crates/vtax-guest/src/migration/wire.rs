//! The connection between the two ends of a migration.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use super::channels::SOCKET;
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
    /// A socket in QEMU's directory for several channels. At the source they are taken from
    /// [`OutgoingChannels`](super::OutgoingChannels), at the target they are connected by
    /// [`connect_channel`](super::connect_channel).
    Channels,
}

impl MigrationWire {
    /// The address in QEMU's form.
    pub(super) fn uri(&self) -> String {
        match self {
            MigrationWire::Connected(_) => format!("fd:{FILE}"),
            MigrationWire::Tcp(address) => format!("tcp:{address}"),
            // QEMU's working directory is its own.
            MigrationWire::Channels => format!("unix:{SOCKET}"),
        }
    }

    /// Passes the socket to QEMU if it is connected, and closes ours: QEMU has to notice when the other end is closed.
    pub(super) fn give(self, monitor: &mut Monitor) -> Result<(), GuestError> {
        match self {
            MigrationWire::Connected(socket) => monitor.give_file(FILE, socket.as_fd()),
            MigrationWire::Tcp(_) | MigrationWire::Channels => Ok(()),
        }
    }

    pub(super) fn is_one_connection(&self) -> bool {
        matches!(self, MigrationWire::Connected(_))
    }
}
