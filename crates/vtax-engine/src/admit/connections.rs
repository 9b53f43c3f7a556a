//! Connections: the initiator shows the token and the flow's index; when all flows have done so,
//! the responder's threads answer each with one byte.

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{RecvFlags, recv},
};
use socket2::Socket;
use vtax_model::{
    station::{Station, Target},
    workload::Transport,
};

use super::{Watched, admission, arrival};
use crate::{
    error::{EngineError, Result},
    flow::{Flow, Session},
    socket::{self, Listener},
    wire::{HELLO_LEN, READY, hello, read_hello},
};

/// Time limit for a connection to show its token. TCP sends a lost segment for the fourth time after 1 + 2 + 4 s (RFC
/// 6298), and this is slightly more. A NIC whose MTU has just changed may still lose packets.
const SHOW_TOKEN: Duration = Duration::from_secs(8);

/// Connections that have not shown a token yet. Beyond this number, the oldest is dropped. An initiator has fewer in
/// progress.
const PENDING_MOST: usize = 1024;

/// Concurrent connection attempts of an initiator: fewer than the listener's queue holds.
const UNDER_WAY: usize = 100;

/// The listener's number among the watched sockets.
const LISTENER: u64 = 0;

// --- responder ---

/// Waits until every flow of the test has shown the token. Unauthenticated peers are dropped without an answer, and
/// none of them is waited for.
pub(crate) fn admit(listener: &Listener, flows: u32, session: &Arc<Session>) -> Result<Vec<Flow>> {
    let deadline = Instant::now() + arrival(flows);
    let mut admission = Admission::new(listener, flows, session)?;
    while admission.missing > 0 {
        let now = Instant::now();
        if now >= deadline {
            return Err(admission.flows_missing(arrival(flows)));
        }
        for number in admission.watched.wait(deadline - now, &session.cancel)? {
            match number {
                LISTENER => admission.accept_waiting()?,
                number => admission.examine(number)?,
            }
        }
        admission.drop_late(Instant::now());
    }
    Ok(admission.flows.into_iter().flatten().collect())
}

struct Admission<'a> {
    listener: &'a Listener,
    session: &'a Arc<Session>,
    watched: Watched,
    /// Keyed by each connection's number in `watched`; numbers rise.
    pending: BTreeMap<u64, Pending>,
    next: u64,
    flows: Vec<Option<Flow>>,
    missing: usize,
}

struct Pending {
    socket: Socket,
    peer: Target,
    hello: [u8; HELLO_LEN],
    received: usize,
    deadline: Instant,
}

impl<'a> Admission<'a> {
    fn new(listener: &'a Listener, flows: u32, session: &'a Arc<Session>) -> Result<Admission<'a>> {
        let watched = Watched::new()?;
        watched.add(&*listener.socket, LISTENER, EventFlags::IN)?;
        let flows: Vec<Option<Flow>> = (0..flows).map(|_| None).collect();
        let missing = flows.len();
        Ok(Admission { listener, session, watched, pending: BTreeMap::new(), next: LISTENER + 1, flows, missing })
    }

    fn flows_missing(&self, waited: Duration) -> EngineError {
        let expected = self.flows.len();
        let address = self.listener.target.clone();
        EngineError::FlowsMissing { address, arrived: expected - self.missing, expected, waited }
    }

    /// Accepts only a few connections at a time, so that pending ones are read even during a flood.
    fn accept_waiting(&mut self) -> Result<()> {
        for _ in 0..UNDER_WAY {
            match self.listener.socket.accept() {
                // Unix domain sockets have no name here, so errors use the listener's name.
                Ok((socket, peer)) => {
                    let peer = socket::read_address(&peer).unwrap_or_else(|| self.listener.target.clone());
                    self.take_in(socket, peer)?;
                }
                Err(error) => return accept_failed(error, &self.listener.target),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, socket: Socket, peer: Target) -> Result<()> {
        if self.pending.len() == PENDING_MOST {
            self.pending.pop_first();
        }
        let number = self.next;
        self.next += 1;
        self.watched.add(&socket, number, EventFlags::IN)?;
        let deadline = Instant::now() + SHOW_TOKEN;
        self.pending.insert(number, Pending { socket, peer, hello: [0; HELLO_LEN], received: 0, deadline });
        Ok(())
    }

    /// Reads what a pending connection has sent, and admits it, drops it or keeps it.
    fn examine(&mut self, number: u64) -> Result<()> {
        let Some(pending) = self.pending.get_mut(&number) else { return Ok(()) };
        match pending.read() {
            Hello::Partly => Ok(()),
            Hello::Ended => {
                self.pending.remove(&number);
                Ok(())
            }
            Hello::Whole => {
                let pending = self.pending.remove(&number).expect("it has just been there");
                self.watched.remove(&pending.socket)?;
                self.admit(pending);
                Ok(())
            }
        }
    }

    /// Gives the index to the first connection that shows it.
    fn admit(&mut self, pending: Pending) {
        let Some(index) = read_hello(&pending.hello, &self.session.token) else { return };
        if let Some(place @ None) = self.flows.get_mut(index as usize) {
            *place = Some(Flow::new(index, pending.socket, pending.peer, self.session));
            self.missing -= 1;
        }
    }

    /// `pending` is in the order of the deadlines.
    fn drop_late(&mut self, now: Instant) {
        while self.pending.first_entry().is_some_and(|pending| pending.get().deadline <= now) {
            self.pending.pop_first();
        }
    }
}

fn accept_failed(error: io::Error, address: &Target) -> Result<()> {
    match Errno::from_io_error(&error) {
        // ECONNABORTED: an unauthenticated peer closed its connection before we accepted it.
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

// --- initiator ---

/// Connects all flows, many at a time, and waits until the responder has admitted each.
pub(crate) fn connect(flows: u32, station: &Station, target: &Target, session: &Arc<Session>) -> Result<Vec<Flow>> {
    let deadline = Instant::now() + admission(flows);
    let mut dialling = Dialling { station, target, session, watched: Watched::new()?, connected: vec![] };
    dialling.connected.resize_with(flows as usize, || None);
    dialling.connect_all(deadline)?;
    let flows: Vec<Flow> = dialling.connected.into_iter().flatten().collect();
    for flow in &flows {
        await_ready(flow, deadline, admission(flows.len() as u32))?;
    }
    Ok(flows)
}

struct Dialling<'a> {
    station: &'a Station,
    target: &'a Target,
    session: &'a Arc<Session>,
    watched: Watched,
    connected: Vec<Option<Flow>>,
}

impl Dialling<'_> {
    fn connect_all(&mut self, deadline: Instant) -> Result<()> {
        let mut waiting: BTreeMap<u64, Socket> = BTreeMap::new();
        let mut next = 0;
        while next < self.connected.len() || !waiting.is_empty() {
            if Instant::now() >= deadline {
                return Err(EngineError::connecting(self.target, Errno::TIMEDOUT.into()));
            }
            while next < self.connected.len() && waiting.len() < UNDER_WAY {
                match self.begin()? {
                    Begun::Connected(socket) => self.greet(next, socket)?,
                    Begun::UnderWay(socket) => {
                        self.watched.add(&socket, next as u64, EventFlags::OUT)?;
                        waiting.insert(next as u64, socket);
                    }
                    Begun::QueueFull => break,
                }
                next += 1;
            }
            for number in self.watched.wait(Duration::from_millis(1), &self.session.cancel)? {
                if let Some(socket) = waiting.remove(&number) {
                    self.watched.remove(&socket)?;
                    if let Ok(Some(error)) | Err(error) = socket.take_error() {
                        return Err(EngineError::connecting(self.target, error));
                    }
                    self.greet(number as usize, socket)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&self) -> Result<Begun> {
        let spec = &self.session.spec;
        let socket = socket::dialling(spec, self.station, self.target)?;
        let connecting = |error| EngineError::connecting(self.target, error);
        socket.set_nonblocking(true).map_err(connecting)?;
        let begun = socket.connect(&socket::address(self.target)?);
        match begun.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(()) => Ok(Begun::Connected(socket)),
            Err((Some(Errno::INPROGRESS), _)) => Ok(Begun::UnderWay(socket)),
            Err((Some(Errno::AGAIN), _)) if spec.transport == Transport::Unix => Ok(Begun::QueueFull),
            Err((_, error)) => Err(connecting(error)),
        }
    }

    fn greet(&mut self, index: usize, socket: Socket) -> Result<()> {
        let connecting = |error| EngineError::connecting(self.target, error);
        socket.set_nonblocking(false).map_err(connecting)?;
        let flow = Flow::new(index as u32, socket, self.target.clone(), self.session);
        let hello = hello(&self.session.token, flow.index);
        // A fresh socket has room for these bytes.
        let sent = rustix::net::send(&*flow.socket, &hello, rustix::net::SendFlags::NOSIGNAL);
        sent.map_err(|errno| refused(&flow, flow.failed("handshake", errno, SHOW_TOKEN)))?;
        self.connected[index] = Some(flow);
        Ok(())
    }
}

enum Begun {
    Connected(Socket),
    UnderWay(Socket),
    /// The queue of a Unix domain listener is full. Nothing signals when it has space again.
    QueueFull,
}

/// Waits until the responder has admitted this flow. The responder answers all flows only when all are there,
/// so the wait for the first one covers the others.
fn await_ready(flow: &Flow, deadline: Instant, waited: Duration) -> Result<()> {
    let mut watched = None;
    while Instant::now() < deadline {
        let mut answer = [0];
        match recv(&*flow.socket, &mut answer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(refused(flow, flow.ended("handshake"))),
            Ok(_) if answer == [READY] => return Ok(()),
            Ok(_) => return Err(flow.strange("a wrong answer to the handshake")),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(refused(flow, flow.failed("handshake", errno, waited))),
        }
        if watched.is_none() {
            watched.insert(Watched::new()?).add(&*flow.socket, 0, EventFlags::IN)?;
        }
        let watched = watched.as_mut().expect("it was just made");
        watched.wait(deadline.saturating_duration_since(Instant::now()), &flow.session.cancel)?;
    }
    Err(EngineError::Unanswered { target: flow.peer.clone(), flow: flow.index, waited })
}

/// A connection that ends before it was admitted was refused by the responder.
fn refused(flow: &Flow, error: EngineError) -> EngineError {
    match error {
        EngineError::PeerGone { .. } => EngineError::Refused { target: flow.peer.clone(), flow: flow.index },
        other => other,
    }
}
