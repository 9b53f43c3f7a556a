//! What an agent does for the guest that it is in.

use std::{
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use vtax_model::units::{ByteSize, Span};

use super::{AgentError, AgentLink, Incoming, PendingReply};
use crate::protocol::{Attached, CallOutcome, LinkSetup, Ran, Reply, Request, SessionId, Signal, Stream};

/// How long an agent takes to say that a link isn't there, or has no carrier, with a margin.
const ATTACHED: Duration = Duration::from_secs(20);
/// What a program may take beyond its time, on a busy machine.
const MARGIN: Duration = Duration::from_secs(10);
/// How much of a program's outputs may be on the way to us. Half of it is asked for at a time, so
/// that the program never waits for a coordinator that keeps up.
const WINDOW: ByteSize = ByteSize(256 << 10);

impl AgentLink {
    /// Sets up a link of the guest, and waits until it has a carrier. Again with another MTU or
    /// further addresses, only these change.
    pub fn attach(&self, attachment: &LinkSetup) -> Result<Attached, AgentError> {
        let request = Request::Attach { session: self.new_session(), attachment: attachment.clone() };
        match self.call(request)?.wait(ATTACHED)? {
            Reply::Link(attached) => Ok(attached),
            _ => Err(self.odd("set up its link")),
        }
    }

    /// Runs a program in the guest to its end, with this on its standard input, and kills it if it
    /// takes longer than `limit`.
    pub fn run(&self, argv: &[String], stdin: &[u8], limit: Span) -> Result<Ran, AgentError> {
        let (session, argv, stdin) = (self.new_session(), argv.to_vec(), stdin.to_vec());
        let request = Request::Run { session, argv, stdin, limit, window: None };
        match self.call(request)?.wait(limit.0.saturating_add(MARGIN))? {
            Reply::Ran(ran) => Ok(ran),
            _ => Err(self.odd("run a program")),
        }
    }

    /// Starts a program in the guest like [`run`](Self::run), for up to
    /// [`WATCHED_MOST`](crate::limits::WATCHED_MOST); its outputs come as it writes them, however
    /// much that is. What hasn't been sent yet is kept by nobody: a program that is not followed
    /// fast enough waits when its pipe is full.
    pub fn start(&self, argv: &[String], stdin: &[u8], limit: Span) -> Result<Running<'_>, AgentError> {
        let (session, argv, stdin) = (self.new_session(), argv.to_vec(), stdin.to_vec());
        let (sender, arrivals) = mpsc::channel();
        let window = Some(WINDOW);
        let what = self.send(Request::Run { session, argv, stdin, limit, window }, sender, 0)?;
        let patience = limit.0.saturating_add(MARGIN);
        Ok(Running { link: self, session, what, arrivals, patience, started: Instant::now(), ended: false })
    }

    /// Runs a program in the guest to its end and hands on its outputs as they come, each in its
    /// order; returns its status as in [`Ran`]. To signal it meanwhile, see [`start`](Self::start).
    pub fn run_streaming(
        &self,
        argv: &[String],
        stdin: &[u8],
        limit: Span,
        on_output: impl FnMut(Stream, &[u8]),
    ) -> Result<i32, AgentError> {
        self.start(argv, stdin, limit)?.follow(on_output)
    }

    /// Sends a signal to the process group of a program ([`Running::session`]), from any thread. It
    /// doesn't wait; the answer says that the agent has passed it on or that the program has ended.
    pub fn signal(&self, session: SessionId, signal: Signal) -> Result<PendingReply<'_>, AgentError> {
        self.call(Request::Signal { session, signal })
    }

    /// Switches the guest off. It is off when its QEMU has ended: the answer, which may get lost on
    /// the way, only says that it will be.
    pub fn power_off(self, deadline: Duration) -> Result<(), AgentError> {
        match self.call(Request::PowerOff)?.wait(deadline) {
            Err(error) if !error.is_death() => Err(error),
            _ => Ok(()),
        }
    }
}

/// A program that runs in a guest. Dropping it kills the program.
#[derive(Debug)]
pub struct Running<'link> {
    link: &'link AgentLink,
    session: SessionId,
    what: &'static str,
    arrivals: Receiver<Incoming>,
    started: Instant,
    patience: Duration,
    ended: bool,
}

impl Running<'_> {
    /// What [`AgentLink::signal`] and [`AgentLink::cancel`] call it by.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Hands on its outputs as they come, until it has ended; returns its status as in [`Ran`].
    /// Other calls on the link go on however long `on_output` takes.
    pub fn follow(self, mut on_output: impl FnMut(Stream, &[u8])) -> Result<i32, AgentError> {
        let mut taken = 0;
        loop {
            let arrival = self.next()?;
            let Ok(CallOutcome::Output(output)) = arrival.outcome else { return self.end(arrival) };
            on_output(output.stream, &output.bytes);
            taken += output.bytes.len() as u64;
            if taken >= WINDOW.0 / 2 {
                self.link.call(Request::More { session: self.session, taken: ByteSize(taken) })?;
                taken = 0;
            }
        }
    }

    fn next(&self) -> Result<Incoming, AgentError> {
        let left = self.patience.saturating_sub(self.started.elapsed());
        self.arrivals.recv_timeout(left).map_err(|_| self.link.late(self.what, self.patience))
    }

    fn end(mut self, arrival: Incoming) -> Result<i32, AgentError> {
        self.ended = true;
        match self.link.open(self.what, arrival)? {
            Reply::Ran(ran) => Ok(ran.status),
            _ => Err(self.link.odd(self.what)),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // An agent that is gone has taken the program along.
            let _ = self.link.cancel(self.session);
        }
    }
}
