//! A flow: a socket that both ends have agreed on. It also names its errors.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{RecvFlags, SendFlags, recv, send, sockopt},
};
use socket2::{Socket, TcpKeepalive};
use vtax_model::{
    station::Target,
    units::ByteSize,
    workload::{TestSpec, Transport},
};
use vtax_sys::{clock::now_ns, sock::path_mtu, token::Token};

use crate::{
    cancel::{Cancel, interrupt},
    error::{EngineError, Result},
    patience::Patience,
    supply::Supply,
    wire::{DONE, FlowGreeting, GREETING_LEN, READY},
};

/// Time that a thread sleeps before it checks whether the test is over.
const NAP: Duration = Duration::from_millis(100);

/// State shared by all flows of one end.
pub(crate) struct Session {
    pub(crate) spec: TestSpec,
    pub(crate) token: Token,
    pub(crate) patience: Patience,
    pub(crate) cancel: Cancel,
    /// Set when the test ends before its flows do.
    pub(crate) stopped: AtomicBool,
    pub(crate) supply: Supply,
}

impl Session {
    pub(crate) fn new(spec: &TestSpec, token: Token, cancel: &Cancel) -> Arc<Session> {
        let patience = Patience::of(spec);
        let stopped = AtomicBool::new(false);
        Arc::new(Session { spec: *spec, token, patience, cancel: cancel.clone(), stopped, supply: Supply::default() })
    }

    /// Returns true if the test is over or [`Cancel`] was used.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    #[inline]
    pub(crate) fn check_stopped(&self) -> Result<()> {
        if self.is_stopped() { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    /// Sleeps until this time of [`now_ns`], and wakes periodically to check whether the test is over.
    pub(crate) fn sleep_until(&self, moment: u64) -> Result<()> {
        while let Some(left @ 1..) = moment.checked_sub(now_ns()) {
            self.check_stopped()?;
            thread::sleep(Duration::from_nanos(left).min(NAP));
        }
        Ok(())
    }
}

/// One connection or pair of UDP sockets, which the responder has admitted or is about to.
pub(crate) struct Flow {
    pub(crate) index: u32,
    pub(crate) socket: Arc<Socket>,
    /// Sockets for greetings of this end: `socket`, except in a group.
    says: Arc<Socket>,
    pub(crate) hears: Arc<Socket>,
    /// The group to which the datagrams of the test go.
    pub(crate) group: Option<Target>,
    pub(crate) peer: Target,
    pub(crate) session: Arc<Session>,
}

impl Flow {
    pub(crate) fn new(index: u32, socket: Socket, peer: Target, session: &Arc<Session>) -> Flow {
        let socket = Arc::new(socket);
        session.cancel.watch(&socket);
        let (says, hears) = (socket.clone(), socket.clone());
        Flow { index, socket, says, hears, group: None, peer, session: session.clone() }
    }

    /// The same flow, with its test sent to a group. Its own socket remains connected to the peer, for the receiver's
    /// messages; `in_group` is the sender's socket to the group, or the receiver's in it.
    pub(crate) fn in_group(self, group: Target, in_group: Socket, sends: bool) -> Flow {
        let (socket, direct) = (Arc::new(in_group), self.socket);
        self.session.cancel.watch(&socket);
        let (says, hears) = if sends { (socket.clone(), direct) } else { (direct, socket.clone()) };
        Flow { socket, says, hears, group: Some(group), ..self }
    }

    pub(crate) fn transport(&self) -> Transport {
        self.session.spec.transport
    }

    /// Wakes the threads that are blocked on the flow; their calls fail from now on.
    pub(crate) fn stop(&self) {
        interrupt(&self.socket);
    }

    /// Names an error of this flow's socket after the handshake. `waited` is the timeout set on the socket; EAGAIN
    /// means that it has expired.
    #[cold]
    pub(crate) fn failed(&self, operation: &'static str, errno: Errno, waited: Duration) -> EngineError {
        // Lazy sends report only to a later call that a datagram was too large.
        if errno == Errno::MSGSIZE
            && let Err(error) = self.check_datagrams()
        {
            return error;
        }
        failed(&self.peer, operation, errno, waited)
    }

    /// The error for a connection closed by the other end.
    #[cold]
    pub(crate) fn ended(&self, operation: &'static str) -> EngineError {
        ended(&self.peer, operation)
    }

    /// The error for a peer that violates this engine's protocol.
    #[cold]
    pub(crate) fn strange(&self, what: &'static str) -> EngineError {
        EngineError::Protocol { peer: self.peer.clone(), what }
    }

    pub(crate) fn option(&self, operation: &'static str, result: io::Result<()>) -> Result<()> {
        result.map_err(|error| EngineError::socket(operation, &self.peer, error))
    }

    /// Lets the kernel probe the peer of a silent connection.
    pub(crate) fn probe_peer(&self) -> Result<()> {
        if self.transport() != Transport::Tcp {
            return Ok(());
        }
        let probe = Duration::from_secs(1);
        let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(3);
        self.option("SO_KEEPALIVE", self.socket.set_tcp_keepalive(&keepalive))
    }

    /// Ends the interactive mode of a connection, in which the kernel delays acknowledgements in the hope of sending them
    /// with data. An end that has answered a message is in it, and stays in it while it only receives. TCP_QUICKACK isn't
    /// permanent: the next message that this end sends may begin the mode again.
    pub(crate) fn acknowledge_at_once(&self) -> Result<()> {
        if self.transport() != Transport::Tcp {
            return Ok(());
        }
        self.option("TCP_QUICKACK", sockopt::set_tcp_quickack(&*self.socket, true).map_err(io::Error::from))
    }

    /// Tells the initiator that all flows have arrived and that this flow's thread is running.
    pub(crate) fn say_ready(&self) -> Result<()> {
        match self.transport() {
            Transport::Udp => {
                self.drain();
                self.greet(FlowGreeting::Ready)
            }
            _ => self.say(READY),
        }
    }

    /// Drops data that arrived before the socket was connected: anybody may have sent it. The initiator sends only
    /// hellos before it learns that this flow is ready.
    fn drain(&self) {
        for _ in 0..256 {
            if recv(&*self.socket, &mut [0; 1], RecvFlags::DONTWAIT) == Err(Errno::AGAIN) {
                break;
            }
        }
    }

    /// Sends a byte on a connection that has carried next to nothing, so it has space.
    pub(crate) fn say(&self, byte: u8) -> Result<()> {
        let said = retry_on_intr(|| send(&*self.socket, &[byte], SendFlags::NOSIGNAL | SendFlags::DONTWAIT));
        said.map(drop).map_err(|errno| self.failed("handshake", errno, Duration::ZERO))
    }

    /// Sends a hello to a responder. A group cannot receive the first one, because the receiver joins after it.
    pub(crate) fn say_hello(&self, is_heard: bool) -> Result<()> {
        if !is_heard && self.group.is_some() {
            self.greet_on(&self.hears, self.index, FlowGreeting::Hello)?;
        }
        self.greet(FlowGreeting::Hello)
    }

    /// Sends a greeting. If the socket has no space for it, that counts as loss on the path.
    pub(crate) fn greet(&self, greeting: FlowGreeting) -> Result<()> {
        self.greet_with(self.index, greeting)
    }

    /// As [`greet`](Self::greet), with the number of a slice.
    pub(crate) fn greet_with(&self, number: u32, greeting: FlowGreeting) -> Result<()> {
        self.greet_on(&self.says, number, greeting)
    }

    fn greet_on(&self, socket: &Socket, number: u32, greeting: FlowGreeting) -> Result<()> {
        let datagram = greeting.write(&self.session.token, number);
        match send(socket, &datagram, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS) => Ok(()),
            Err(errno) => Err(self.failed("handshake", errno, Duration::ZERO)),
        }
    }

    pub(crate) fn is_greeting(&self, datagram: &[u8], greeting: FlowGreeting) -> bool {
        FlowGreeting::read(datagram, &self.session.token) == Some((self.index, greeting))
    }

    /// Reads everything that has arrived, and returns this flow's greetings.
    pub(crate) fn greetings(&self) -> Result<Vec<FlowGreeting>> {
        let mut heard = vec![];
        for _ in 0..256 {
            let mut datagram = [0; GREETING_LEN + 1];
            match recv(&*self.hears, &mut datagram, RecvFlags::DONTWAIT) {
                Ok((len, _)) => {
                    let greeting = FlowGreeting::read(&datagram[..len], &self.session.token);
                    heard.extend(greeting.filter(|(index, _)| *index == self.index).map(|(_, greeting)| greeting));
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(self.failed("handshake", errno, Duration::ZERO)),
            }
            self.session.check_stopped()?;
        }
        Ok(heard)
    }

    pub(crate) fn is_told(&self, greeting: FlowGreeting) -> Result<bool> {
        Ok(self.greetings()?.contains(&greeting))
    }

    /// Returns true if the receiver of this connection's stream has reported that it has enough, or has closed.
    pub(crate) fn is_told_to_stop(&self) -> bool {
        let mut byte = [0];
        match recv(&*self.socket, &mut byte, RecvFlags::DONTWAIT) {
            Ok((len, _)) => len == 0 || byte == [DONE],
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Prepares and checks a UDP socket of the test, at both ends.
    pub(crate) fn check_datagrams(&self) -> Result<()> {
        vtax_sys::sock::set_dont_fragment(&*self.socket)?;
        let fits = |(what, size)| self.check_fits(what, size);
        self.session.spec.workload.sizes().named().into_iter().try_for_each(fits)
    }

    /// Refuses a message whose packets the path would have to fragment.
    fn check_fits(&self, what: &'static str, size: ByteSize) -> Result<()> {
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
            Ok(()) => EngineError::socket("send", &self.peer, Errno::MSGSIZE.into()),
        }
    }

    fn oversize(&self, what: &'static str, size: ByteSize, mtu: u32) -> EngineError {
        EngineError::Oversize {
            what,
            size,
            packet: size.0 + self.headers(),
            peer: self.peer.clone(),
            mtu,
            most: ByteSize(u64::from(mtu).saturating_sub(self.headers())),
        }
    }

    /// Bytes of the IP header without options, and of the UDP header.
    pub(crate) fn headers(&self) -> u64 {
        self.ip_header() + 8
    }

    pub(crate) fn ip_header(&self) -> u64 {
        if matches!(&self.peer, Target::Ip(address) if address.is_ipv4()) { 20 } else { 40 }
    }
}

/// Names an error of a connected socket. `waited` is the timeout meant by EAGAIN.
#[cold]
pub(crate) fn failed(peer: &Target, operation: &'static str, errno: Errno, waited: Duration) -> EngineError {
    match errno {
        Errno::CANCELED => EngineError::Cancelled,
        Errno::CONNRESET | Errno::PIPE | Errno::CONNREFUSED => {
            EngineError::PeerGone { peer: peer.clone(), operation, cause: io::Error::from(errno).to_string() }
        }
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN => {
            EngineError::Unreachable { target: peer.clone(), source: errno.into() }
        }
        // ETIMEDOUT: the peer answered neither keepalive probes nor repeated segments.
        Errno::AGAIN | Errno::TIMEDOUT => EngineError::PeerSilent { peer: peer.clone(), operation, waited },
        _ => EngineError::socket(operation, peer, errno.into()),
    }
}

#[cold]
pub(crate) fn ended(peer: &Target, operation: &'static str) -> EngineError {
    EngineError::PeerGone { peer: peer.clone(), operation, cause: "end of the connection".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use vtax_model::{
        options::TestOptions,
        units::Span,
        workload::{Direction, Warmup, Workload},
    };

    #[test]
    fn an_end_that_has_answered_leaves_the_interactive_mode_before_a_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (own, _) = listener.accept().expect("accepted");
        let spec = TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Stream { message: ByteSize(1), direction: Direction::Forward },
            streams: 1,
            warmup: Warmup::NONE,
            duration: Span::from_millis(1),
            slices: None,
            options: TestOptions::default(),
        };
        let session = Session::new(&spec, Token::random(), &Cancel::new());
        let target = Target::Ip(peer.local_addr().expect("connected"));
        let flow = Flow::new(0, Socket::from(own), target, &session);
        let delays = || !sockopt::tcp_quickack(&*flow.socket).expect("read");
        // Kernels differ in how many answers make a connection interactive.
        for _ in 0..10 {
            send(&peer, &[READY], SendFlags::empty()).expect("sent");
            recv(&*flow.socket, &mut [0; 1], RecvFlags::empty()).expect("received");
            flow.say(READY).expect("said");
        }
        assert!(delays(), "it answers, so it is interactive");
        flow.acknowledge_at_once().expect("set");
        assert!(!delays());
    }
}
