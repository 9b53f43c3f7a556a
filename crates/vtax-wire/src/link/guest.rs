//! An agent's operations on its guest.

use std::time::{Duration, Instant};

use vtax_model::units::{ByteSize, Span};
use vtax_sys::deadline::ProgramDeadline;

use super::{AgentError, AgentLink, PendingReply};
use crate::protocol::{
    AddressLoan, Attached, CallOutcome, LinkSetup, MemoryLoad, ProgramSpec, Ran, Reply, Request, SessionId, Signal,
    Stream,
};

/// Time for an agent to report that a link doesn't exist or has no carrier, with a margin.
const ATTACHED: Duration = Duration::from_secs(20);
/// Additional time beyond [`ProgramDeadline::most`] for the agent's answer.
const MARGIN: Duration = Duration::from_secs(10);
/// Time for an agent to learn that it may send more, with a margin for a busy machine.
const ATTENTIVE: Duration = Duration::from_secs(20);
/// Time for an agent to touch all memory for the first time. An emulated guest fills 100 MB per second.
const FILLED: Duration = Duration::from_secs(300);
/// Number of bytes of a program's output that may be in flight. More is requested when half of it is used, so a program
/// never waits for a coordinator that keeps up.
const WINDOW: ByteSize = ByteSize(256 << 10);

impl AgentLink {
    /// Sets up a link of the guest, and waits until it has a carrier. If it is set up again with another MTU
    /// or more addresses, only these change.
    pub fn attach(&self, attachment: &LinkSetup) -> Result<Attached, AgentError> {
        let request = Request::Attach { session: self.new_session(), attachment: attachment.clone() };
        match self.call(request)?.wait(ATTACHED)? {
            Reply::Link(attached) => Ok(attached),
            _ => Err(self.odd("set up its link")),
        }
    }

    /// Temporarily assigns an address to a link of the guest, for as long as this agent link lasts, and waits until it
    /// has a carrier.
    pub fn lend(&self, loan: &AddressLoan) -> Result<Attached, AgentError> {
        let request = Request::Lend { session: self.new_session(), loan: loan.clone() };
        match self.call(request)?.wait(ATTACHED)? {
            Reply::Link(attached) => Ok(attached),
            _ => Err(self.odd("add an address")),
        }
    }

    /// Removes all temporarily assigned addresses.
    pub fn take_back(&self) -> Result<(), AgentError> {
        match self.call(Request::TakeBack)?.wait(ATTACHED)? {
            Reply::Done => Ok(()),
            _ => Err(self.odd("remove its addresses")),
        }
    }

    /// Dirties memory of the guest at a rate, until another load is set. Returns when all of it is in use.
    pub fn load_memory(&self, load: MemoryLoad) -> Result<(), AgentError> {
        match self.call(Request::Load(load))?.wait(FILLED)? {
            Reply::Done => Ok(()),
            _ => Err(self.odd("change its memory")),
        }
    }

    /// Runs a program in the guest to its end, with `stdin` on its standard input, and kills it if it takes
    /// longer than `limit`.
    pub fn run(&self, argv: &[String], stdin: &[u8], limit: Span) -> Result<Ran, AgentError> {
        self.begin(argv, stdin, limit, None)?.follow_to_reply(|_, _| ())
    }

    /// Starts a program in the guest like [`run`](Self::run), for up to [`WATCHED_MOST`](crate::limits::WATCHED_MOST).
    /// Its outputs are streamed. If they are not consumed fast enough, the program blocks on a full pipe.
    pub fn start(&self, argv: &[String], stdin: &[u8], limit: Span) -> Result<Running<'_>, AgentError> {
        self.begin(argv, stdin, limit, Some(WINDOW))
    }

    fn begin(
        &self,
        argv: &[String],
        stdin: &[u8],
        limit: Span,
        window: Option<ByteSize>,
    ) -> Result<Running<'_>, AgentError> {
        let (session, argv, stdin) = (self.new_session(), argv.to_vec(), stdin.to_vec());
        let pending = self.call(Request::Run(ProgramSpec { session, argv, stdin, limit, window }))?;
        let patience = ProgramDeadline::most(limit.0).saturating_add(MARGIN);
        Ok(Running { pending, session, patience, started: Instant::now(), ended: false })
    }

    /// Sends a signal to the process group of a program ([`Running::session`]), from any thread. Doesn't wait. The
    /// answer means that the agent has delivered the signal or that the program has exited.
    pub fn signal(&self, session: SessionId, signal: Signal) -> Result<PendingReply<'_>, AgentError> {
        self.call(Request::Signal { session, signal })
    }
}

/// A program that runs in a guest. Dropping it kills the program.
#[derive(Debug)]
pub struct Running<'link> {
    pending: PendingReply<'link>,
    session: SessionId,
    started: Instant,
    patience: Duration,
    ended: bool,
}

impl Running<'_> {
    /// The session's id, for [`AgentLink::signal`] and [`AgentLink::cancel`].
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Streams the program's outputs until it exits. Returns its status as in [`Ran`]. Other calls on the link proceed,
    /// however long `on_output` takes.
    pub fn follow(self, on_output: impl FnMut(Stream, &[u8])) -> Result<i32, AgentError> {
        self.follow_to_reply(on_output).map(|ran| ran.status)
    }

    fn follow_to_reply(mut self, mut on_output: impl FnMut(Stream, &[u8])) -> Result<Ran, AgentError> {
        let (link, what) = (self.pending.link, self.pending.what);
        let mut taken = 0;
        let mut asked: Option<PendingReply<'_>> = None;
        loop {
            let left = self.patience.saturating_sub(self.started.elapsed());
            let arrival = self.pending.arrivals.recv_timeout(left).map_err(|_| link.late(what, self.patience))?;
            let Ok(CallOutcome::Output(output)) = arrival.outcome else {
                self.ended = true;
                return match link.open(what, arrival)? {
                    Reply::Ran(ran) => Ok(ran),
                    _ => Err(link.odd(what)),
                };
            };
            on_output(output.stream, &output.bytes);
            taken += output.bytes.len() as u64;
            if taken >= WINDOW.0 / 2 {
                // An agent that reads nothing would let our requests pile up.
                if let Some(before) = asked.take() {
                    before.wait(ATTENTIVE)?;
                }
                link.wire.widen(self.pending.id, taken);
                asked = Some(link.call(Request::More { session: self.session, taken: ByteSize(taken) })?);
                taken = 0;
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Without the agent, the program no longer runs.
            let _ = self.pending.link.cancel(self.session);
        }
    }
}
