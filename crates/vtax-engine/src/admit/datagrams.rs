//! UDP flows.
//!
//! The responder's first socket is unconnected and receives the hellos. For each flow the responder creates another
//! socket on the same port, connected to the initiator's socket. The kernel prefers that one for datagrams from there
//! (`compute_score` in net/ipv4/udp.c). The first socket stays open until the test is over, but is no longer read. So
//! an unauthenticated peer's datagram finds a socket, and gets neither an answer nor a refusal by ICMP.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{RecvFlags, recvfrom},
};
use vtax_model::station::{Station, Target};
use vtax_sys::sock::set_receive_space;

use super::{Watched, admission, arrival};
use crate::{
    error::{EngineError, Result},
    flow::{Flow, Session},
    group::StreamGroup,
    options,
    socket::{self, Listener, bind_shared},
    wire::{FlowGreeting, GREETING_LEN},
};

/// Interval at which a flow repeats its hello until it is answered.
const HELLO_EVERY: Duration = Duration::from_millis(50);

/// Hellos sent without a pause: as many as a default receive buffer holds.
const HELLOS: usize = 100;

/// Datagrams read without a pause before deadlines are checked.
const BATCH: usize = 256;

/// Space in the receive buffer for the hellos of very many flows.
const HELLO_SPACE: usize = 4 << 20;

// --- responder ---

/// Waits until every flow of the test has said hello with the right token.
pub(crate) fn admit(listener: &Listener, flows: u32, session: &Arc<Session>) -> Result<Vec<Flow>> {
    let deadline = Instant::now() + arrival(flows);
    // A smaller buffer would work too: flows repeat their hellos.
    let _ = set_receive_space(&*listener.socket, HELLO_SPACE);
    let mut watched = Watched::new()?;
    watched.add(&*listener.socket, 0, EventFlags::IN)?;
    let mut admitted: Vec<Option<Flow>> = (0..flows).map(|_| None).collect();
    let mut missing = admitted.len();
    while missing > 0 {
        let now = Instant::now();
        if now >= deadline {
            let (arrived, expected) = (admitted.len() - missing, admitted.len());
            let address = listener.target.clone();
            return Err(EngineError::FlowsMissing { address, arrived, expected, waited: arrival(flows) });
        }
        watched.wait(deadline - now, &session.cancel)?;
        for _ in 0..BATCH {
            let Some((index, peer)) = hear_hello(listener, session)? else { break };
            // The index belongs to the first socket that shows it. Its repeated hellos go to the flow's own socket.
            if let Some(place @ None) = admitted.get_mut(index as usize) {
                *place = Some(admit_one(listener, index, peer, session)?);
                missing -= 1;
            }
        }
    }
    Ok(admitted.into_iter().flatten().collect())
}

/// The next hello that shows the token. None if there is nothing left to read.
fn hear_hello(listener: &Listener, session: &Session) -> Result<Option<(u32, Target)>> {
    for _ in 0..BATCH {
        let mut datagram = [0; GREETING_LEN + 1];
        let (len, peer) = match recvfrom(&*listener.socket, &mut datagram, RecvFlags::DONTWAIT) {
            Ok((len, _, peer)) => (len, peer.and_then(|peer| peer.try_into().ok().map(Target::Ip))),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(EngineError::local("receive", &listener.target, errno.into())),
        };
        if let (Some((index, FlowGreeting::Hello)), Some(peer)) =
            (FlowGreeting::read(&datagram[..len], &session.token), peer)
        {
            return Ok(Some((index, peer)));
        }
    }
    Ok(None)
}

fn admit_one(listener: &Listener, index: u32, peer: Target, session: &Arc<Session>) -> Result<Flow> {
    let socket = socket::create(session.spec.transport, &listener.station)?;
    options::apply(&socket, &session.spec, &peer)?;
    bind_shared(&socket, &listener.target)?;
    socket.connect(&socket::address(&peer)?).map_err(|error| EngineError::connecting(&peer, error))?;
    let flow = Flow::new(index, socket, peer, session);
    flow.check_datagrams()?;
    let flow = match session.spec.workload.kind().is_multicast() {
        true => {
            let group = StreamGroup::of(&listener.target, index, &listener.station, &flow.peer)?;
            flow.in_group(group.target(), group.receiving(&session.spec)?, false)
        }
        false => flow,
    };
    flow.greet(FlowGreeting::Heard)?;
    Ok(flow)
}

// --- initiator ---

/// Sends hellos for every flow until the responder has received them, and then until it is ready.
pub(crate) fn connect(flows: u32, station: &Station, target: &Target, session: &Arc<Session>) -> Result<Vec<Flow>> {
    let begun = Instant::now();
    let connect = |index| connect_one(index, station, target, session);
    let connected = (0..flows).map(connect).collect::<Result<Vec<_>, _>>()?;
    let mut waiting = Waiting::new(&connected, session, admission(flows))?;
    let told = waiting.until_all_are_ready(begun);
    told.map_err(|error| absent(target, begun.elapsed(), error))?;
    Ok(connected)
}

/// An immediate refusal means that nothing listens. A later one comes from a responder that has given up: it received
/// hellos but answered none, so it expects another token.
fn absent(target: &Target, waited: Duration, error: EngineError) -> EngineError {
    let target = target.clone();
    match error {
        EngineError::PeerGone { .. } if waited < Duration::from_secs(1) => EngineError::NothingListens { target },
        EngineError::PeerGone { .. } => EngineError::Unanswered { target, flow: 0, waited },
        other => other,
    }
}

fn connect_one(index: u32, station: &Station, target: &Target, session: &Arc<Session>) -> Result<Flow> {
    let socket = socket::dialling(&session.spec, station, target)?;
    socket.connect(&socket::address(target)?).map_err(|error| EngineError::connecting(target, error))?;
    let mut flow = Flow::new(index, socket, target.clone(), session);
    if session.spec.workload.kind().is_multicast() {
        let group = StreamGroup::of(target, index, station, target)?;
        flow = flow.in_group(group.target(), group.sending(&session.spec)?, true);
    }
    flow.check_datagrams()?;
    Ok(flow)
}

struct Waiting<'a> {
    flows: &'a [Flow],
    session: &'a Session,
    watched: Watched,
    state: Vec<State>,
    patience: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unheard,
    Heard,
    Ready,
}

impl<'a> Waiting<'a> {
    fn new(flows: &'a [Flow], session: &'a Session, patience: Duration) -> Result<Waiting<'a>> {
        let watched = Watched::new()?;
        for (number, flow) in flows.iter().enumerate() {
            watched.add(&*flow.hears, number as u64, EventFlags::IN)?;
        }
        Ok(Waiting { flows, session, watched, state: vec![State::Unheard; flows.len()], patience })
    }

    fn until_all_are_ready(&mut self, begun: Instant) -> Result<()> {
        let mut turn = 0;
        while let Some(first) = self.state.iter().position(|state| *state != State::Ready) {
            if begun.elapsed() >= self.patience {
                let flow = &self.flows[first];
                let (target, waited) = (flow.peer.clone(), self.patience);
                return Err(EngineError::Unanswered { target, flow: flow.index, waited });
            }
            // The message that a flow is ready may get lost. The flow's own socket at the responder repeats it after
            // another hello. Losses are rare, so these flows send a hello only every tenth time.
            self.say_hello(turn % 10 == 9)?;
            turn += 1;
            let pause = Instant::now() + HELLO_EVERY;
            while Instant::now() < pause && self.state.iter().any(|state| *state != State::Ready) {
                self.listen(pause.saturating_duration_since(Instant::now()))?;
            }
        }
        Ok(())
    }

    fn say_hello(&mut self, to_all: bool) -> Result<()> {
        let is_due = |state: &State| *state == State::Unheard || (to_all && *state == State::Heard);
        let due: Vec<usize> = (0..self.flows.len()).filter(|number| is_due(&self.state[*number])).collect();
        for stretch in due.chunks(HELLOS) {
            let say = |number: &usize| self.flows[*number].say_hello(self.state[*number] != State::Unheard);
            stretch.iter().try_for_each(say)?;
            if due.len() > HELLOS {
                self.listen(Duration::from_millis(2))?;
            }
        }
        Ok(())
    }

    fn listen(&mut self, most: Duration) -> Result<()> {
        for number in self.watched.wait(most, &self.session.cancel)? {
            let (flow, state) = (&self.flows[number as usize], &mut self.state[number as usize]);
            *state = hear(flow, *state)?;
            // Nothing more is read here: the messages of a stream may follow immediately.
            if *state == State::Ready {
                self.watched.remove(&*flow.hears)?;
            }
        }
        Ok(())
    }
}

/// Reads greetings until one reports that the flow is ready.
fn hear(flow: &Flow, mut state: State) -> Result<State> {
    for _ in 0..BATCH {
        let mut datagram = [0; GREETING_LEN + 1];
        match rustix::net::recv(&*flow.hears, &mut datagram, RecvFlags::DONTWAIT) {
            Ok((len, _)) if flow.is_greeting(&datagram[..len], FlowGreeting::Ready) => return Ok(State::Ready),
            Ok((len, _)) if flow.is_greeting(&datagram[..len], FlowGreeting::Heard) => state = State::Heard,
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => break,
            Err(errno) => return Err(flow.failed("handshake", errno, HELLO_EVERY)),
        }
    }
    Ok(state)
}
