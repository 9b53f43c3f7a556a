//! Frames as a guest sends and receives them. This program attaches to a link of the guest, or of the server, with a
//! packet socket, because guests have no other program for that.

use std::{
    env, fs,
    io::{Error, ErrorKind, Write},
    mem::{size_of, size_of_val, zeroed},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// Set in the environment of this program to send or to listen: the name of the link. The arguments are the frames to
/// send.
pub(crate) const AT_LINK: &str = "VTAX_FRAMES";
/// First line of output of the listener.
pub(crate) const LISTENING: &str = "listening";

/// Experimental EtherType that no other program sends (IEEE 802, local experimental EtherType 1).
const ETHERTYPE: [u8; 2] = 0x88b5_u16.to_be_bytes();
const VLAN: [u8; 2] = 0x8100_u16.to_be_bytes();
const BROADCAST: [u8; 6] = [0xff; 6];
const HEADER: usize = 14;

/// A broadcast frame of a given size, which starts with the text and is padded with zeros.
#[derive(Debug, Clone)]
pub(crate) struct SentFrame {
    pub(crate) from: String,
    pub(crate) tag: Option<u16>,
    pub(crate) text: String,
    pub(crate) bytes: usize,
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeenFrame {
    /// VLAN number of the tag, if there is one.
    pub(crate) tag: Option<u16>,
    pub(crate) text: String,
    /// Length of the text with its padding: a NIC pads frames that are too short.
    pub(crate) bytes: usize,
}

impl SentFrame {
    pub(crate) fn new(from: &str, tag: Option<u16>, text: &str) -> SentFrame {
        SentFrame { from: from.to_owned(), tag, text: text.to_owned(), bytes: text.len() }
    }

    /// Formats the frame as an argument of this program.
    pub(crate) fn argument(&self) -> String {
        format!("{},{},{},{}", self.from, self.tag.unwrap_or(0), self.bytes, self.text)
    }

    fn parse(argument: &str) -> SentFrame {
        let [from, tag, bytes, text] = parts(argument, ',');
        let tag: u16 = tag.parse().expect("a tag");
        let bytes = bytes.parse().expect("a number");
        SentFrame { from: from.to_owned(), tag: (tag > 0).then_some(tag), text: text.to_owned(), bytes }
    }

    fn raw(&self) -> Vec<u8> {
        let octet = |text: &str| u8::from_str_radix(text, 16).expect("an octet");
        let from: Vec<u8> = self.from.split(':').map(octet).collect();
        let tag = self.tag.map(|vlan| [VLAN, vlan.to_be_bytes()].concat()).unwrap_or_default();
        let mut payload = self.text.clone().into_bytes();
        payload.resize(self.bytes, 0);
        [&BROADCAST[..], &from, &tag, &ETHERTYPE, &payload].concat()
    }
}

impl SeenFrame {
    /// Parses a received frame; `None` if another program sent it. The kernel has removed the tag before a socket sees
    /// the frame.
    fn of(tag: Option<u16>, frame: &[u8]) -> Option<SeenFrame> {
        let payload = frame.get(HEADER..).filter(|_| frame[12..HEADER] == ETHERTYPE)?;
        let text = String::from_utf8_lossy(payload);
        Some(SeenFrame { tag, text: text.trim_end_matches('\0').to_owned(), bytes: payload.len() })
    }

    fn line(&self) -> String {
        format!("{} {} {}", self.tag.unwrap_or(0), self.bytes, self.text)
    }

    /// Parses the listener's output.
    pub(crate) fn of_lines(lines: &str) -> Vec<SeenFrame> {
        let seen = lines.lines().filter(|line| *line != LISTENING).map(|line| {
            let [tag, bytes, text] = parts(line, ' ');
            let tag: u16 = tag.parse().unwrap_or_else(|_| panic!("no frame: {line}"));
            SeenFrame { tag: (tag > 0).then_some(tag), text: text.to_owned(), bytes: bytes.parse().expect("a number") }
        });
        let mut seen: Vec<SeenFrame> = seen.collect();
        seen.sort();
        seen
    }
}

/// Splits a text. The last part may contain the separator.
fn parts<const N: usize>(text: &str, separator: char) -> [&str; N] {
    let parts: Vec<&str> = text.splitn(N, separator).collect();
    parts.try_into().unwrap_or_else(|_| panic!("not in {N} parts: {text}"))
}

/// Sends the frames of the arguments on the link. Without arguments, it listens until it is killed.
pub(crate) fn at(link: &str) {
    let socket = PacketSocket::open(link).unwrap_or_else(|error| panic!("{link}: {error}"));
    let frames: Vec<SentFrame> = env::args().skip(1).map(|argument| SentFrame::parse(&argument)).collect();
    for frame in &frames {
        let written = rustix::io::write(&socket.0, &frame.raw());
        written.unwrap_or_else(|error| panic!("{frame:?} can't be sent: {error}"));
    }
    if frames.is_empty() {
        listen(&socket);
    }
}

fn listen(socket: &PacketSocket) {
    let mut out = std::io::stdout();
    writeln!(out, "{LISTENING}").expect("it is written");
    loop {
        let (tag, frame) = socket.receive().expect("a frame");
        if let Some(seen) = SeenFrame::of(tag, &frame) {
            writeln!(out, "{}", seen.line()).expect("it is written");
        }
    }
}

/// A socket that receives all frames of a link, whatever their destination, but not those that the link sends.
struct PacketSocket(OwnedFd);

impl PacketSocket {
    fn open(link: &str) -> Result<PacketSocket, Error> {
        let index = fs::read_to_string(format!("/sys/class/net/{link}/ifindex"))?;
        let index: i32 = index.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        // SAFETY: the call takes no pointer.
        let made = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let made = checked(made as isize)?;
        // SAFETY: the descriptor is new, and has no other owner.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(made as i32) });
        socket.set(libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        socket.set(libc::PACKET_AUXDATA, &1_i32)?;
        let [mr_type, mr_alen] = [libc::PACKET_MR_PROMISC as u16, 0];
        let all = libc::packet_mreq { mr_ifindex: index, mr_type, mr_alen, mr_address: [0; 8] };
        socket.set(libc::PACKET_ADD_MEMBERSHIP, &all)?;
        // SAFETY: all zeros are a valid address, of no link.
        let mut at: libc::sockaddr_ll = unsafe { zeroed() };
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        at.sll_ifindex = index;
        let length = size_of_val(&at) as libc::socklen_t;
        // SAFETY: the length is that of the address, which outlives the call.
        let bound = unsafe { libc::bind(socket.0.as_raw_fd(), (&raw const at).cast(), length) };
        checked(bound as isize)?;
        Ok(socket)
    }

    fn set<T>(&self, option: i32, value: &T) -> Result<(), Error> {
        let length = size_of::<T>() as libc::socklen_t;
        let fd = self.0.as_raw_fd();
        // SAFETY: the length is that of the value, which outlives the call.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const *value).cast(), length) };
        checked(set as isize).map(drop)
    }

    /// Returns the VLAN number in the tag of the next frame, and the frame without the tag.
    fn receive(&self) -> Result<(Option<u16>, Vec<u8>), Error> {
        let mut frame = vec![0_u8; 1 << 16];
        let mut control = [0_u64; 16];
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: all zeros are a message without parts.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message points to buffers that outlive the call, and has their lengths.
        let length = checked(unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) })?;
        frame.truncate(length as usize);
        Ok((tag_of(&message), frame))
    }
}

/// Returns the VLAN number of the removed tag, as the kernel reports it (packet(7)).
fn tag_of(message: &libc::msghdr) -> Option<u16> {
    // SAFETY: recvmsg(2) has filled in the control messages, and their buffer is still alive.
    let auxiliary = unsafe {
        let first = libc::CMSG_FIRSTHDR(message).as_ref()?;
        let is_ours = first.cmsg_level == libc::SOL_PACKET && first.cmsg_type == libc::PACKET_AUXDATA;
        is_ours.then(|| libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>().read_unaligned())?
    };
    let has_tag = auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    has_tag.then_some(auxiliary.tp_vlan_tci & 0xfff)
}

fn checked(returned: isize) -> Result<isize, Error> {
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(returned) }
}
