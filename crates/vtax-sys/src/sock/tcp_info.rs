//! TCP's information about a connection: `struct tcp_info` of `linux/tcp.h`.
//!
//! New kernels add fields only at the structure's end, and the kernel reports how many bytes it wrote. So fields are
//! read by their offsets.

use std::os::fd::AsFd;

use super::get_bytes;
use crate::error::{Result, SysError};

/// TCP's information about one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// Slow start threshold, in segments; `i32::MAX` while there is none.
    pub slow_start_threshold: u32,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// Bytes of the TCP header of a segment without selective acknowledgements: those of the header itself, and of
    /// the timestamp option if both ends agreed on it (RFC 9293, RFC 7323).
    pub header: u32,
    /// Segments and bytes sent. None before Linux 4.2.
    pub sent: Option<TcpTraffic>,
    /// Segments and bytes received. None before Linux 4.2.
    pub received: Option<TcpTraffic>,
}

/// One direction of a connection since it began.
///
/// The kernel counts segments as they are on a wire: one that is segmented later, by the kernel or the NIC (TSO, GSO),
/// counts as the segments that it becomes (`tcp_skb_pcount()`), and one that was joined on arrival (GRO) as those that
/// it was made of. There is one exception on arrival: a segment that a host passes to its guest in one piece counts
/// once, because the number of parts isn't passed to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpTraffic {
    /// Segments, acknowledgements and retransmissions included. Wraps to 0 after `u32::MAX`.
    pub segments: u32,
    /// Segments with data; wraps likewise. None before Linux 4.6.
    pub data_segments: Option<u32>,
    /// Bytes of payload: sent, with retransmissions (none before Linux 4.19); received, each byte once.
    pub bytes: Option<u64>,
}

/// Queries the kernel about a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> Result<TcpInfo> {
    let (operation, object) = ("read", "TCP_INFO of a socket");
    let mut buffer = [0_u8; 512];
    let filled = get_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut buffer)
        .map_err(|e| SysError::os(operation, object, e))?;
    TcpInfo::from_bytes(&buffer[..filled])
        .ok_or_else(|| SysError::malformed(operation, object, format!("{filled} bytes")))
}

impl TcpInfo {
    /// Parses the structure. None if it ends before `tcpi_total_retrans`, which Linux 2.6 already had.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let number = |offset: usize| Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
        let long = |offset: usize| Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
        let traffic = |segments, data_segments, bytes| {
            Some(TcpTraffic { segments: number(segments)?, data_segments: number(data_segments), bytes: long(bytes) })
        };
        Some(Self {
            slow_start_threshold: number(76)?,
            congestion_window: number(80)?,
            retransmits: number(100)?,
            header: header(*bytes.get(5)?),
            sent: traffic(136, 156, 200),
            received: traffic(140, 152, 128),
        })
    }
}

/// Returns the length of a TCP header with these options of `tcpi_options`. The timestamp option has 10 bytes and is
/// padded to 12.
fn header(options: u8) -> u32 {
    const TIMESTAMPS: u8 = 1;
    if options & TIMESTAMPS == 0 { 20 } else { 32 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tcp_pair;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fresh_connection_has_a_window_and_sent_nothing_again() {
        let (client, _server) = tcp_pair();
        let info = tcp_info(&client).unwrap();
        assert!(info.congestion_window > 0 && info.slow_start_threshold > info.congestion_window, "{info:?}");
        assert_eq!(info.retransmits, 0);
    }

    #[test]
    fn the_structure_of_an_old_kernel_is_long_enough() {
        let mut bytes = vec![0; 104];
        bytes[100..104].copy_from_slice(&9_u32.to_ne_bytes());
        assert_eq!(TcpInfo::from_bytes(&bytes).unwrap().retransmits, 9);
        assert_eq!(TcpInfo::from_bytes(&bytes[..103]), None);
    }

    #[test]
    fn each_counter_is_present_since_the_kernel_that_introduced_it() {
        let mut bytes = [0; 208];
        for (offset, value) in [(136, 7_u32), (140, 8), (152, 5), (156, 6)] {
            bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[128..136].copy_from_slice(&900_u64.to_ne_bytes());
        bytes[200..208].copy_from_slice(&u64::MAX.to_ne_bytes());
        let of = |length: usize| TcpInfo::from_bytes(&bytes[..length]).unwrap();
        let traffic = |segments, data_segments, bytes| Some(TcpTraffic { segments, data_segments, bytes });
        assert_eq!(
            (of(208).sent, of(208).received),
            (traffic(7, Some(6), Some(u64::MAX)), traffic(8, Some(5), Some(900)))
        );
        assert_eq!((of(160).sent, of(152).sent), (traffic(7, Some(6), None), traffic(7, None, None)));
        assert_eq!((of(139).sent, of(143).received), (None, None));
    }

    #[test]
    fn a_message_and_its_acknowledgement_are_counted() {
        let (mut client, mut server) = tcp_pair();
        let before = tcp_info(&client).unwrap();
        std::io::Write::write_all(&mut client, &[7; 300]).unwrap();
        std::io::Read::read_exact(&mut server, &mut [0; 300]).unwrap();
        let (sent, received) = (tcp_info(&client).unwrap().sent.unwrap(), tcp_info(&server).unwrap().received.unwrap());
        let since = before.sent.unwrap();
        assert_eq!(sent.bytes.unwrap() - since.bytes.unwrap(), 300);
        assert_eq!(sent.data_segments.unwrap() - since.data_segments.unwrap(), 1);
        assert_eq!((received.bytes, received.data_segments), (Some(300), Some(1)));
        assert!(received.segments > 1 && sent.segments >= received.segments, "the handshake counts: {received:?}");
        assert_eq!(before.header, 32, "both ends agree on timestamps by default");
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
