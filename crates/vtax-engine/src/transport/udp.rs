//! UDP flows: admission by token, sequence numbers, losses.
//!
//! The responder's first socket is connected to nobody and hears the hellos. For each flow it
//! makes another one on the same port that is connected to the initiator's socket; the kernel
//! prefers it for datagrams from there (`compute_score` in net/ipv4/udp.c). The first socket
//! stays open, and is not read any more, until the test is over: so a stranger's datagram meets a
//! socket and is neither answered nor refused by ICMP.
//!
//! `SO_REUSEPORT` and not `SO_REUSEADDR`, with which any user's program could bind the port too.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, recvfrom, send, sockopt},
};
use socket2::Socket;
use vtax_model::{
    units::ByteSize,
    workload::{TestSpec, Transport, Workload},
};
use vtax_sys::sock::set_dont_fragment;

use crate::{
    cancel::Cancel,
    error::EngineError,
    rr,
    sequence::Sequence,
    stream,
    token::{TOKEN_LEN, Token},
    transport::{
        ADMISSION, ARRIVAL, Flow, Mark, Stamp, bind, datagram_sizes, local_address, new_socket, place_token,
        shows_token, wait_a_tick,
    },
};

/// How long a peer may be silent. UDP has no end of connection: this is how a dead one is noticed.
const SILENCE: Duration = Duration::from_secs(2);

/// How long a receiving thread sleeps at most before it counts its peer's silence.
const NAP: Duration = Duration::from_millis(250);

/// When a response counts as lost; doubled, up to [`LOST_LATEST`], on a path where a response
/// came after that.
const LOST_AFTER: Duration = Duration::from_millis(100);
const LOST_LATEST: Duration = Duration::from_secs(1);

/// A hello is said again until it is answered.
const HELLO_EVERY: Duration = Duration::from_millis(50);

/// Datagrams that are read at a stretch before deadlines are looked at.
const BATCH: usize = 256;

/// Wanted for a stream's receiver, so that a short pause of its thread isn't counted as loss.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Datagrams of the handshake: token, index of the flow, kind.
const GREETING_LEN: usize = TOKEN_LEN + 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// Initiator: I am this flow.
    Hello = 1,
    /// Responder: all flows are there.
    Ready = 2,
    /// Receiver of a stream: it is enough.
    Done = 3,
}

impl Greeting {
    fn write(self, token: &Token, index: u32) -> [u8; GREETING_LEN] {
        let mut datagram = [self as u8; GREETING_LEN];
        datagram[..TOKEN_LEN].copy_from_slice(token.bytes());
        datagram[TOKEN_LEN..TOKEN_LEN + 4].copy_from_slice(&index.to_le_bytes());
        datagram
    }

    /// The index and the kind, if the token is right.
    fn read(datagram: &[u8], token: &Token) -> Option<(u32, Greeting)> {
        let (shown, rest) = datagram.split_at_checked(TOKEN_LEN)?;
        let &[a, b, c, d, kind] = rest else { return None };
        let kind = match kind {
            1 => Greeting::Hello,
            2 => Greeting::Ready,
            3 => Greeting::Done,
            _ => return None,
        };
        token.is(shown).then_some((u32::from_le_bytes([a, b, c, d]), kind))
    }
}

// --- responder ---

pub(crate) fn listen(address: IpAddr) -> Result<Socket, EngineError> {
    shared_socket(SocketAddr::new(address, 0))
}

fn shared_socket(address: SocketAddr) -> Result<Socket, EngineError> {
    let socket = new_socket(address.ip(), Transport::Udp)?;
    sockopt::set_socket_reuseport(&socket, true)
        .map_err(|errno| EngineError::local("SO_REUSEPORT", address, errno.into()))?;
    bind(&socket, address)?;
    Ok(socket)
}

/// Waits until every flow of the test has said hello with the right token.
pub(crate) fn admit(
    listener: &Socket,
    spec: &TestSpec,
    token: Token,
    cancel: &Cancel,
) -> Result<Vec<Flow>, EngineError> {
    let deadline = Instant::now() + ARRIVAL;
    let address = local_address(listener)?;
    let mut flows: Vec<Option<Flow>> = (0..spec.streams).map(|_| None).collect();
    while flows.iter().any(Option::is_none) {
        if Instant::now() >= deadline {
            let (arrived, expected) = (flows.iter().flatten().count(), flows.len());
            return Err(EngineError::FlowsMissing { address, arrived, expected, waited: ARRIVAL });
        }
        wait_a_tick(&mut [PollFd::new(listener, PollFlags::IN)], deadline, cancel)?;
        for _ in 0..BATCH {
            let Some((index, peer)) = hear_hello(listener, address, &token)? else { break };
            // The first to show the index has it. Its repeated hellos go to its own socket.
            if let Some(place @ None) = flows.get_mut(index as usize) {
                *place = Some(admit_one(spec, index, address, peer, token, cancel)?);
            }
        }
    }
    Ok(flows.into_iter().flatten().collect())
}

/// The next hello that shows the token; none when there is nothing more to read.
fn hear_hello(listener: &Socket, address: SocketAddr, token: &Token) -> Result<Option<(u32, SocketAddr)>, EngineError> {
    for _ in 0..BATCH {
        let mut datagram = [0; GREETING_LEN + 1];
        let (len, peer) = match recvfrom(listener, &mut datagram, RecvFlags::DONTWAIT) {
            Ok((len, _, peer)) => (len, peer.and_then(|peer| SocketAddr::try_from(peer).ok())),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(EngineError::local("receive", address, errno.into())),
        };
        if let (Some((index, Greeting::Hello)), Some(peer)) = (Greeting::read(&datagram[..len], token), peer) {
            return Ok(Some((index, peer)));
        }
    }
    Ok(None)
}

fn admit_one(
    spec: &TestSpec,
    index: u32,
    address: SocketAddr,
    peer: SocketAddr,
    token: Token,
    cancel: &Cancel,
) -> Result<Flow, EngineError> {
    let socket = shared_socket(address)?;
    socket.connect(&peer.into()).map_err(|error| EngineError::connecting(peer, error))?;
    let flow = Flow::new(index, socket, peer, Transport::Udp, token, cancel);
    prepare(&flow, spec)?;
    Ok(flow)
}

/// What both ends set on a socket that carries the test.
fn prepare(flow: &Flow, spec: &TestSpec) -> Result<(), EngineError> {
    set_dont_fragment(&*flow.socket)?;
    datagram_sizes(&spec.workload).into_iter().try_for_each(|(what, size)| flow.check_fits(what, size))?;
    if matches!(spec.workload, Workload::Stream { .. }) {
        enlarge_receive_buffer(&flow.socket);
    }
    flow.set_timeout(NAP)
}

/// Beyond `net.core.rmem_max` if we may (CAP_NET_ADMIN), else as far as that goes, else not: a
/// small buffer shows as loss, which is reported.
fn enlarge_receive_buffer(socket: &Socket) {
    let forced = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER);
    let _ = forced.or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER));
}

/// First drops what came in before the socket was connected, which may be anybody's. The
/// initiator sends nothing but hellos before it is told that this flow is ready.
pub(super) fn say_ready(flow: &Flow) -> Result<(), EngineError> {
    for _ in 0..BATCH {
        if recv(&*flow.socket, &mut [0; 1], RecvFlags::DONTWAIT) == Err(Errno::AGAIN) {
            break;
        }
    }
    greet(flow, Greeting::Ready)
}

fn greet(flow: &Flow, greeting: Greeting) -> Result<(), EngineError> {
    match send(&*flow.socket, &greeting.write(&flow.token, flow.index), SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::INTR | Errno::AGAIN) => Ok(()),
        Err(errno) => Err(flow.failed("handshake", errno, NAP)),
    }
}

// --- initiator ---

/// Says hello for every flow until the responder has answered each.
pub(crate) fn connect(
    spec: &TestSpec,
    address: IpAddr,
    target: SocketAddr,
    token: Token,
    cancel: &Cancel,
) -> Result<Vec<Flow>, EngineError> {
    let begun = Instant::now();
    let flows = (0..spec.streams)
        .map(|index| connect_one(spec, index, address, target, token, cancel))
        .collect::<Result<Vec<_>, _>>()?;
    let mut waiting: Vec<&Flow> = flows.iter().collect();
    while let Some(first) = waiting.first() {
        if begun.elapsed() >= ADMISSION {
            return Err(EngineError::Unanswered { target, flow: first.index, waited: ADMISSION });
        }
        let told = say_hello(&waiting).and_then(|()| await_ready(waiting, Instant::now() + HELLO_EVERY, cancel));
        waiting = told.map_err(|error| absent(target, begun.elapsed(), error))?;
    }
    Ok(flows)
}

/// A refusal at once says that nothing listens. One that comes later is of a responder that has
/// heard hellos, answered none, and given up: ours weren't those it waited for.
fn absent(target: SocketAddr, waited: Duration, error: EngineError) -> EngineError {
    match error {
        EngineError::PeerGone { .. } if waited < Duration::from_secs(1) => EngineError::NothingListens { target },
        EngineError::PeerGone { .. } => EngineError::Unanswered { target, flow: 0, waited },
        other => other,
    }
}

fn connect_one(
    spec: &TestSpec,
    index: u32,
    address: IpAddr,
    target: SocketAddr,
    token: Token,
    cancel: &Cancel,
) -> Result<Flow, EngineError> {
    let socket = new_socket(address, Transport::Udp)?;
    bind(&socket, SocketAddr::new(address, 0))?;
    socket.connect(&target.into()).map_err(|error| EngineError::connecting(target, error))?;
    let flow = Flow::new(index, socket, target, Transport::Udp, token, cancel);
    prepare(&flow, spec)?;
    Ok(flow)
}

fn say_hello(waiting: &[&Flow]) -> Result<(), EngineError> {
    waiting.iter().try_for_each(|flow| greet(flow, Greeting::Hello))
}

/// Those of `waiting` that are not told to be ready until `pause`.
fn await_ready<'a>(mut waiting: Vec<&'a Flow>, pause: Instant, cancel: &Cancel) -> Result<Vec<&'a Flow>, EngineError> {
    while !waiting.is_empty() && Instant::now() < pause {
        let mut fds: Vec<_> =
            waiting.iter().map(|flow| PollFd::from_borrowed_fd(flow.socket.as_fd(), PollFlags::IN)).collect();
        wait_a_tick(&mut fds, pause, cancel)?;
        let mut still = Vec::new();
        for flow in waiting {
            if !is_told(flow, Greeting::Ready)? {
                still.push(flow);
            }
        }
        waiting = still;
    }
    Ok(waiting)
}

/// Whether a greeting of this kind is among what has come in by now.
fn is_told(flow: &Flow, greeting: Greeting) -> Result<bool, EngineError> {
    for _ in 0..BATCH {
        let mut datagram = [0; GREETING_LEN + 1];
        match recv(&*flow.socket, &mut datagram, RecvFlags::DONTWAIT) {
            Ok((len, _)) if Greeting::read(&datagram[..len], &flow.token) == Some((flow.index, greeting)) => {
                return Ok(true);
            }
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => break,
            Err(errno) => return Err(flow.failed("handshake", errno, ADMISSION)),
        }
    }
    Ok(false)
}

// --- the data path ---

/// A buffer that shows when a datagram is longer than it should be.
fn buffer(expected: usize) -> Vec<u8> {
    vec![0; expected.max(GREETING_LEN) + 1]
}

fn send_datagram(flow: &Flow, what: &'static str, message: &[u8], waited: Duration) -> Result<(), EngineError> {
    loop {
        match send(&*flow.socket, message, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::MSGSIZE) => return Err(flow.too_large(what, ByteSize(message.len() as u64))),
            Err(errno) => return Err(flow.failed("send", errno, waited)),
        }
    }
}

/// The initiator of request and response.
pub(crate) struct Requests<'a> {
    flow: &'a Flow,
    request: Vec<u8>,
    response: Vec<u8>,
    response_len: usize,
    sequence: u64,
    /// When a response counts as lost: the socket's timeout.
    timeout: Duration,
    /// Since the last response, in lost ones.
    silent: Duration,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(flow: &'a Flow, sizes: rr::Sizes) -> Result<Requests<'a>, EngineError> {
        let mut request = vec![0; sizes.request];
        place_token(&mut request, &flow.token);
        flow.set_timeout(LOST_AFTER)?;
        Ok(Requests {
            flow,
            request,
            response: buffer(sizes.response),
            response_len: sizes.response,
            sequence: 0,
            timeout: LOST_AFTER,
            silent: Duration::ZERO,
        })
    }

    #[inline]
    fn await_response(&mut self, stamp: Stamp) -> Result<rr::Outcome, EngineError> {
        let mut patience = None;
        loop {
            match recv(&*self.flow.socket, &mut self.response[..], RecvFlags::empty()) {
                Ok((len, _)) if self.answers(stamp, len) => return Ok(rr::Outcome::Answered),
                Ok((len, _)) => self.ignore(len)?,
                Err(Errno::AGAIN) => return Ok(rr::Outcome::Lost),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.flow.failed("receive", errno, self.timeout)),
            }
            // Each call has its own timeout: what is ignored must not prolong the wait for ever.
            if Instant::now() >= *patience.get_or_insert_with(|| Instant::now() + self.timeout) {
                return Ok(rr::Outcome::Lost);
            }
        }
    }

    #[inline]
    fn answers(&self, stamp: Stamp, len: usize) -> bool {
        let response = &self.response[..len];
        let stamped = len.min(self.request.len());
        len == self.response_len && stamp.leads(&response[..stamped]) && shows_token(response, &self.flow.token)
    }

    /// A response that comes after it was counted as lost shows that the timeout is too short for
    /// this path.
    #[cold]
    fn ignore(&mut self, len: usize) -> Result<(), EngineError> {
        if len == 0 && self.flow.is_stopped() {
            return Err(EngineError::Cancelled);
        }
        if len == self.response_len && !self.silent.is_zero() && self.timeout < LOST_LATEST {
            self.timeout = (self.timeout * 2).min(LOST_LATEST);
            self.flow.set_timeout(self.timeout)?;
        }
        Ok(())
    }

    #[cold]
    fn count_lost(&mut self) -> Result<rr::Outcome, EngineError> {
        self.silent += self.timeout;
        if self.silent >= SILENCE {
            let (peer, waited) = (self.flow.peer, self.silent);
            return Err(EngineError::PeerSilent { peer, operation: "wait for a response", waited });
        }
        Ok(rr::Outcome::Lost)
    }
}

impl rr::Requester for Requests<'_> {
    #[inline]
    fn exchange(&mut self, mark: Mark) -> Result<rr::Outcome, EngineError> {
        self.sequence += 1;
        let stamp = Stamp::new(self.sequence, mark);
        stamp.write(&mut self.request);
        send_datagram(self.flow, "request", &self.request, self.timeout)?;
        match self.await_response(stamp)? {
            rr::Outcome::Lost => self.count_lost(),
            answered => {
                self.silent = Duration::ZERO;
                Ok(answered)
            }
        }
    }

    /// Said until it is answered. That it was heard can't be known for certain: the responder may
    /// be gone by the time that a lost answer is asked for again, so failing is as good as done.
    fn finish(&mut self) -> Result<(), EngineError> {
        while matches!(self.exchange(Mark::Close), Ok(rr::Outcome::Lost)) {}
        Ok(())
    }
}

/// What the responder's two workloads have in common: an idle peer is noticed, a hello whose
/// answer was lost is answered again, and all else that isn't the test's is ignored.
struct Inbox<'a> {
    flow: &'a Flow,
    buffer: Vec<u8>,
    expected: usize,
    /// [`NAP`]s since the last datagram of the test.
    naps: u32,
}

impl<'a> Inbox<'a> {
    fn new(flow: &'a Flow, expected: usize) -> Inbox<'a> {
        Inbox { flow, buffer: buffer(expected), expected, naps: 0 }
    }

    /// Waits for a datagram of the right length that shows the token if it has room for it.
    #[inline]
    fn receive(&mut self) -> Result<(), EngineError> {
        loop {
            match recv(&*self.flow.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((len, _)) if len == self.expected && shows_token(self.message(), &self.flow.token) => {
                    self.naps = 0;
                    return Ok(());
                }
                Ok((len, _)) => self.other(len)?,
                Err(Errno::AGAIN) => self.nap()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.flow.failed("receive", errno, NAP)),
            }
        }
    }

    #[inline]
    fn message(&self) -> &[u8] {
        &self.buffer[..self.expected]
    }

    #[cold]
    fn other(&mut self, len: usize) -> Result<(), EngineError> {
        if len == 0 && self.flow.is_stopped() {
            return Err(EngineError::Cancelled);
        }
        match Greeting::read(&self.buffer[..len.min(self.buffer.len())], &self.flow.token) {
            Some((index, Greeting::Hello)) if index == self.flow.index => {
                self.naps = 0;
                greet(self.flow, Greeting::Ready)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn nap(&mut self) -> Result<(), EngineError> {
        self.naps += 1;
        let waited = NAP * self.naps;
        if waited < SILENCE {
            return Ok(());
        }
        Err(EngineError::PeerSilent { peer: self.flow.peer, operation: "receive", waited })
    }
}

/// The responder of request and response.
pub(crate) struct Responses<'a> {
    inbox: Inbox<'a>,
    response: Vec<u8>,
}

impl<'a> Responses<'a> {
    pub(crate) fn new(flow: &'a Flow, sizes: rr::Sizes) -> Responses<'a> {
        let mut response = vec![0; sizes.response];
        place_token(&mut response, &flow.token);
        Responses { inbox: Inbox::new(flow, sizes.request), response }
    }
}

impl rr::Answerer for Responses<'_> {
    #[inline]
    fn request(&mut self) -> Result<Mark, EngineError> {
        loop {
            // A datagram with an unknown mark is none of ours.
            self.inbox.receive()?;
            if let Some(mark) = Stamp::mark_of(self.inbox.message()) {
                return Ok(mark);
            }
        }
    }

    #[inline]
    fn respond(&mut self) -> Result<(), EngineError> {
        let stamped = Stamp::LEN.min(self.inbox.expected).min(self.response.len());
        self.response[..stamped].copy_from_slice(&self.inbox.message()[..stamped]);
        send_datagram(self.inbox.flow, "response", &self.response, NAP)
    }
}

/// The sending end of a UDP stream.
pub(crate) struct Sender<'a> {
    flow: &'a Flow,
    message: Vec<u8>,
    sequence: u64,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(flow: &'a Flow, message: usize) -> Result<Sender<'a>, EngineError> {
        let mut message = vec![0; message];
        place_token(&mut message, &flow.token);
        flow.set_timeout(SILENCE)?;
        Ok(Sender { flow, message, sequence: 0 })
    }
}

impl stream::Source for Sender<'_> {
    #[inline]
    fn send(&mut self) -> Result<stream::Sent, EngineError> {
        self.message[..Stamp::LEN].copy_from_slice(&self.sequence.to_le_bytes());
        self.sequence += 1;
        match send_datagram(self.flow, "message", &self.message, SILENCE) {
            Ok(()) => Ok(stream::Sent::Bytes(self.message.len())),
            Err(EngineError::PeerGone { .. }) => Ok(stream::Sent::Closed),
            Err(error) => Err(error),
        }
    }

    fn is_told_to_stop(&mut self) -> bool {
        self.flow.is_stopped() || is_told(self.flow, Greeting::Done).unwrap_or(true)
    }
}

/// The receiving end of a UDP stream.
pub(crate) struct Receiver<'a> {
    inbox: Inbox<'a>,
    sequence: Sequence,
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(flow: &'a Flow, message: usize) -> Receiver<'a> {
        Receiver { inbox: Inbox::new(flow, message), sequence: Sequence::new() }
    }
}

impl stream::Sink for Receiver<'_> {
    /// Duplicates are no goodput.
    #[inline]
    fn receive(&mut self) -> Result<usize, EngineError> {
        loop {
            self.inbox.receive()?;
            let (number, _) = self.inbox.buffer.split_first_chunk().expect("the buffer has room for a greeting");
            if self.sequence.arrived(u64::from_le_bytes(*number)) {
                return Ok(self.inbox.expected);
            }
        }
    }

    fn open_window(&mut self) {
        self.sequence.open();
    }

    fn losses(&self) -> stream::Losses {
        stream::Losses { lost: self.sequence.lost(), reordered: self.sequence.reordered() }
    }

    /// Best effort: without it the sender ends when it is refused by ICMP, or after its grace.
    fn finish(&mut self) {
        let _ = greet(self.inbox.flow, Greeting::Done);
    }
}
