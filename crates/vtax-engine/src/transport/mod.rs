//! What the workloads need of a transport, and the handshakes that come before.
//!
//! TCP: the initiator connects and shows the token and the flow's index; when all flows have done
//! so, the responder's threads answer each with one byte. UDP: the same with datagrams, repeated
//! until they are answered. Nobody else is ever sent anything.

pub(crate) mod tcp;
pub(crate) mod udp;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, Timespec, poll},
    io::Errno,
};
use socket2::{Domain, Protocol, Socket, Type};
use vtax_model::{
    units::ByteSize,
    workload::{Transport, Workload},
};
use vtax_sys::sock::path_mtu;

use crate::{
    cancel::{Cancel, interrupt},
    error::EngineError,
    token::{TOKEN_LEN, Token},
};

/// How long a responder waits for all its flows.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(10);

/// How long an initiator waits to be admitted: the responder's patience and a little more, so
/// that the end that knows more about the cause gives up first.
pub(crate) const ADMISSION: Duration = Duration::from_secs(12);

/// Waits before the test wake this often to look at [`Cancel`]; they are not on the measured path.
const TICK: Duration = Duration::from_millis(50);

/// One connection or pair of UDP sockets, admitted by the responder or about to be.
pub(crate) struct Flow {
    pub(crate) index: u32,
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) token: Token,
    cancel: Cancel,
    /// Set when the test is over before this flow is; calls return at once from then on.
    stopped: AtomicBool,
}

impl Flow {
    pub(crate) fn new(
        index: u32,
        socket: Socket,
        peer: SocketAddr,
        transport: Transport,
        token: Token,
        cancel: &Cancel,
    ) -> Flow {
        let socket = Arc::new(socket);
        cancel.watch(&socket);
        Flow { index, socket, peer, transport, token, cancel: cancel.clone(), stopped: AtomicBool::new(false) }
    }

    /// Wakes the flow's thread for good: the test has failed elsewhere.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        interrupt(&self.socket);
    }

    /// Names an error of this flow's socket after the handshake. `waited` is the timeout that was
    /// set on the socket, which EAGAIN stands for.
    #[cold]
    pub(crate) fn failed(&self, operation: &'static str, errno: Errno, waited: Duration) -> EngineError {
        let peer = self.peer;
        match errno {
            Errno::CONNRESET | Errno::PIPE | Errno::CONNREFUSED => {
                EngineError::PeerGone { peer, operation, cause: io::Error::from(errno).to_string() }
            }
            // ETIMEDOUT: keepalive probes, or data that was sent again and again, went unanswered.
            Errno::AGAIN | Errno::TIMEDOUT => EngineError::PeerSilent { peer, operation, waited },
            _ => EngineError::socket(operation, peer, errno.into()),
        }
    }

    /// The other end has closed its side.
    #[cold]
    pub(crate) fn ended(&self, operation: &'static str) -> EngineError {
        EngineError::PeerGone { peer: self.peer, operation, cause: "end of the connection".to_owned() }
    }

    pub(crate) fn option(&self, operation: &'static str, result: io::Result<()>) -> Result<(), EngineError> {
        result.map_err(|error| EngineError::socket(operation, self.peer, error))
    }

    /// A timeout for this flow's blocking calls, each of which then fails with EAGAIN.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> Result<(), EngineError> {
        self.option("SO_RCVTIMEO", self.socket.set_read_timeout(Some(timeout)))?;
        self.option("SO_SNDTIMEO", self.socket.set_write_timeout(Some(timeout)))
    }

    /// Refuses a message whose packets the path would have to cut.
    pub(crate) fn check_fits(&self, what: &'static str, size: ByteSize) -> Result<(), EngineError> {
        let mtu = path_mtu(&*self.socket)?;
        if size.0 + self.headers() > u64::from(mtu) {
            return Err(self.oversize(what, size, mtu));
        }
        Ok(())
    }

    /// EMSGSIZE: the path's MTU has become smaller than the message.
    #[cold]
    pub(crate) fn too_large(&self, what: &'static str, size: ByteSize) -> EngineError {
        match self.check_fits(what, size) {
            Err(error) => error,
            Ok(()) => EngineError::socket("send", self.peer, Errno::MSGSIZE.into()),
        }
    }

    fn oversize(&self, what: &'static str, size: ByteSize, mtu: u32) -> EngineError {
        EngineError::Oversize {
            what,
            size,
            packet: size.0 + self.headers(),
            peer: self.peer,
            mtu,
            most: ByteSize(u64::from(mtu).saturating_sub(self.headers())),
        }
    }

    /// Bytes of the IP header without options, and of the UDP header.
    fn headers(&self) -> u64 {
        if self.peer.is_ipv4() { 28 } else { 48 }
    }

    /// Whether the socket was interrupted, here or by [`Cancel`].
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.cancel.is_cancelled()
    }
}

/// Where a request asks the responder to read its counters, so that the windows of the two ends
/// hold the same transactions without a clock at the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A request like any other.
    None = 0,
    /// The measured time begins after this transaction.
    Open = 1,
    /// It has ended; so does the flow.
    Close = 2,
}

const MARK_BITS: u32 = 2;

/// The first bytes of each request: its sequence number and its [`Mark`], little endian, cut to
/// the size of the request. One byte leaves six bits of the sequence number: enough, since an
/// answer would have to be late by 64 timeouts to be taken for a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    pub(crate) const LEN: usize = 8;

    #[inline]
    pub(crate) fn new(sequence: u64, mark: Mark) -> Stamp {
        Stamp(sequence << MARK_BITS | mark as u64)
    }

    #[inline]
    pub(crate) fn write(self, message: &mut [u8]) {
        let len = message.len().min(Stamp::LEN);
        message[..len].copy_from_slice(&self.0.to_le_bytes()[..len]);
    }

    /// Whether `message` starts with this stamp, as far as both have room.
    #[inline]
    pub(crate) fn leads(self, message: &[u8]) -> bool {
        let len = message.len().min(Stamp::LEN);
        message[..len] == self.0.to_le_bytes()[..len]
    }

    #[inline]
    pub(crate) fn mark_of(message: &[u8]) -> Option<Mark> {
        match message[0] & ((1 << MARK_BITS) - 1) {
            0 => Some(Mark::None),
            1 => Some(Mark::Open),
            2 => Some(Mark::Close),
            _ => None,
        }
    }
}

/// The token's place in a datagram: behind the sequence number, if the message has room.
const TOKEN_PLACE: std::ops::Range<usize> = Stamp::LEN..Stamp::LEN + TOKEN_LEN;

/// Puts the token into a datagram that has room for it.
pub(crate) fn place_token(message: &mut [u8], token: &Token) {
    if let Some(place) = message.get_mut(TOKEN_PLACE) {
        place.copy_from_slice(token.bytes());
    }
}

/// Whether a datagram shows the token, or is too short to.
#[inline]
pub(crate) fn shows_token(message: &[u8], token: &Token) -> bool {
    message.get(TOKEN_PLACE).is_none_or(|shown| token.is(shown))
}

/// Tells the initiator that all flows are there and that this one's thread runs.
pub(crate) fn say_ready(flow: &Flow) -> Result<(), EngineError> {
    match flow.transport {
        Transport::Tcp => tcp::say_ready(flow),
        Transport::Udp => udp::say_ready(flow),
    }
}

pub(crate) fn new_socket(address: IpAddr, transport: Transport) -> Result<Socket, EngineError> {
    let address = SocketAddr::new(address, 0);
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    Socket::new(Domain::for_address(address), kind, Some(protocol))
        .map_err(|error| EngineError::local("socket", address, error))
}

pub(crate) fn bind(socket: &Socket, address: SocketAddr) -> Result<(), EngineError> {
    socket.bind(&address.into()).map_err(|error| EngineError::local("bind", address, error))
}

pub(crate) fn local_address(socket: &Socket) -> Result<SocketAddr, EngineError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    let address = socket.local_addr().map_err(|error| EngineError::local("getsockname", unknown, error))?;
    Ok(address.as_socket().expect("an IP socket has an IP address"))
}

/// Waits until one of `fds` is ready or a tick has passed. Ready or not, the caller tries its
/// nonblocking calls again; err when cancelled.
pub(crate) fn wait_a_tick(fds: &mut [PollFd<'_>], deadline: Instant, cancel: &Cancel) -> Result<(), EngineError> {
    if cancel.is_cancelled() {
        return Err(EngineError::Cancelled);
    }
    let wait = TICK.min(deadline.saturating_duration_since(Instant::now()));
    let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(EngineError::socket("poll", SocketAddr::from(([0, 0, 0, 0], 0)), errno.into())),
    }
}

/// Messages that must each fit one packet of a UDP test.
pub(crate) fn datagram_sizes(workload: &Workload) -> Vec<(&'static str, ByteSize)> {
    match *workload {
        Workload::Rr { request, response } => vec![("request", request), ("response", response)],
        Workload::Stream { message } => vec![("message", message)],
        Workload::File { .. } => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stamp_is_read_back_as_far_as_there_is_room(sequence in 0u64..1 << 62, mark in 0usize..3, len in 1usize..40) {
            let mark = [Mark::None, Mark::Open, Mark::Close][mark];
            let mut message = vec![0xff; len];
            Stamp::new(sequence, mark).write(&mut message);
            prop_assert_eq!(Stamp::mark_of(&message), Some(mark));
            prop_assert!(Stamp::new(sequence, mark).leads(&message));
            prop_assert!(!Stamp::new(sequence + 1, mark).leads(&message));
        }
    }

    #[test]
    fn a_token_is_looked_for_where_there_is_room() {
        let (token, other) = (Token::random(), Token::random());
        let mut message = [0; 24];
        place_token(&mut message, &token);
        assert!(shows_token(&message, &token));
        assert!(!shows_token(&message, &other));
        assert!(shows_token(&message[..23], &other));
    }
}
