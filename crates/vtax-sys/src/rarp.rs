//! Announcements of addresses to the switches of a network: RARP requests, as QEMU sends them for a guest that has
//! moved (`net/announce.c`).
//!
//! A switch learns the port of an address from the sender of each frame, so any broadcast would do. Hosts ignore this
//! one: a reverse request (RFC 903) requests the protocol address of a hardware address, and no host answers it today.

use std::mem::size_of;

use rustix::io::Errno;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use vtax_model::vf::Vlan;

use crate::error::{Result, SysError};
use crate::netlink::{IfIndex, MacAddr};
use crate::netns::NetNs;

const BROADCAST: [u8; 6] = [0xff; 6];
/// The shortest Ethernet frame without its checksum.
const SHORTEST: usize = 60;
/// Length of an IEEE 802.1Q tag.
const TAG: usize = 4;
/// RFC 903: Ethernet addresses of 6 bytes, IPv4 addresses of 4, operation 3 (request reverse).
const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];
const NO_ADDRESS: [u8; 4] = [0; 4];

/// Announcement of one address in one VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAnnouncement {
    pub mac: MacAddr,
    /// VLAN of the tag; none for an untagged frame.
    pub tag: Option<Vlan>,
}

impl MacAnnouncement {
    /// Returns the frame: sender and target are the address itself, and both protocol addresses are 0.0.0.0.
    pub fn frame(&self) -> Vec<u8> {
        let mac = &self.mac.0;
        let mut frame = [BROADCAST, *mac].concat();
        if let Some(tag) = self.tag {
            frame.extend((libc::ETH_P_8021Q as u16).to_be_bytes());
            frame.extend(tag.get().to_be_bytes());
        }
        frame.extend((libc::ETH_P_RARP as u16).to_be_bytes());
        frame.extend([REQUEST.as_slice(), mac, &NO_ADDRESS, mac, &NO_ADDRESS].concat());
        frame.resize(SHORTEST + self.tag.map_or(0, |_| TAG), 0);
        frame
    }
}

/// A link on which whole frames are sent, from any address. It receives nothing.
#[derive(Debug)]
pub struct FrameSender {
    socket: Socket,
    link: IfIndex,
}

impl FrameSender {
    /// Opens a link of a namespace.
    ///
    /// # Errors
    /// [`SysError::NotPermitted`] without `CAP_NET_RAW`; `EAFNOSUPPORT` if the kernel has no packet sockets
    /// (`CONFIG_PACKET`).
    pub fn open_in(namespace: &NetNs, link: IfIndex) -> Result<Self> {
        // Protocol 0: no frame is received.
        let opened = namespace.run(|| Socket::new(Domain::PACKET, Type::RAW, None))?;
        let ready = opened.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        let socket =
            ready.map_err(|e| SysError::os("open", format_args!("a packet socket on link number {link}"), e))?;
        Ok(Self { socket, link })
    }

    /// Sends a frame, which begins with its destination and its source address. It doesn't wait for room in the link's
    /// queue.
    ///
    /// # Errors
    /// `ENETDOWN` if the link is down; `ENOBUFS` if its queue is full; `ENXIO` or `ENODEV` if it no longer exists.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        let to = address(self.link);
        let sent = loop {
            match self.socket.send_to(frame, &to) {
                Err(e) if Errno::from_io_error(&e) == Some(Errno::INTR) => {}
                sent => break sent,
            }
        };
        sent.map(drop).map_err(|e| SysError::os("send", format_args!("a frame on link number {}", self.link), e))
    }
}

/// Returns the address of a link, packet(7). The kernel takes the destination from the frame.
fn address(link: IfIndex) -> SockAddr {
    // SAFETY: zeros are a valid address, of no link.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = link.0.cast_signed();
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is one of the kinds of address for which the storage has room.
    unsafe { *storage.view_as::<libc::sockaddr_ll>() = address };
    // SAFETY: the storage holds an address of this length, of the family that it names.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 0, 0x5e, 0x10, 0, 1]);

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes of `announce_self_create` in QEMU's `net/announce.c`.
    #[test]
    fn an_untagged_frame_is_the_one_of_qemu() {
        let frame = MacAnnouncement { mac: MAC, tag: None }.frame();
        let header = "ffffffffffff02005e10000180350001080006040003";
        let addresses = "02005e1000010000000002005e10000100000000";
        assert_eq!(hex(&frame), format!("{header}{addresses}{}", "00".repeat(18)));
    }

    proptest! {
        #[test]
        fn a_tag_is_all_that_differs(octets: [u8; 6], number in 1..=4094_u16) {
            let (mac, tag) = (MacAddr(octets), Vlan::try_from(i64::from(number)).unwrap());
            let [plain, tagged] = [None, Some(tag)].map(|tag| MacAnnouncement { mac, tag }.frame());
            prop_assert_eq!(&tagged[..12], &plain[..12]);
            prop_assert_eq!(&tagged[12..14], &[0x81, 0]);
            prop_assert_eq!(&tagged[14..16], &number.to_be_bytes());
            prop_assert_eq!(&tagged[16..], &plain[12..]);
        }
    }
}
