//! Owner of the socket at the other end of a TCP connection between two programs of this machine (sock_diag(7)).

use std::net::{IpAddr, SocketAddrV4};

use netlink_packet_core::Parseable;
use netlink_packet_sock_diag::{
    AF_INET, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY, TCP_ESTABLISHED,
    inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags},
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::request::NetlinkRequest;
use super::socket::{Channel, Subject};
use crate::error::{Result, SysError};

/// Matches any socket with these addresses (`INET_DIAG_NOCOOKIE`).
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// User that the kernel reports for any user whom this user namespace doesn't map (`overflowuid`).
const SOMEBODY: u32 = 65534;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// Returns the user who created the socket at the other end of a connection within this machine: `own` is the address
/// of our end, `peer` that of the other end. None if that socket no longer exists, or if the kernel doesn't know the
/// user.
///
/// # Errors
/// The kernel refuses to report it.
pub fn owner_of_peer(own: SocketAddrV4, peer: SocketAddrV4) -> Result<Option<UserId>> {
    let mut channel =
        Channel::open(NETLINK_SOCK_DIAG).map_err(|e| SysError::os("open", "a socket for sock_diag", e))?;
    let subject = Subject { operation: "find the owner of", object: &peer };
    let socket = theirs(own, peer);
    let found = channel.get(&request(&socket), subject, |body| Some(owner(body, &socket)));
    match found {
        Err(error) if error.is_missing() => Ok(None),
        found => found.map(Option::flatten),
    }
}

/// Returns the connection as seen from the other end.
fn theirs(own: SocketAddrV4, peer: SocketAddrV4) -> SocketId {
    SocketId {
        source_port: peer.port(),
        destination_port: own.port(),
        source_address: IpAddr::V4(*peer.ip()),
        destination_address: IpAddr::V4(*own.ip()),
        interface_id: 0,
        cookie: ANY_COOKIE,
    }
}

fn request(socket: &SocketId) -> NetlinkRequest {
    let message = InetRequest {
        family: AF_INET,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: socket.clone(),
    };
    NetlinkRequest::new(SOCK_DIAG_BY_FAMILY, &message)
}

/// Returns the owner if the answer concerns exactly this connection, which must be established and still held by a
/// program.
///
/// If there is no connection with these addresses, the kernel answers with a program that listens on the port
/// (`inet_diag_find_one_icsk`). For a connection closed by its program, it reports user 0 and inode 0.
pub(super) fn owner(body: &[u8], socket: &SocketId) -> Option<UserId> {
    let found = InetResponseHeader::parse(body).ok()?;
    let same = SocketId { cookie: ANY_COOKIE, interface_id: 0, ..found.socket_id } == *socket;
    let held = found.state == TCP_ESTABLISHED && found.inode != 0;
    (same && held && found.uid != SOMEBODY).then_some(UserId(found.uid))
}

/// Returns an answer about a connection held by user 7, and the connection.
#[cfg(test)]
pub(super) fn seed() -> (InetResponseHeader, SocketId) {
    let address = |port| SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port);
    let socket = theirs(address(5002), address(40000));
    let held = InetResponseHeader {
        family: AF_INET,
        state: TCP_ESTABLISHED,
        timer: None,
        socket_id: socket.clone(),
        recv_queue: 0,
        send_queue: 0,
        uid: 7,
        inode: 1,
    };
    (held, socket)
}

#[cfg(test)]
mod tests {
    use netlink_packet_sock_diag::{TCP_CLOSE_WAIT, TCP_LISTEN, TCP_TIME_WAIT};

    use super::super::request::emitted;
    use super::*;

    #[test]
    fn only_who_holds_this_very_connection_is_its_owner() {
        let (held, socket) = seed();
        let read = |header: &InetResponseHeader| owner(&emitted(header), &socket);
        assert_eq!(read(&held), Some(UserId(7)));
        for state in [TCP_LISTEN, TCP_TIME_WAIT, TCP_CLOSE_WAIT] {
            assert_eq!(read(&InetResponseHeader { state, ..held.clone() }), None);
        }
        assert_eq!(read(&InetResponseHeader { inode: 0, uid: 0, ..held.clone() }), None);
        assert_eq!(read(&InetResponseHeader { uid: SOMEBODY, ..held.clone() }), None);
        let other = SocketId { source_port: 1, ..socket.clone() };
        assert_eq!(read(&InetResponseHeader { socket_id: other, ..held.clone() }), None);
        assert_eq!(owner(&emitted(&held)[..40], &socket), None);
    }
}
