//! TCP's information about a connection: `struct tcp_info` of `linux/tcp.h`.
//!
//! New kernels add fields only at the structure's end, and the kernel reports how many bytes it wrote. So
//! fields are read by their offsets.

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
        Some(Self { slow_start_threshold: number(76)?, congestion_window: number(80)?, retransmits: number(100)? })
    }
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
