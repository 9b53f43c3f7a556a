//! Where the ends of a test are.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::endpoint::DeviceName;

/// Local address to which an endpoint binds its sockets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Station {
    /// The local address of every socket.
    Ip(IpAddr),
    /// The same, and every socket is bound to a network device: SO_BINDTODEVICE, socket(7).
    Device {
        /// Local address of every socket.
        address: IpAddr,
        /// Network device that every socket is bound to.
        device: DeviceName,
    },
    /// The directory in which a responder makes its socket. An initiator doesn't bind.
    Unix(PathBuf),
    /// The machine's own context identifier, vsock(7); `u32::MAX` (`VMADDR_CID_ANY`) stands for all.
    Vsock(u32),
}

/// The address at which an initiator reaches a responder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Ip(SocketAddr),
    Unix(PathBuf),
    /// Context identifier of the responder's machine, and port.
    Vsock {
        /// The context identifier of the responder's machine, as the initiator's machine knows it.
        cid: u32,
        port: u32,
    },
}

/// When an initiator starts and ends, in nanoseconds of its machine's monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// When all threads begin. They begin at once if this is absent or past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// When each slice of a sliced sample begins. A slice without an entry begins at once after the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<u64>,
    /// Time of each slice, including everything that belongs to it. A slice that takes longer disturbs
    /// the next row's slice. 0 if it can disturb no one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slot: u64,
    /// When the last slice of any row is over. Before that, no flow ends and no report is made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ends: u64,
}

fn is_zero(slot: &u64) -> bool {
    *slot == 0
}

impl Target {
    /// In errors: a socket without an address.
    pub const NOWHERE: Target = Target::Ip(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));

    /// The same responder, as an initiator reaches it at `station`. The responder knows its port. It doesn't
    /// know an address that is translated on the way, nor its own context identifier. The target stays as it
    /// is if it is a socket's name or if `station` is of another kind.
    pub fn reached_at(self, station: &Station) -> Target {
        match (self, station) {
            (Target::Ip(socket), Station::Ip(address) | Station::Device { address, .. }) => {
                Target::Ip(SocketAddr::new(*address, socket.port()))
            }
            (Target::Vsock { port, .. }, Station::Vsock(cid)) => Target::Vsock { cid: *cid, port },
            (target, _) => target,
        }
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Station::Ip(address) => address.fmt(f),
            Station::Device { address, device } => write!(f, "{address} on {device}"),
            Station::Unix(directory) => directory.display().fmt(f),
            Station::Vsock(u32::MAX) => f.write_str("vsock any"),
            Station::Vsock(cid) => write!(f, "vsock {cid}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ip(address) => address.fmt(f),
            Target::Unix(path) => path.display().fmt(f),
            // The port isn't chosen yet (VMADDR_PORT_ANY).
            Target::Vsock { cid, port: u32::MAX } => write!(f, "vsock {cid}"),
            Target::Vsock { cid, port } => write!(f, "vsock {cid}:{port}"),
        }
    }
}

/// Where an end runs, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSetup {
    /// Local address of the endpoint.
    pub station: Station,
    /// Thread `i` is pinned to `cpus[i % len]`. If this is empty, no thread is pinned.
    pub cpus: Vec<u32>,
    /// The directory for the file of a file test; other tests need none.
    pub directory: Option<PathBuf>,
}

impl EndSetup {
    /// An end without pins and without a directory.
    pub fn new(station: Station) -> EndSetup {
        EndSetup { station, cpus: vec![], directory: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_reached_as_the_initiator_sees_it() {
        let bound = Target::Ip("0.0.0.0:4321".parse().unwrap());
        let seen = bound.clone().reached_at(&Station::Ip("192.0.2.7".parse().unwrap()));
        assert_eq!(seen.to_string(), "192.0.2.7:4321");
        assert_eq!(bound.clone().reached_at(&Station::Vsock(3)), bound);
        let machine = Target::Vsock { cid: u32::MAX, port: 9 }.reached_at(&Station::Vsock(3));
        assert_eq!(machine.to_string(), "vsock 3:9");
        let socket = Target::Unix("/run/a".into());
        assert_eq!(socket.clone().reached_at(&Station::Unix("/tmp".into())), socket);
    }
}
