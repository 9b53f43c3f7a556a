//! Watching an address from outside: ICMP echo requests at a fixed rate, and the silences between the answers.
//!
//! The other machine's kernel answers, so no program of ours has to run there. The machine may be suspended and
//! continue on another host in the meantime, which ends every connection to an agent in it. So there is no handshake,
//! no warm-up and no responder, and a watch ends on request.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::Socket;
use vtax_model::{
    measurement::{ECHO_LOST_AFTER, EchoWatch, EndReport, SilenceLog},
    station::Target,
};
use vtax_stats::histogram::Histogram;
use vtax_sys::{clock::now_ns, token::Token};

use crate::{
    account::{after, nanoseconds, seconds},
    cancel::Cancel,
    error::{EngineError, Result, is_outage},
    socket,
    task::echo::{HEADER, Types},
    wire::{Head, Mark, Stamp, TOKEN_END, shows_token},
};

/// Number of overdue requests that are sent in a row before answers are received.
const STRETCH: u32 = 8;
/// A cancelled watch ends within this time.
const NAP: Duration = Duration::from_millis(50);
/// Payload of a request and of its answer: the stamp and the token.
const PAYLOAD: usize = TOKEN_END;

/// Watches an address until the watch is cancelled or its time is over, neither of which is an error. The report has
/// the silences, the round-trip times from when each request was due, and the number of lost requests; requests in
/// flight at the end are neither answered nor lost.
pub fn watch(watch: &EchoWatch, cancel: &Cancel) -> Result<EndReport> {
    let peer = Target::Ip(SocketAddr::new(watch.target, 0));
    socket::check_family(vtax_model::workload::Transport::Icmp, &watch.station, Some(&peer))?;
    let types = Types::of(watch.target);
    let socket = types.socket(&peer)?;
    socket::bind_device(&socket, &watch.station)?;
    socket::bind_to(&socket, &watch.station)?;
    socket.connect(&socket::address(&peer)?).map_err(|error| EngineError::connecting(&peer, error))?;
    socket.set_nonblocking(true).map_err(|error| EngineError::socket("set up a socket", &peer, error))?;
    let mut echoes = Echoes::new(watch, socket, peer, types);
    while !cancel.is_cancelled() && now_ns() < echoes.ends {
        echoes.step()?;
    }
    Ok(echoes.into_report())
}

/// An open loop of echo requests.
struct Echoes {
    socket: Socket,
    peer: Target,
    types: Types,
    token: Token,
    head: Head,
    start: u64,
    every: u64,
    ends: u64,
    /// Number of the last request sent, from 1.
    sent: u64,
    pending: VecDeque<Pending>,
    stretch: u32,
    silences: SilenceLog,
    report: EndReport,
}

#[derive(Clone, Copy)]
struct Pending {
    due: u64,
    sent: u64,
    answered: bool,
}

impl Echoes {
    fn new(watch: &EchoWatch, socket: Socket, peer: Target, types: Types) -> Echoes {
        let (token, start) = (Token::random(), now_ns());
        let head = Head::with_token(PAYLOAD, &token);
        let report = EndReport { started_ns: start, rtt: Some(Histogram::new()), ..EndReport::default() };
        Echoes {
            socket,
            peer,
            types,
            token,
            head,
            start,
            every: nanoseconds(watch.every.0).max(1),
            ends: after(start, watch.most.0),
            sent: 0,
            pending: VecDeque::new(),
            stretch: 0,
            silences: SilenceLog::begin(start, 0),
            report,
        }
    }

    fn due(&self) -> u64 {
        self.start.saturating_add(self.sent.saturating_mul(self.every))
    }

    /// Sends a request that is due, or waits until one is and receives answers.
    fn step(&mut self) -> Result<()> {
        let (now, due) = (now_ns(), self.due());
        if due <= now && self.stretch < STRETCH {
            self.stretch += 1;
            return self.send(due, now);
        }
        self.stretch = 0;
        let left = Duration::from_nanos(due.saturating_sub(now)).min(NAP);
        let timeout = Timespec::try_from(left).expect("at most 50 ms");
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(self.failed("wait for", errno)),
        }
        self.receive()?;
        self.drop_lost(now_ns());
        Ok(())
    }

    fn send(&mut self, due: u64, now: u64) -> Result<()> {
        self.sent += 1;
        self.silences.behind(now - due);
        self.pending.push_back(Pending { due, sent: now, answered: false });
        self.head.stamp(Stamp::new(self.sent, Mark::None));
        let (message, len) = self.types.request(self.head.bytes());
        match send(&self.socket, &message[..len], SendFlags::empty()) {
            // During an outage, the kernel may refuse to send. Such a request is lost like one that was sent.
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(errno) if is_outage(errno) => Ok(()),
            Err(errno) => Err(self.failed("send", errno)),
        }
    }

    /// Receives everything that has arrived.
    fn receive(&mut self) -> Result<()> {
        let mut message = [0; HEADER + PAYLOAD + 1];
        loop {
            match recv(&self.socket, &mut message, RecvFlags::TRUNC) {
                Ok((_, len)) => self.take(message.get(..len).unwrap_or_default()),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) if is_outage(errno) => {}
                Err(errno) => return Err(self.failed("receive", errno)),
            }
        }
    }

    /// Handles an answer; messages of other programs are ignored.
    fn take(&mut self, message: &[u8]) {
        let payload = self.types.payload(message);
        if payload.len() == PAYLOAD && shows_token(payload, &self.token) {
            self.answered(Stamp::sequence_of(payload), now_ns());
        }
    }

    fn answered(&mut self, number: u64, now: u64) {
        let first = self.sent + 1 - self.pending.len() as u64;
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        let due = self.due();
        let Some(pending) = place.and_then(|place| self.pending.get_mut(place)) else { return };
        if std::mem::replace(&mut pending.answered, true) {
            return;
        }
        self.silences.behind(now.saturating_sub(due));
        self.silences.answered(number, pending.due, now);
        self.report.transactions += 1;
        if let Some(rtt) = &mut self.report.rtt {
            rtt.record(now.saturating_sub(pending.due));
        }
    }

    /// Forgets requests that are answered or no longer waited for.
    fn drop_lost(&mut self, now: u64) {
        while let Some(first) = self.pending.front().copied() {
            if !first.answered && now < after(first.sent, ECHO_LOST_AFTER) {
                return;
            }
            let number = self.sent + 1 - self.pending.len() as u64;
            if !first.answered {
                self.report.lost += 1;
                self.silences.lost(number, first.sent);
            }
            self.pending.pop_front();
        }
    }

    fn into_report(mut self) -> EndReport {
        let (now, waits) = (now_ns(), self.pending.iter().any(|pending| !pending.answered));
        self.silences.end(waits.then_some(now));
        let seconds = seconds(self.start, now);
        EndReport { seconds, silences: self.silences.longest(), ..self.report }
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> EngineError {
        EngineError::socket(operation, &self.peer, errno.into())
    }
}
