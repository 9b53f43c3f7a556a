//! Addresses of a test's endpoints.

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
        /// Context identifier of the responder's machine, as known to the initiator's machine.
        cid: u32,
        port: u32,
    },
}

/// Route from an initiator to a responder: the address of its machine, or a port that is published for it
/// elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResponderReach {
    pub station: Station,
    /// The port over IP, if it isn't the one that the responder listens on.
    pub port: Option<u16>,
}

/// Ports of one machine that lead to ports of a responder on another, the same number on each side.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PublishedPorts {
    /// The first port, at the address to which initiators connect.
    pub at: SocketAddr,
    /// The first port that the responder listens on.
    pub listen: u16,
    /// Number of ports, at least 1. Concurrent tests need one each.
    pub count: u16,
}

/// Start and end of an initiator, in nanoseconds of its machine's monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// Start of all threads; immediately if absent or past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Start of each slice of a sliced sample. A slice without an entry begins immediately after the previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<u64>,
    /// Time of each slice, including everything that belongs to it. A slice that takes longer disturbs
    /// the next row's slice. 0 if it can disturb no one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slot: u64,
    /// End of the last slice of any row. Before that, no flow ends and no report is made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ends: u64,
}

fn is_zero(slot: &u64) -> bool {
    *slot == 0
}

impl Target {
    /// Placeholder in errors: a socket without an address.
    pub const NOWHERE: Target = Target::Ip(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));

    /// Returns the same responder, as an initiator reaches it. The responder knows the port that it listens on, but not
    /// an address or a port that is translated on the way, nor its own context identifier. The target is unchanged if
    /// it is a socket's name or if the station is of another kind.
    pub fn reached_at(self, ResponderReach { station, port }: &ResponderReach) -> Target {
        match (self, station) {
            (Target::Ip(socket), Station::Ip(address) | Station::Device { address, .. }) => {
                Target::Ip(SocketAddr::new(*address, port.unwrap_or(socket.port())))
            }
            (Target::Vsock { port, .. }, Station::Vsock(cid)) => Target::Vsock { cid: *cid, port },
            (target, _) => target,
        }
    }
}

impl From<Station> for ResponderReach {
    fn from(station: Station) -> ResponderReach {
        ResponderReach { station, port: None }
    }
}

impl PublishedPorts {
    /// Returns how an initiator reaches the `nth` port, and the port that the responder listens on then. None if there
    /// are fewer ports.
    pub fn nth(&self, nth: u16) -> Option<(ResponderReach, u16)> {
        let reach = ResponderReach { station: Station::Ip(self.at.ip()), port: Some(self.at.port().checked_add(nth)?) };
        (nth < self.count).then_some((reach, self.listen.checked_add(nth)?))
    }
}

impl fmt::Display for PublishedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PublishedPorts { at, listen, count } = self;
        match count {
            0 | 1 => write!(f, "{at} to port {listen}"),
            _ => {
                let last = |first: &u16| first.saturating_add(count - 1);
                write!(f, "{at}-{} to ports {listen}-{}", last(&at.port()), last(listen))
            }
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

/// Settings of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSetup {
    /// Local address of the endpoint.
    pub station: Station,
    /// The port of a responder over IP. If absent, the kernel chooses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Thread `i` is pinned to `cpus[i % len]`. If this is empty, no thread is pinned.
    pub cpus: Vec<u32>,
    /// The directory for the file of a file test; other tests need none.
    pub directory: Option<PathBuf>,
}

impl EndSetup {
    /// Returns an endpoint on any port, without pinning and directory.
    pub fn new(station: Station) -> EndSetup {
        EndSetup { station, port: None, cpus: vec![], directory: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_reached_as_the_initiator_sees_it() {
        let bound = Target::Ip("0.0.0.0:4321".parse().unwrap());
        let at = |station: Station| ResponderReach::from(station);
        let host = Station::Ip("192.0.2.7".parse().unwrap());
        assert_eq!(bound.clone().reached_at(&at(host.clone())).to_string(), "192.0.2.7:4321");
        let published = ResponderReach { port: Some(8080), ..at(host) };
        assert_eq!(bound.clone().reached_at(&published).to_string(), "192.0.2.7:8080");
        assert_eq!(bound.clone().reached_at(&at(Station::Vsock(3))), bound);
        let machine = Target::Vsock { cid: u32::MAX, port: 9 }.reached_at(&at(Station::Vsock(3)));
        assert_eq!(machine.to_string(), "vsock 3:9");
        let socket = Target::Unix("/run/a".into());
        assert_eq!(socket.clone().reached_at(&at(Station::Unix("/tmp".into()))), socket);
    }

    #[test]
    fn published_ports_lead_to_as_many_of_the_responder() {
        let ports = PublishedPorts { at: "192.0.2.7:18080".parse().unwrap(), listen: 8080, count: 2 };
        let nth = |nth| ports.nth(nth).map(|(reach, listen)| (reach.port, listen));
        assert_eq!([nth(0), nth(1), nth(2)], [Some((Some(18080), 8080)), Some((Some(18081), 8081)), None]);
        assert_eq!(ports.to_string(), "192.0.2.7:18080-18081 to ports 8080-8081");
        assert_eq!(PublishedPorts { count: 1, ..ports }.to_string(), "192.0.2.7:18080 to port 8080");
        let last = PublishedPorts { at: "[2001:db8::1]:65535".parse().unwrap(), listen: 80, count: 2 };
        assert_eq!(last.nth(1), None, "there is no port above");
    }
}
