//! State reported by the congestion control BBR (`TCP_CC_INFO`). A stream is steady only after BBR's startup, and the
//! congestion window alone doesn't show when that ends.

use std::os::fd::AsFd;

use super::{congestion_control, get_bytes};
use crate::error::{Result, SysError};

/// A pacing gain of 2 in the kernel's format, with eight bits after the binary point (`BBR_UNIT`). The gain is 2.89 in
/// the startup (`bbr_high_gain` of `net/ipv4/tcp_bbr.c`), 2.77 in the startup of versions 2 and 3, and at most 1.25
/// later.
const STARTUP_GAIN: u32 = 2 << 8;

/// Returns whether BBR is still in its startup on this TCP socket. In the startup it doubles its rate every round trip
/// until that yields no more bandwidth. None if the socket uses another congestion control.
pub fn bbr_starts_up(socket: impl AsFd) -> Result<Option<bool>> {
    let (operation, object) = ("read", "TCP_CC_INFO of a socket");
    let socket = socket.as_fd();
    // Vegas and DCTCP return their own structures, which look the same.
    if !congestion_control(socket)?.starts_with("bbr") {
        return Ok(None);
    }
    let mut info = [0; 64];
    let filled = get_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CC_INFO, &mut info)
        .map_err(|e| SysError::os(operation, object, e))?;
    let starts_up = starts_up(&info[..filled]);
    starts_up.map(Some).ok_or_else(|| SysError::malformed(operation, object, format!("{filled} bytes")))
}

/// Parses `struct tcp_bbr_info` of `linux/inet_diag.h`. The gain is 1 before the first sample of the bandwidth.
fn starts_up(info: &[u8]) -> Option<bool> {
    let (words, _) = info.as_chunks::<4>().0.split_first_chunk::<5>()?;
    let [low, high, _, pacing_gain, _] = words.map(u32::from_ne_bytes);
    Some((low, high) == (0, 0) || pacing_gain >= STARTUP_GAIN)
}

#[cfg(test)]
mod tests {
    use super::super::{set_congestion_control, tests::tcp_pair};
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn reno_tells_nothing_of_bbr() {
        let (client, _server) = tcp_pair();
        set_congestion_control(&client, "reno").unwrap();
        assert_eq!(bbr_starts_up(&client).unwrap(), None);
    }

    /// Requires BBR, which not every kernel has; the next test tries the parser on any kernel.
    #[test]
    fn a_fresh_connection_with_bbr_is_in_its_startup() {
        let (mut client, mut server) = tcp_pair();
        if set_congestion_control(&client, "bbr").is_err() {
            return;
        }
        assert_eq!(bbr_starts_up(&client).unwrap(), Some(true));
        client.write_all(&[0; 100]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        server.write_all(&[0]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert_eq!(bbr_starts_up(&client).unwrap(), Some(true));
    }

    #[test]
    fn the_startup_is_known_by_its_gain() {
        let read = |low: u32, gain: u32| starts_up([low, 0, u32::MAX, gain, 512].map(u32::to_ne_bytes).as_flattened());
        assert_eq!((read(5, 739), read(5, 709)), (Some(true), Some(true)));
        for later in [88, 192, 230, 256, 320] {
            assert_eq!(read(5, later), Some(false));
        }
        assert_eq!(read(0, 256), Some(true), "no sample yet");
        assert_eq!(starts_up(&[0; 19]), None);
    }
}
