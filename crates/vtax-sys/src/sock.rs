//! Socket options that `socket2` and `rustix` lack, and calls whose results come in control messages: segment sizes,
//! timestamps, completions.

mod bbr;
mod congestion;
#[cfg(test)]
mod fuzz;
mod message;
pub mod offload;
mod options;
mod tcp_info;
pub mod timestamping;
mod vsock;
pub mod zerocopy;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Result, SysError};

pub use bbr::bbr_starts_up;
pub use congestion::{NoCongestionControl, check_congestion_control, choose_congestion_control};
pub use options::{
    congestion_control, pacing_rate, receive_drops, set_bind_address_no_port, set_busy_poll, set_congestion_control,
    set_dscp, set_pacing_rate, set_receive_space, set_send_space,
};
pub use tcp_info::{TcpInfo, TcpTraffic, tcp_info};
pub use vsock::{CID_LOCAL, NoVsock, check_vsock_loopback};

/// Makes the kernel send every datagram with "don't fragment" and refuse one that is longer than the path's MTU with
/// `EMSGSIZE`, for IPv4 and IPv6 (ip(7), `IP_PMTUDISC_DO`). A test of a given MTU must not silently measure fragments.
pub fn set_dont_fragment(socket: impl AsFd) -> Result<()> {
    let socket = socket.as_fd();
    let (level, option, value) = match family(socket)? {
        libc::AF_INET6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
        _ => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
    };
    set_int(socket, level, option, value).map_err(|e| SysError::os("set option", "MTU_DISCOVER of a socket", e))
}

/// Returns the MTU in bytes that the kernel knows for the path of a *connected* socket, including IP headers.
///
/// # Errors
/// `ENOTCONN` if it is not connected.
pub fn path_mtu(socket: impl AsFd) -> Result<u32> {
    let socket = socket.as_fd();
    let (level, option) = match family(socket)? {
        libc::AF_INET6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        _ => (libc::IPPROTO_IP, libc::IP_MTU),
    };
    let object = "MTU of a socket's path";
    let mtu = get_int(socket, level, option).map_err(|e| SysError::os("read the", object, e))?;
    u32::try_from(mtu).map_err(|e| SysError::malformed("read the", object, e))
}

fn family(socket: impl AsFd) -> Result<libc::c_int> {
    get_int(socket, libc::SOL_SOCKET, libc::SO_DOMAIN).map_err(|e| SysError::os("read option", "DOMAIN of a socket", e))
}

fn get_int(socket: impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value = [0; size_of::<libc::c_int>()];
    get_bytes(socket, level, option, &mut value)?;
    Ok(libc::c_int::from_ne_bytes(value))
}

fn set_int(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Reads an option. Returns the number of bytes that the kernel filled in.
fn get_bytes(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the buffer has the length that the kernel is given.
    let status = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((length as usize).min(value.len()))
}

/// Returns the number of a socket's network namespace.
pub(crate) fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = [0; 8];
    get_bytes(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

fn set_bytes(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the buffer has the length that the kernel is given, and is only read.
    let status = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    pub(super) fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        (client, server)
    }

    /// Returns two sockets that are connected to each other.
    pub(super) fn udp_pair() -> (UdpSocket, UdpSocket) {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        for socket in [&one, &other] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        (one, other)
    }

    /// The MTU is 65536, but the kernel never assumes more than the longest IPv4 packet (`IP_MAX_MTU`).
    pub(super) const LOOPBACK_MTU: u32 = 65535;

    /// Loopback's MTU is 65536, but a datagram cannot be longer than 65507 bytes anyway. So the test reads the option
    /// back.
    #[test]
    fn dont_fragment_is_set_for_both_families() {
        for (address, level, option) in [
            ("127.0.0.1:0", libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            ("[::1]:0", libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        ] {
            let Ok(socket) = UdpSocket::bind(address) else {
                assert!(address.starts_with('['), "no IPv4 on loopback");
                continue;
            };
            set_dont_fragment(&socket).unwrap();
            assert_eq!(get_int(&socket, level, option).unwrap(), libc::IP_PMTUDISC_DO);
        }
    }

    #[test]
    fn the_mtu_of_a_path_needs_a_peer() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(path_mtu(&socket).unwrap_err().errno(), Some(libc::ENOTCONN));
        socket.connect("127.0.0.1:9").unwrap();
        assert_eq!(path_mtu(&socket).unwrap(), LOOPBACK_MTU);
    }
}
