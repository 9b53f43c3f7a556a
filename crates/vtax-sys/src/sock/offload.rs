//! Segmentation and coalescing of UDP datagrams: one call, and one pass through the stack, for up to 64 KiB of them
//! (`UDP_SEGMENT`, Linux 4.18, and `UDP_GRO`, 5.0; udp(7)).

use std::io;
use std::os::fd::AsFd;

use rustix::net::RecvFlags;

use super::message::{self, ControlMessages};
use super::{set_bytes, set_int};
use crate::error::{Result, SysError};

/// Result of one receive call: datagrams of `segment` bytes, one after another. The last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmented {
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Bytes of each datagram; equal to `bytes` if there is only one.
    pub segment: usize,
}

/// Makes the kernel or the network card split the data of one send into datagrams of this many bytes. The last one may
/// be shorter. 0 disables it. The kernel allows at least 64 of them in a call (`UDP_MAX_SEGMENTS`), and no more than
/// 65,507 bytes.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.18. A *send* fails with `EINVAL` if a segment exceeds the path's MTU or there are too
/// many, and with `EIO` if the device doesn't support checksums.
pub fn set_udp_segment(socket: impl AsFd, bytes: u16) -> Result<()> {
    set_int(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
        .map_err(|e| SysError::os("set option", "UDP_SEGMENT of a socket", e))
}

/// Lets one call receive several datagrams of a flow that arrived together. Afterwards, only [`receive_segmented`]
/// reports where each one begins.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0.
pub fn set_udp_gro(socket: impl AsFd, on: bool) -> Result<()> {
    set_bytes(socket, libc::SOL_UDP, libc::UDP_GRO, &libc::c_int::from(on).to_ne_bytes())
        .map_err(|e| SysError::os("set option", "UDP_GRO of a socket", e))
}

/// Receives one datagram, or several that were coalesced. Bytes that don't fit the buffer are lost; 64 KiB are always
/// enough.
#[inline]
pub fn receive_segmented(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Segmented> {
    let mut control = ControlMessages::new();
    let bytes = message::receive(socket, buffer, &mut control, flags.bits() as libc::c_int)?;
    let segment = control
        .entries()
        .filter(|entry| (entry.level, entry.kind) == (libc::SOL_UDP, libc::UDP_GRO))
        .find_map(|entry| Some(libc::c_int::from_ne_bytes(*entry.data.first_chunk()?)));
    let segment = segment.and_then(|segment| usize::try_from(segment).ok()).filter(|segment| *segment > 0);
    Ok(Segmented { bytes, segment: segment.map_or(bytes, |segment| segment.min(bytes)) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::udp_pair;
    use super::*;

    const SEGMENT: usize = 1000;

    /// Returns nine whole segments and a short one, each filled with its number.
    fn payload() -> Vec<u8> {
        (0..9 * SEGMENT + 500).map(|at| (at / SEGMENT) as u8).collect()
    }

    #[test]
    fn ten_segments_arrive_as_one_with_gro() {
        let (sender, receiver) = udp_pair();
        set_udp_segment(&sender, SEGMENT as u16).unwrap();
        set_udp_gro(&receiver, true).unwrap();
        assert_eq!(sender.send(&payload()).unwrap(), payload().len());
        let mut buffer = vec![0; 65536];
        let got = receive_segmented(&receiver, &mut buffer, RecvFlags::empty()).unwrap();
        assert_eq!(got, Segmented { bytes: payload().len(), segment: SEGMENT });
        assert_eq!(&buffer[..got.bytes], payload());
    }

    #[test]
    fn ten_segments_arrive_as_ten_without_gro() {
        let (sender, receiver) = udp_pair();
        set_udp_segment(&sender, SEGMENT as u16).unwrap();
        assert_eq!(sender.send(&payload()).unwrap(), payload().len());
        let mut buffer = vec![0; 65536];
        for expected in payload().chunks(SEGMENT) {
            let got = receive_segmented(&receiver, &mut buffer, RecvFlags::empty()).unwrap();
            assert_eq!(got, Segmented { bytes: expected.len(), segment: expected.len() });
            assert_eq!(&buffer[..got.bytes], expected);
        }
        let empty = receive_segmented(&receiver, &mut buffer, RecvFlags::DONTWAIT).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn both_can_be_switched_off_again() {
        let (sender, receiver) = udp_pair();
        set_udp_segment(&sender, 10).unwrap();
        set_udp_segment(&sender, 0).unwrap();
        set_udp_gro(&receiver, true).unwrap();
        set_udp_gro(&receiver, false).unwrap();
        sender.send(&[7; 40]).unwrap();
        let got = receive_segmented(&receiver, &mut [0; 100], RecvFlags::empty()).unwrap();
        assert_eq!(got, Segmented { bytes: 40, segment: 40 });
    }

    #[test]
    fn an_empty_datagram_is_a_datagram() {
        let (sender, receiver) = udp_pair();
        sender.send(&[]).unwrap();
        let got = receive_segmented(&receiver, &mut [0; 100], RecvFlags::empty()).unwrap();
        assert_eq!(got.bytes, 0);
    }
}
