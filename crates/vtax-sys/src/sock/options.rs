//! Socket options that a test can set. Where the kernel may reduce or ignore a value, it is read back, because the
//! result must state what was measured.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use socket2::SockRef;

use super::{family, get_bytes, set_bytes, set_int};
use crate::error::{Result, SysError, remedy_for};

/// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`: index of the drop counter in `SO_MEMINFO`.
const MEMINFO_DROPS: usize = 8;

/// Sets the congestion control of a TCP socket (`TCP_CONGESTION`, tcp(7)). Connections inherit it from the listener
/// that accepts them.
///
/// # Errors
/// `ENOENT` if this kernel has no congestion control with this name; `EPERM` if unprivileged users may not choose it
/// (`net.ipv4.tcp_allowed_congestion_control`).
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> Result<()> {
    sockopt::set_tcp_congestion(socket, name).map_err(|errno| {
        let errno = io::Error::from(errno);
        let remedy = match errno.raw_os_error() {
            Some(libc::ENOENT) => {
                Some("choose one of net.ipv4.tcp_available_congestion_control, or load the module tcp_NAME")
            }
            Some(libc::EPERM) => Some("run as root, or add it to net.ipv4.tcp_allowed_congestion_control"),
            _ => remedy_for(&errno),
        };
        SysError::refused("set", format_args!("TCP congestion control {name}"), errno, remedy)
    })
}

/// Returns the name of a TCP socket's congestion control.
pub fn congestion_control(socket: impl AsFd) -> Result<String> {
    sockopt::tcp_congestion(socket).map_err(|e| SysError::os("read option", "TCP_CONGESTION of a socket", e))
}

/// Sets the differentiated services code point of all packets that the socket sends, for IPv4 and IPv6. It is the upper
/// six bits of the byte; the lower two belong to congestion notification (RFC 2474).
pub fn set_dscp(socket: impl AsFd, dscp: u8) -> Result<()> {
    if dscp > 63 {
        return Err(SysError::invalid("DSCP", dscp, "it has six bits: 0 to 63"));
    }
    let (socket, byte) = (socket.as_fd(), dscp << 2);
    let set = match family(socket)? {
        libc::AF_INET6 => sockopt::set_ipv6_tclass(socket, byte.into()),
        _ => sockopt::set_ip_tos(socket, byte),
    };
    set.map_err(|e| SysError::os("set option", "DSCP of a socket", e))
}

/// Limits the rate in bytes per second at which a socket's data is sent (`SO_MAX_PACING_RATE`); `None` removes the
/// limit. TCP paces itself. UDP is paced by the `fq` qdisc; without it, the limit has no effect.
///
/// The kernel counts whole frames with TCP/IP headers for TCP, and the bytes that the qdisc sees for UDP. So the
/// payload's rate is a little lower. A kernel before 4.20 takes only the lower 32 bits: read the limit back.
pub fn set_pacing_rate(socket: impl AsFd, rate: Option<u64>) -> Result<()> {
    let rate = rate.unwrap_or(u64::MAX).to_ne_bytes();
    set_bytes(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)
        .map_err(|e| SysError::os("set option", "MAX_PACING_RATE of a socket", e))
}

/// Returns the limit set by [`set_pacing_rate`].
pub fn pacing_rate(socket: impl AsFd) -> Result<Option<u64>> {
    let mut rate = [0; 8];
    let filled = get_bytes(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)
        .map_err(|e| SysError::os("read option", "MAX_PACING_RATE of a socket", e))?;
    Ok(match filled {
        4 => Some(u32::from_ne_bytes([rate[0], rate[1], rate[2], rate[3]])).filter(|r| *r != u32::MAX).map(u64::from),
        _ => Some(u64::from_ne_bytes(rate)).filter(|rate| *rate != u64::MAX),
    })
}

/// Lets a blocking call on the socket poll the queue of its network device before it sleeps, for this time in whole
/// microseconds (`SO_BUSY_POLL`, socket(7)). A device without NAPI, such as loopback, has no queue to poll.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, for a time above `net.core.busy_poll`.
pub fn set_busy_poll(socket: impl AsFd, time: Duration) -> Result<()> {
    // The kernel accepts no more than a signed integer holds.
    let micros = i32::try_from(time.as_micros()).map_err(|_| {
        SysError::invalid("time of busy polling", format_args!("{time:?}"), "it is longer than 35 minutes")
    })?;
    SockRef::from(&socket)
        .set_busy_poll(micros.unsigned_abs())
        .map_err(|e| SysError::os("set option", "BUSY_POLL of a socket", e))
}

/// Requests a send buffer of this many bytes, beyond `net.core.wmem_max` if allowed (`SO_SNDBUFFORCE` requires
/// `CAP_NET_ADMIN`). Returns the granted size. This is half of what the kernel reports, because it doubles each request
/// for its own structures (socket(7)).
pub fn set_send_space(socket: impl AsFd, bytes: usize) -> Result<usize> {
    let socket = socket.as_fd();
    sockopt::set_socket_send_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes))
        .and_then(|()| sockopt::socket_send_buffer_size(socket))
        .map(|doubled| doubled / 2)
        .map_err(|e| SysError::os("set option", "SNDBUF of a socket", e))
}

/// Like [`set_send_space`], for the receive buffer and `net.core.rmem_max`. Set it before connecting: the connection's
/// window scale is fixed then and limits how much of the buffer TCP can announce.
pub fn set_receive_space(socket: impl AsFd, bytes: usize) -> Result<usize> {
    let socket = socket.as_fd();
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))
        .and_then(|()| sockopt::socket_recv_buffer_size(socket))
        .map(|doubled| doubled / 2)
        .map_err(|e| SysError::os("set option", "RCVBUF of a socket", e))
}

/// Makes `bind` to an address with port 0 leave the port open until `connect` (`IP_BIND_ADDRESS_NO_PORT`, ip(7)). Then
/// the port must be unique only together with the peer's address and port. Many connections from one address to several
/// peers need this.
pub fn set_bind_address_no_port(socket: impl AsFd) -> Result<()> {
    // The level is IPv4's for both families.
    set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
        .map_err(|e| SysError::os("set option", "BIND_ADDRESS_NO_PORT of a socket", e))
}

/// Returns the number of packets that this socket has dropped since it was created, because its receive buffer was full
/// or a checksum was wrong (`SO_MEMINFO`, Linux 4.12). The counter wraps.
///
/// It is the figure in the column `drops` of `/proc/net/udp`. Unlike with `SO_RXQ_OVFL`, the socket need not receive a
/// packet to learn it.
pub fn receive_drops(socket: impl AsFd) -> Result<u32> {
    let (operation, object) = ("read option", "MEMINFO of a socket");
    let mut info = [0; 64];
    let filled = get_bytes(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)
        .map_err(|e| SysError::os(operation, object, e))?;
    let (numbers, _) = info[..filled].as_chunks::<4>();
    let drops = numbers.get(MEMINFO_DROPS).map(|drops| u32::from_ne_bytes(*drops));
    drops.ok_or_else(|| SysError::malformed(operation, object, format!("{filled} bytes")))
}

#[cfg(test)]
mod tests {
    use super::super::{get_int, tests::*};
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::time::Instant;

    #[test]
    fn congestion_control_is_set_and_an_unknown_one_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_congestion_control(&listener, "reno").unwrap();
        assert_eq!(congestion_control(&listener).unwrap(), "reno");
        let error = set_congestion_control(&listener, "no_such_one").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert!(error.to_string().contains("no_such_one"), "{error}");
        assert!(error.to_string().contains("tcp_available_congestion_control"), "{error}");
    }

    #[test]
    fn dscp_lands_in_the_upper_bits_for_both_families() {
        let v4 = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_dscp(&v4, 46).unwrap();
        assert_eq!(get_int(&v4, libc::IPPROTO_IP, libc::IP_TOS).unwrap(), 0xb8);
        assert!(matches!(set_dscp(&v4, 64), Err(SysError::Invalid { .. })));
        if let Ok(v6) = UdpSocket::bind("[::1]:0") {
            set_dscp(&v6, 10).unwrap();
            assert_eq!(get_int(&v6, libc::IPPROTO_IPV6, libc::IPV6_TCLASS).unwrap(), 40);
        }
    }

    /// 100 Gb/s in bytes per second don't fit 32 bits.
    #[test]
    fn a_pacing_rate_may_exceed_four_gigabytes_per_second() {
        let (client, _server) = tcp_pair();
        assert_eq!(pacing_rate(&client).unwrap(), None);
        set_pacing_rate(&client, Some(12_500_000_000)).unwrap();
        assert_eq!(pacing_rate(&client).unwrap(), Some(12_500_000_000));
        set_pacing_rate(&client, None).unwrap();
        assert_eq!(pacing_rate(&client).unwrap(), None);
    }

    #[test]
    fn a_paced_connection_takes_its_time() {
        use std::io::{Read, Write};
        let (mut client, mut server) = tcp_pair();
        set_pacing_rate(&client, Some(2_000_000)).unwrap();
        let started = Instant::now();
        let sender = std::thread::spawn(move || client.write_all(&vec![0; 1_000_000]).unwrap());
        server.read_exact(&mut vec![0; 1_000_000]).unwrap();
        sender.join().unwrap();
        // The data takes half a second by arithmetic, but the first bursts are sent unpaced.
        assert!(started.elapsed() > Duration::from_millis(150), "{:?}", started.elapsed());
    }

    #[test]
    fn busy_polling_is_read_back() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_busy_poll(&socket, Duration::ZERO).unwrap();
        assert_eq!(SockRef::from(&socket).busy_poll().unwrap(), 0);
        if rustix::process::geteuid().is_root() {
            set_busy_poll(&socket, Duration::from_micros(50)).unwrap();
            assert_eq!(SockRef::from(&socket).busy_poll().unwrap(), 50);
        }
    }

    #[test]
    fn granted_space_is_reported_in_the_callers_terms() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(set_send_space(&socket, 65536).unwrap(), 65536);
        assert_eq!(set_receive_space(&socket, 65536).unwrap(), 65536);
        // The kernel grants at least SOCK_MIN_SNDBUF, even if less is requested.
        assert!(set_send_space(&socket, 1).unwrap() > 1000);
    }

    #[test]
    fn the_port_is_chosen_when_the_socket_connects() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        set_bind_address_no_port(&socket).unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        assert_eq!(socket.local_addr().unwrap().as_socket().unwrap().port(), 0);
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        assert_ne!(socket.local_addr().unwrap().as_socket().unwrap().port(), 0);
    }

    #[test]
    fn a_full_receive_buffer_drops_and_the_drops_are_counted() {
        let (sender, receiver) = udp_pair();
        set_receive_space(&receiver, 4096).unwrap();
        assert_eq!(receive_drops(&receiver).unwrap(), 0);
        for _ in 0..200 {
            sender.send(&[0; 1000]).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        // The kernel may deliver packets a little later when it is busy.
        let deadline = Instant::now() + Duration::from_secs(10);
        let (mut arrived, mut dropped) = (0, 0);
        while arrived + dropped < 200 && Instant::now() < deadline {
            arrived += std::iter::from_fn(|| receiver.recv(&mut [0; 1000]).ok()).count();
            dropped = receive_drops(&receiver).unwrap() as usize;
        }
        assert!(dropped > 0, "{arrived} arrived");
        assert_eq!(dropped + arrived, 200);
    }
}
