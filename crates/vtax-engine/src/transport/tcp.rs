//! TCP flows: admission by token, and blocking reads and writes with a timeout.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::{Socket, TcpKeepalive};
use vtax_model::workload::{TestSpec, Transport};
use vtax_sys::{clock::now_ns, sock::set_receive_low_water};

use crate::{
    cancel::Cancel,
    error::EngineError,
    rr, stream,
    token::{TOKEN_LEN, Token},
    transport::{ADMISSION, ARRIVAL, Flow, Mark, Stamp, bind, local_address, new_socket, wait_a_tick},
};

/// How long a connection may take to show its token.
const SHOW_TOKEN: Duration = Duration::from_secs(2);

/// Connections that have not shown a token yet; past this many the oldest is dropped.
const PENDING_MOST: usize = 64;

/// How long a peer may be silent in rr and stream. Keepalive finds a dead host sooner.
const SILENCE: Duration = Duration::from_secs(5);

const HELLO_LEN: usize = TOKEN_LEN + 4;

/// What the responder answers when all flows are there.
const READY: u8 = 0x06;

// --- responder ---

pub(crate) fn listen(address: IpAddr, streams: u32) -> Result<Socket, EngineError> {
    let socket = new_socket(address, Transport::Tcp)?;
    let address = SocketAddr::new(address, 0);
    bind(&socket, address)?;
    let backlog = i32::try_from(streams).unwrap_or(i32::MAX).max(128);
    socket.listen(backlog).map_err(|error| EngineError::local("listen", address, error))?;
    socket.set_nonblocking(true).map_err(|error| EngineError::local("O_NONBLOCK", address, error))?;
    Ok(socket)
}

/// Waits until every flow of the test has shown the token. Strangers are dropped without a byte,
/// and none of them is waited for.
pub(crate) fn admit(
    listener: &Socket,
    spec: &TestSpec,
    token: Token,
    cancel: &Cancel,
) -> Result<Vec<Flow>, EngineError> {
    let deadline = Instant::now() + ARRIVAL;
    let mut admission = Admission::new(spec, token, cancel);
    while admission.missing() > 0 {
        if Instant::now() >= deadline {
            return Err(admission.flows_missing(local_address(listener)?));
        }
        admission.wait(listener, deadline)?;
        admission.accept_waiting(listener)?;
        admission.examine()?;
    }
    Ok(admission.flows.into_iter().flatten().collect())
}

struct Admission<'a> {
    token: Token,
    cancel: &'a Cancel,
    pending: Vec<Pending>,
    flows: Vec<Option<Flow>>,
}

struct Pending {
    socket: Socket,
    peer: SocketAddr,
    hello: [u8; HELLO_LEN],
    received: usize,
    deadline: Instant,
}

impl<'a> Admission<'a> {
    fn new(spec: &TestSpec, token: Token, cancel: &'a Cancel) -> Admission<'a> {
        let flows = (0..spec.streams).map(|_| None).collect();
        Admission { token, cancel, pending: Vec::new(), flows }
    }

    fn missing(&self) -> usize {
        self.flows.iter().filter(|flow| flow.is_none()).count()
    }

    fn flows_missing(&self, address: SocketAddr) -> EngineError {
        let expected = self.flows.len();
        EngineError::FlowsMissing { address, arrived: expected - self.missing(), expected, waited: ARRIVAL }
    }

    fn wait(&self, listener: &Socket, deadline: Instant) -> Result<(), EngineError> {
        let sockets = std::iter::once(listener).chain(self.pending.iter().map(|pending| &pending.socket));
        let mut fds: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        wait_a_tick(&mut fds, deadline, self.cancel)
    }

    /// At most as many as may be pending, so that a flood can't keep the real ones unread.
    fn accept_waiting(&mut self, listener: &Socket) -> Result<(), EngineError> {
        for _ in 0..PENDING_MOST {
            match listener.accept() {
                Ok((socket, peer)) => self.take_in(socket, peer.as_socket())?,
                Err(error) => return accept_failed(error, local_address(listener)?),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, socket: Socket, peer: Option<SocketAddr>) -> Result<(), EngineError> {
        let Some(peer) = peer else { return Ok(()) };
        socket.set_nonblocking(true).map_err(|error| EngineError::socket("O_NONBLOCK", peer, error))?;
        if self.pending.len() == PENDING_MOST {
            self.pending.remove(0);
        }
        let deadline = Instant::now() + SHOW_TOKEN;
        self.pending.push(Pending { socket, peer, hello: [0; HELLO_LEN], received: 0, deadline });
        Ok(())
    }

    /// Reads what the pending connections have sent; each is admitted, dropped or kept.
    fn examine(&mut self) -> Result<(), EngineError> {
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.read() {
                Hello::Whole => self.admit(pending)?,
                Hello::Partly if Instant::now() < pending.deadline => self.pending.push(pending),
                Hello::Partly | Hello::Ended => {}
            }
        }
        Ok(())
    }

    fn admit(&mut self, pending: Pending) -> Result<(), EngineError> {
        let (shown, index) = pending.hello.split_at(TOKEN_LEN);
        let index = u32::from_le_bytes(index.try_into().expect("a hello ends with 4 bytes"));
        let place = self.flows.get_mut(index as usize).filter(|place| place.is_none());
        if let (true, Some(place)) = (self.token.is(shown), place) {
            let Pending { socket, peer, .. } = pending;
            socket.set_nonblocking(false).map_err(|error| EngineError::socket("O_NONBLOCK", peer, error))?;
            *place = Some(Flow::new(index, socket, peer, Transport::Tcp, self.token, self.cancel));
        }
        Ok(())
    }
}

fn accept_failed(error: io::Error, address: SocketAddr) -> Result<(), EngineError> {
    match Errno::from_io_error(&error) {
        // ECONNABORTED: a stranger was gone before we came to it.
        Some(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(()),
        _ => Err(EngineError::local("accept", address, error)),
    }
}

enum Hello {
    Whole,
    Partly,
    Ended,
}

impl Pending {
    fn read(&mut self) -> Hello {
        match recv(&self.socket, &mut self.hello[self.received..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Hello::Ended,
            Ok((len, _)) => {
                self.received += len;
                if self.received == HELLO_LEN { Hello::Whole } else { Hello::Partly }
            }
            Err(Errno::AGAIN | Errno::INTR) => Hello::Partly,
            Err(_) => Hello::Ended,
        }
    }
}

pub(super) fn say_ready(flow: &Flow) -> Result<(), EngineError> {
    Pipe { flow, silence: SILENCE }.send_all(&[READY])
}

// --- initiator ---

/// Connects all flows and waits until the responder has admitted each.
pub(crate) fn connect(
    spec: &TestSpec,
    address: IpAddr,
    target: SocketAddr,
    token: Token,
    cancel: &Cancel,
) -> Result<Vec<Flow>, EngineError> {
    let deadline = Instant::now() + ADMISSION;
    let flows = (0..spec.streams)
        .map(|index| connect_one(index, address, target, token, deadline, cancel))
        .collect::<Result<Vec<_>, _>>()?;
    for flow in &flows {
        await_ready(flow, deadline, cancel)?;
    }
    Ok(flows)
}

fn connect_one(
    index: u32,
    address: IpAddr,
    target: SocketAddr,
    token: Token,
    deadline: Instant,
    cancel: &Cancel,
) -> Result<Flow, EngineError> {
    let socket = new_socket(address, Transport::Tcp)?;
    bind(&socket, SocketAddr::new(address, 0))?;
    let connecting = |error| EngineError::connecting(target, error);
    socket.set_nonblocking(true).map_err(connecting)?;
    match socket.connect(&target.into()) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {
            await_connection(&socket, target, deadline, cancel)?;
        }
        other => other.map_err(connecting)?,
    }
    socket.set_nonblocking(false).map_err(connecting)?;
    let flow = Flow::new(index, socket, target, Transport::Tcp, token, cancel);
    show_token(&flow)?;
    Ok(flow)
}

fn await_connection(
    socket: &Socket,
    target: SocketAddr,
    deadline: Instant,
    cancel: &Cancel,
) -> Result<(), EngineError> {
    while Instant::now() < deadline {
        let mut fds = [PollFd::new(socket, PollFlags::OUT)];
        wait_a_tick(&mut fds, deadline, cancel)?;
        if fds[0].revents().is_empty() {
            continue;
        }
        return match socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(EngineError::connecting(target, error)),
        };
    }
    Err(EngineError::connecting(target, Errno::TIMEDOUT.into()))
}

fn show_token(flow: &Flow) -> Result<(), EngineError> {
    let mut hello = [0; HELLO_LEN];
    hello[..TOKEN_LEN].copy_from_slice(flow.token.bytes());
    hello[TOKEN_LEN..].copy_from_slice(&flow.index.to_le_bytes());
    flow.set_timeout(SILENCE)?;
    Pipe { flow, silence: SILENCE }.send_all(&hello).map_err(|error| refused(flow, error))
}

fn await_ready(flow: &Flow, deadline: Instant, cancel: &Cancel) -> Result<(), EngineError> {
    while Instant::now() < deadline {
        wait_a_tick(&mut [PollFd::from_borrowed_fd(flow.socket.as_fd(), PollFlags::IN)], deadline, cancel)?;
        let mut answer = [0];
        match recv(&*flow.socket, &mut answer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(refused(flow, flow.ended("handshake"))),
            Ok(_) if answer == [READY] => return Ok(()),
            Ok(_) => return Err(EngineError::Protocol { peer: flow.peer, what: "a wrong answer to the handshake" }),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(refused(flow, flow.failed("handshake", errno, ADMISSION))),
        }
    }
    Err(EngineError::Unanswered { target: flow.peer, flow: flow.index, waited: ADMISSION })
}

/// A connection that ends before it was admitted was refused by the responder.
fn refused(flow: &Flow, error: EngineError) -> EngineError {
    match error {
        EngineError::PeerGone { .. } => EngineError::Refused { target: flow.peer, flow: flow.index },
        other => other,
    }
}

// --- the data path ---

/// An admitted connection, with the timeout that its calls have.
pub(crate) struct Pipe<'a> {
    pub(crate) flow: &'a Flow,
    silence: Duration,
}

impl<'a> Pipe<'a> {
    /// Gives the flow's calls a timeout, and probes a silent peer.
    pub(crate) fn new(flow: &'a Flow, silence: Duration) -> Result<Pipe<'a>, EngineError> {
        let probe = Duration::from_secs(1);
        let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(3);
        flow.option("SO_KEEPALIVE", flow.socket.set_tcp_keepalive(&keepalive))?;
        flow.set_timeout(silence)?;
        Ok(Pipe { flow, silence })
    }

    #[inline]
    pub(crate) fn send_all(&self, message: &[u8]) -> Result<(), EngineError> {
        let mut sent = 0;
        while sent < message.len() {
            sent += self.send_some(&message[sent..]).map_err(|errno| self.failed("send", errno))?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn receive_all(&self, message: &mut [u8]) -> Result<(), EngineError> {
        let mut received = 0;
        while received < message.len() {
            received += self.receive_some(&mut message[received..])?;
        }
        Ok(())
    }

    /// What there is, at least a byte.
    #[inline]
    pub(crate) fn receive_some(&self, buffer: &mut [u8]) -> Result<usize, EngineError> {
        loop {
            match recv(&*self.flow.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Err(self.flow.ended("receive")),
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("receive", errno)),
            }
        }
    }

    #[inline]
    fn send_some(&self, message: &[u8]) -> Result<usize, Errno> {
        loop {
            match send(&*self.flow.socket, message, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> EngineError {
        self.flow.failed(operation, errno, self.silence)
    }
}

/// Request and response over TCP, at either end.
pub(crate) struct Transactions<'a> {
    pipe: Pipe<'a>,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl<'a> Transactions<'a> {
    pub(crate) fn new(flow: &'a Flow, sizes: rr::Sizes) -> Result<Transactions<'a>, EngineError> {
        flow.option("TCP_NODELAY", flow.socket.set_tcp_nodelay(true))?;
        let pipe = Pipe::new(flow, SILENCE)?;
        Ok(Transactions { pipe, request: vec![0; sizes.request], response: vec![0; sizes.response] })
    }
}

impl rr::Requester for Transactions<'_> {
    #[inline]
    fn exchange(&mut self, mark: Mark) -> Result<rr::Outcome, EngineError> {
        Stamp::new(0, mark).write(&mut self.request);
        self.pipe.send_all(&self.request)?;
        self.pipe.receive_all(&mut self.response)?;
        Ok(rr::Outcome::Answered)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.exchange(Mark::Close).map(drop)
    }
}

impl rr::Answerer for Transactions<'_> {
    #[inline]
    fn request(&mut self) -> Result<Mark, EngineError> {
        self.pipe.receive_all(&mut self.request)?;
        let peer = self.pipe.flow.peer;
        Stamp::mark_of(&self.request).ok_or(EngineError::Protocol { peer, what: "an unknown mark" })
    }

    #[inline]
    fn respond(&mut self) -> Result<(), EngineError> {
        self.pipe.send_all(&self.response)
    }
}

/// The sending end of a TCP stream.
pub(crate) struct Sender<'a> {
    pipe: Pipe<'a>,
    message: Vec<u8>,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(flow: &'a Flow, message: usize) -> Result<Sender<'a>, EngineError> {
        Ok(Sender { pipe: Pipe::new(flow, SILENCE)?, message: vec![0; message] })
    }
}

impl stream::Source for Sender<'_> {
    #[inline]
    fn send(&mut self) -> Result<stream::Sent, EngineError> {
        match self.pipe.send_some(&self.message) {
            Ok(len) => Ok(stream::Sent::Bytes(len)),
            Err(Errno::CONNRESET | Errno::PIPE) => Ok(stream::Sent::Closed),
            Err(errno) => Err(self.pipe.failed("send", errno)),
        }
    }

    /// The closed connection makes the next call fail: nothing to look at.
    fn is_told_to_stop(&mut self) -> bool {
        false
    }
}

/// The receiving end of a TCP stream.
pub(crate) struct Receiver<'a> {
    pipe: Pipe<'a>,
    buffer: Vec<u8>,
    begun: u64,
    received: u64,
}

/// Smaller reads would make the receiver pay more calls than there are messages waiting.
const BUFFER_LEAST: usize = 128 << 10;
/// What is due in this time is worth waking up for: 20,000 wake-ups a second at the most.
const NAP: Duration = Duration::from_micros(50);
/// Larger ones fall out of the CPU's cache before the next read.
const BUFFER_MOST: usize = 1 << 20;

impl<'a> Receiver<'a> {
    pub(crate) fn new(flow: &'a Flow, message: usize) -> Result<Receiver<'a>, EngineError> {
        let buffer = vec![0; message.clamp(BUFFER_LEAST, BUFFER_MOST)];
        Ok(Receiver { pipe: Pipe::new(flow, SILENCE)?, buffer, begun: now_ns(), received: 0 })
    }
}

impl stream::Sink for Receiver<'_> {
    #[inline]
    fn receive(&mut self) -> Result<usize, EngineError> {
        let len = self.pipe.receive_some(&mut self.buffer)?;
        self.received += len as u64;
        Ok(len)
    }

    /// From here on the kernel wakes the reader for what the warm-up's pace brings in [`NAP`], not
    /// for each packet: on a fast path waking is what keeps the sender's CPU busiest.
    fn open_window(&mut self) {
        let warmup = now_ns().saturating_sub(self.begun).max(1);
        let per_nap = u128::from(self.received) * NAP.as_nanos() / u128::from(warmup);
        let bytes = u32::try_from(per_nap).unwrap_or(u32::MAX).clamp(1, BUFFER_LEAST as u32);
        // Without it the test runs as well, only with more wake-ups.
        let _ = set_receive_low_water(&*self.pipe.flow.socket, bytes);
    }

    fn losses(&self) -> stream::Losses {
        stream::Losses::default()
    }

    fn finish(&mut self) {}
}
