//! What TCP knows of a connection: `struct tcp_info` of `linux/tcp.h`.
//!
//! The structure only ever grows at its end, and the kernel tells how much of it
//! it filled in, so it is read by offsets. The C library's structure is frozen at
//! an early length and would hide what matters most.

use std::os::fd::AsFd;
use std::time::Duration;

use super::get_bytes;
use crate::error::{Result, SysError};

/// Where the C compiler puts the first bit field of a byte.
const FIRST_BIT: u8 = if cfg!(target_endian = "big") { 0x80 } else { 1 };

/// What TCP knows of one end of a connection. Counters run from its beginning. A
/// field that this kernel is too old to have is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpInfo {
    /// Where the connection is in its life.
    pub state: TcpState,
    /// Smoothed round trip time.
    pub rtt: Duration,
    /// Mean deviation of the round trip time.
    pub rtt_variance: Duration,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Slow start threshold, in segments; `i32::MAX` while there is none.
    pub slow_start_threshold: u32,
    /// Bytes of data in a full segment that is sent.
    pub send_mss: u32,
    /// Bytes of data in the largest segment received of late.
    pub receive_mss: u32,
    /// Bytes of the MTU of the path.
    pub path_mtu: u32,
    /// Segments sent and not acknowledged.
    pub unacknowledged: u32,
    /// Segments sent that are taken for lost and not yet sent again.
    pub lost: u32,
    /// Segments by which a packet may be late before it is taken for lost.
    pub reordering: u32,
    /// Segments that had to be sent again.
    pub retransmits: u32,
    /// Smallest round trip time of late (Linux 4.6).
    pub min_rtt: Option<Duration>,
    /// Bytes per second at which TCP spaces its segments (3.15); none while it doesn't.
    pub pacing_rate: Option<u64>,
    /// Bytes per second, from the rate at which data was acknowledged (4.9).
    pub delivery_rate: Option<u64>,
    /// Whether `delivery_rate` was held back by a sender with nothing to send, and
    /// so is no measure of the path (4.9).
    pub delivery_rate_app_limited: bool,
    /// Time with data to send (4.10).
    pub busy: Option<Duration>,
    /// Of `busy`, limited by the peer's receive window (4.10).
    pub receive_window_limited: Option<Duration>,
    /// Of `busy`, limited by our send buffer (4.10).
    pub send_buffer_limited: Option<Duration>,
    /// Segments that reached the peer (4.18).
    pub delivered: Option<u32>,
    /// Bytes of data sent, those sent again included (4.19).
    pub bytes_sent: Option<u64>,
    /// Bytes of data sent again (4.19).
    pub bytes_retransmitted: Option<u64>,
    /// Times that reordering was seen (4.19).
    pub reorderings: Option<u32>,
}

/// A state of RFC 9293, numbered as in the kernel's `net/tcp_states.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the RFC")]
pub enum TcpState {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    /// One that later kernels have.
    Unknown(u8),
}

/// Asks the kernel about a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> Result<TcpInfo> {
    let (operation, object) = ("read", "TCP_INFO of a socket");
    let mut buffer = [0_u8; 512];
    let filled = get_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut buffer)
        .map_err(|e| SysError::os(operation, object, e))?;
    TcpInfo::from_bytes(&buffer[..filled])
        .ok_or_else(|| SysError::malformed(operation, object, format!("{filled} bytes")))
}

impl TcpInfo {
    /// Offsets as of Linux 6.12. Nothing comes back if the structure ends before
    /// `tcpi_total_retrans`, which Linux 2.6 already had.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let info = Fields(bytes);
        Some(Self {
            state: TcpState::from_kernel(info.u8(0)?),
            send_mss: info.u32(16)?,
            receive_mss: info.u32(20)?,
            unacknowledged: info.u32(24)?,
            lost: info.u32(32)?,
            path_mtu: info.u32(60)?,
            rtt: micros(info.u32(68)?.into()),
            rtt_variance: micros(info.u32(72)?.into()),
            slow_start_threshold: info.u32(76)?,
            congestion_window: info.u32(80)?,
            reordering: info.u32(88)?,
            retransmits: info.u32(100)?,
            // All ones stands for "as fast as it will".
            pacing_rate: info.u64(104).filter(|rate| *rate != u64::MAX),
            // All ones until a first sample has been taken.
            min_rtt: info.u32(148).filter(|rtt| *rtt != u32::MAX).map(|rtt| micros(rtt.into())),
            delivery_rate: info.u64(160),
            // The first bit field behind the window scales; zero on kernels before 4.9.
            delivery_rate_app_limited: info.u8(7)? & FIRST_BIT != 0,
            busy: info.u64(168).map(micros),
            receive_window_limited: info.u64(176).map(micros),
            send_buffer_limited: info.u64(184).map(micros),
            delivered: info.u32(192),
            bytes_sent: info.u64(200),
            bytes_retransmitted: info.u64(208),
            reorderings: info.u32(220),
        })
    }
}

impl TcpState {
    fn from_kernel(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Closed,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            // A request socket of a listener: SYN received, to the outside.
            12 => Self::SynReceived,
            other => Self::Unknown(other),
        }
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u8(&self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..offset + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        let bytes = self.0.get(offset..offset + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::super::tests::LOOPBACK_MTU;
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_on_loopback_accounts_for_its_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        server.write_all(b"x").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();

        let info = tcp_info(&client).unwrap();
        assert_eq!(info.retransmits, 0);
        assert_eq!(info.state, TcpState::Established);
        // net.ipv4.tcp_reordering, 3 unless set, and never 0.
        assert!(info.reordering > 0 && info.reordering < 1000, "{info:?}");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(1), "{info:?}");
        assert!(info.congestion_window > 0 && info.send_mss > 500, "{info:?}");
        assert_eq!(info.path_mtu, LOOPBACK_MTU);
        if let Some(sent) = info.bytes_sent {
            assert_eq!(sent, 1000);
        }
    }

    #[test]
    fn the_end_of_a_connection_shows_in_its_state() {
        let (client, mut server) = super::super::tests::tcp_pair();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(tcp_info(&server).unwrap().state, TcpState::CloseWait);
        assert!(matches!(tcp_info(&client).unwrap().state, TcpState::FinWait1 | TcpState::FinWait2));
    }

    #[test]
    fn an_older_kernel_lacks_only_the_later_fields() {
        let mut bytes = vec![0; 104];
        bytes[100..104].copy_from_slice(&9_u32.to_ne_bytes());
        let info = TcpInfo::from_bytes(&bytes).unwrap();
        assert_eq!(info.retransmits, 9);
        assert_eq!((info.delivered, info.min_rtt, info.busy), (None, None, None));
        assert_eq!(TcpInfo::from_bytes(&bytes[..103]), None);
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_refused() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_info(&socket).unwrap_err().to_string().contains("TCP_INFO"));
    }

    proptest! {
        #[test]
        fn any_length_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(TcpInfo::from_bytes(&bytes).is_some(), bytes.len() >= 104);
        }
    }
}
