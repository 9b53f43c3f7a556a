//! Ports of virtual switches, with this test in place of their guests: it writes and reads their frames.

use std::{
    fs::File,
    io::Write,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vtax_sys::{
    netlink::{IfIndex, IfName, LinkChange, MacAddr, NewTap, Rtnl, open_tap},
    netns::NetNs,
    sysctl,
};

/// Experimental EtherType that no other program sends (IEEE 802, local experimental EtherType 1).
const ETHERTYPE: [u8; 2] = 0x88b5_u16.to_be_bytes();
const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();
const VLAN: [u8; 2] = 0x8100_u16.to_be_bytes();
const RARP: [u8; 2] = 0x8035_u16.to_be_bytes();
/// Length of the virtio-net header that precedes each frame.
const VNET_HEADER: usize = 10;
/// Time without a frame after which no more are expected.
const SILENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Time limit of the wait for an expected frame. It ends a hang, and is not a limit on speed.
const HANGS: Duration = Duration::from_secs(120);
const BROADCAST: MacAddr = MacAddr([0xff; 6]);

/// A tap that is a port of a bridge, enabled.
pub(crate) struct Port {
    pub(crate) name: IfName,
    pub(crate) index: IfIndex,
    queue: File,
}

/// A frame as a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frame {
    /// VLAN number of the tag, if there is one.
    pub(crate) tag: Option<u16>,
    pub(crate) text: String,
}

/// Returns a namespace whose links send nothing by themselves. With IPv6, they would send messages to their neighbours.
pub(crate) fn silent() -> NetNs {
    let ns = NetNs::scratch().expect("these tests need root");
    match sysctl::write(&ns, &"net.ipv6.conf.default.disable_ipv6".parse().unwrap(), "1") {
        Err(error) if !error.is_missing() => panic!("{error}"),
        _ => ns,
    }
}

impl Port {
    pub(crate) fn of(ns: &NetNs, bridge: IfIndex, name: &str, mtu: u32) -> Port {
        let name: IfName = name.parse().unwrap();
        NewTap { name: name.clone(), multi_queue: false }.create_in(ns).unwrap();
        let queue: OwnedFd = open_tap(ns, &name, 1).unwrap().pop().unwrap();
        let mut rtnl = Rtnl::open_in(ns).unwrap();
        let change = LinkChange { up: Some(true), mtu: Some(mtu), master: Some(Some(bridge)), ..LinkChange::default() };
        rtnl.set_link(&name, &change).unwrap();
        let index = rtnl.existing_link(&name).unwrap().index;
        Port { name, index, queue: queue.into() }
    }

    /// Sends a broadcast frame, with a tag if given.
    pub(crate) fn broadcast(&self, from: MacAddr, tag: Option<u16>, text: &str) {
        self.send(BROADCAST, from, tag, text.as_bytes());
    }

    pub(crate) fn send(&self, to: MacAddr, from: MacAddr, tag: Option<u16>, payload: &[u8]) {
        let tag = tag.map(|vlan| [VLAN, vlan.to_be_bytes()].concat()).unwrap_or_default();
        let parts = [&[0; VNET_HEADER][..], &to.0, &from.0, &tag, &ETHERTYPE, payload];
        (&self.queue).write_all(&parts.concat()).unwrap();
    }

    /// Returns the frames received, until none arrives for this long.
    pub(crate) fn received(&self, silence: Timespec) -> Vec<Frame> {
        self.read(0, silence, Frame::read)
    }

    /// Returns the datagrams that the host sent.
    pub(crate) fn datagrams(&self, silence: Timespec) -> Vec<Frame> {
        self.read(0, silence, Frame::read_datagram)
    }

    /// Returns the announcements of addresses, at least this many: the sender of each, and the VLAN number in its tag.
    pub(crate) fn announced(&self, expected: usize) -> Vec<(MacAddr, Option<u16>)> {
        self.read(expected, SILENCE, announcement)
    }

    /// Reads the frames that have arrived, until there are as many as expected and none follows for `silence`.
    fn read<T: Ord>(&self, expected: usize, silence: Timespec, read: fn(&[u8]) -> Option<T>) -> Vec<T> {
        let (mut frames, begun) = (Vec::new(), Instant::now());
        loop {
            let mut ready = [PollFd::new(&self.queue, PollFlags::IN)];
            if poll(&mut ready, Some(&silence)).unwrap() == 1 {
                let mut bytes = [0; 10_000];
                let length = rustix::io::read(&self.queue, &mut bytes).unwrap();
                frames.extend(read(&bytes[VNET_HEADER..length]));
            } else if frames.len() >= expected || begun.elapsed() > HANGS {
                frames.sort();
                return frames;
            }
        }
    }

    /// Returns the texts of the received frames, at least this many.
    pub(crate) fn texts(&self, expected: usize) -> Vec<String> {
        self.read(expected, SILENCE, Frame::read).into_iter().map(|frame| frame.text).collect()
    }

    /// Fails unless exactly these texts were received.
    #[track_caller]
    pub(crate) fn expect(&self, texts: &[&str]) {
        assert_eq!(self.texts(texts.len()), texts);
    }
}

impl Frame {
    /// Returns `None` if another program sent the frame.
    fn read(bytes: &[u8]) -> Option<Frame> {
        let (tag, rest) = untagged(bytes)?;
        Some(Frame::new(tag, rest.strip_prefix(&ETHERTYPE)?))
    }

    /// Returns `None` unless the frame is UDP over IPv4.
    fn read_datagram(bytes: &[u8]) -> Option<Frame> {
        const UDP: u8 = 17;
        let (tag, rest) = untagged(bytes)?;
        let packet = rest.strip_prefix(&IPV4)?;
        (*packet.get(9)? == UDP).then(|| packet.get(28..)).flatten().map(|text| Frame::new(tag, text))
    }

    fn new(tag: Option<u16>, text: &[u8]) -> Frame {
        Frame { tag, text: String::from_utf8_lossy(text).into_owned() }
    }
}

/// Returns `None` unless the frame is an announcement.
fn announcement(bytes: &[u8]) -> Option<(MacAddr, Option<u16>)> {
    let (tag, rest) = untagged(bytes)?;
    let sender = bytes.get(6..12)?.try_into().ok()?;
    rest.starts_with(&RARP).then_some((MacAddr(sender), tag))
}

/// Returns the VLAN number in the tag, and the part of the frame after addresses and tag.
fn untagged(bytes: &[u8]) -> Option<(Option<u16>, &[u8])> {
    Some(match bytes.get(12..)? {
        [a, b, high, low, rest @ ..] if [*a, *b] == VLAN => (Some(u16::from_be_bytes([*high, *low]) & 0xfff), rest),
        rest => (None, rest),
    })
}
