//! The coordinator's side of one agent.
//!
//! Any thread may use a link, and waits for its own answer with its own deadline. One thread polls the streams of all
//! links of the process and passes each answer to its caller by the call's id. Data that a stream doesn't accept
//! immediately is queued. So an agent that has stopped reading doesn't block any caller. When the stream ends, every
//! waiting caller gets the agent's exit status and its last output.

mod dial;
mod error;
mod guest;
mod inbound;
mod poller;
mod process;
mod queue;
mod tuning;
mod watching;
mod wire;

use std::{
    net::IpAddr,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

pub use error::{AgentError, Death};
pub use guest::Running;
pub(crate) use process::ChildProcess;
use vtax_model::{endpoint::DeviceName, run::Hop, suspension::ClockExchange};
use vtax_tune::TuningOrder;
pub use watching::Watching;
use wire::ControlStream;
pub(crate) use wire::{AgentStream, Incoming, Past};

use crate::{
    clock::{EXCHANGES, Offset, now_ns},
    protocol::{AgentFacts, CallId, CallOutcome, Hello, Reply, Request, SessionId},
};

/// Time to wait for the answer to a greeting before retrying.
const GREETING: Duration = Duration::from_secs(5);

/// A connected agent of this program's version. Dropping it ends the agent: it closes the stream, and kills
/// the process if that isn't enough. The process is always reaped.
#[derive(Debug)]
pub struct AgentLink {
    hello: Hello,
    calls: AtomicU64,
    sessions: AtomicU64,
    wire: ControlStream,
}

impl AgentLink {
    /// Starts an agent and greets it. `name` is its name in errors, such as "zone bridge-sut".
    ///
    /// The agent gets its own process group. Ctrl-C in a terminal goes to the whole foreground group, and an agent must
    /// outlive it until the coordinator has stopped cleanly.
    pub fn spawn(name: &str, mut command: Command, deadline: Duration) -> Result<AgentLink, AgentError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn();
        let child = child.map_err(|source| AgentError::Start { name: name.into(), program, source })?;
        AgentLink::from_child(name, child, deadline)
    }

    /// Greets an agent that was started in some other way, e.g. in a namespace. Its standard input and output must be
    /// pipes, and its standard error should be one.
    pub fn from_child(name: &str, mut child: Child, deadline: Duration) -> Result<AgentLink, AgentError> {
        let streams = (child.stdout.take(), child.stdin.take());
        let process = ChildProcess::adopt(child);
        match streams {
            (Some(reader), Some(writer)) => {
                let (reader, unread, writer) = (reader.into(), Vec::new(), writer.into());
                AgentLink::greet(name, AgentStream { reader, unread, writer, process, past: Past::None }, deadline)
            }
            _ => Err(AgentError::NotPiped { name: name.into() }),
        }
    }

    /// Greets an agent at the other end of a stream. From then on, all descriptors of the stream on this side are
    /// nonblocking.
    pub fn from_streams(
        name: &str,
        reader: impl Into<OwnedFd>,
        writer: impl Into<OwnedFd>,
        deadline: Duration,
    ) -> Result<AgentLink, AgentError> {
        let (reader, unread, writer) = (reader.into(), Vec::new(), writer.into());
        let process = ChildProcess::without_child(None);
        AgentLink::greet(name, AgentStream { reader, unread, writer, process, past: Past::None }, deadline)
    }

    /// Greets the agent in a guest, at the host's end of its port. This is a unix socket of QEMU, which need not exist
    /// yet. Dropping the link closes the socket, and the agent stays in its guest. QEMU takes one connection at a time:
    /// while another link is open, this one gets no answer.
    pub fn connect_unix(name: &str, path: &Path, deadline: Duration) -> Result<AgentLink, AgentError> {
        let until = Instant::now() + deadline;
        loop {
            let socket = dial::connect(path, until);
            let socket = socket.map_err(|why| AgentError::NoSocket { name: name.into(), path: path.into(), why })?;
            let left = until.saturating_duration_since(Instant::now());
            match AgentLink::greet_guest(name, socket, left.min(GREETING)) {
                // If the greeting went to an earlier agent on this port, it is lost with that agent.
                Err(AgentError::Silent { .. }) if left > GREETING => {}
                Err(AgentError::Silent { name, stderr, .. }) => {
                    return Err(AgentError::Silent { name, deadline, stderr });
                }
                greeted => return greeted,
            }
        }
    }

    fn greet_guest(name: &str, socket: UnixStream, deadline: Duration) -> Result<AgentLink, AgentError> {
        let clone = || socket.try_clone().map_err(|source| AgentError::Descriptor { name: name.into(), source });
        let (reader, unread, writer) = (clone()?.into(), Vec::new(), clone()?.into());
        let process = ChildProcess::without_child(Some(socket));
        AgentLink::greet(name, AgentStream { reader, unread, writer, process, past: Past::Unknown }, deadline)
    }

    pub(crate) fn greet(name: &str, stream: AgentStream, deadline: Duration) -> Result<AgentLink, AgentError> {
        let (wire, hello) = ControlStream::open(name, stream, deadline)?;
        Ok(AgentLink { hello, calls: AtomicU64::new(1), sessions: AtomicU64::new(1), wire })
    }

    /// The agent's name, as given when it was connected.
    pub fn name(&self) -> &str {
        self.wire.name()
    }

    /// The agent's hello.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The process on this machine that carries the stream: the agent itself, or `ssh`.
    pub fn process_id(&self) -> Option<u32> {
        self.wire.process_id()
    }

    /// Sends a request without waiting for the answer.
    pub fn call(&self, request: Request) -> Result<PendingReply<'_>, AgentError> {
        let (sender, arrivals) = mpsc::channel();
        let (id, what) = self.send(request, sender, 0)?;
        Ok(PendingReply { link: self, id, what, arrivals })
    }

    /// An id that no session on this link has used.
    pub fn new_session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// Cancels a session. A caller that waits for it gets a fault of kind `Cancelled`.
    pub fn cancel(&self, session: SessionId) -> Result<PendingReply<'_>, AgentError> {
        self.call(Request::Cancel { session })
    }

    /// Cancels every session on this agent.
    pub fn cancel_all(&self) -> Result<PendingReply<'_>, AgentError> {
        self.call(Request::CancelAll)
    }

    /// Measures the time to an answer.
    pub fn ping(&self, deadline: Duration) -> Result<Duration, AgentError> {
        let start = Instant::now();
        self.call(Request::Ping)?.wait(deadline)?;
        Ok(start.elapsed())
    }

    /// Describes where the agent runs.
    pub fn describe(&self, deadline: Duration) -> Result<AgentFacts, AgentError> {
        match self.call(Request::Describe)?.wait(deadline)? {
            Reply::Facts(facts) => Ok(*facts),
            _ => Err(self.odd("describe")),
        }
    }

    /// The link through which packets `to` an address leave the agent's domain, if any. This is at most one hop, as
    /// seen from inside. `device` is the device to which the sender is bound, if any.
    pub fn route(
        &self,
        from: Option<IpAddr>,
        to: IpAddr,
        device: Option<DeviceName>,
        deadline: Duration,
    ) -> Result<Vec<Hop>, AgentError> {
        match self.call(Request::Route { from, to, device })?.wait(deadline)? {
            Reply::Route(hops) => Ok(hops),
            _ => Err(self.odd("route")),
        }
    }

    /// Returns how the agent was lost, if it was.
    pub fn death(&self) -> Option<Death> {
        self.wire.death()
    }

    /// Asks the agent to exit, without waiting for it. No calls are possible afterwards.
    pub(crate) fn close(&self) {
        self.wire.close();
    }

    /// Ends the link, and the process that carries it by this deadline.
    pub(crate) fn end_by(&self, deadline: Instant) {
        self.wire.end_by(deadline);
    }

    /// Ends the link for all callers that wait for answers: they get the error that the agent is gone. For use if that
    /// is known from another source.
    pub fn hang_up(&self) {
        self.wire.hang_up();
    }

    /// The lead of the agent's monotonic clock over this machine's, from several exchanges.
    pub fn clock_offset(&self, deadline: Duration) -> Result<Offset, AgentError> {
        let mut best = Offset::of(&self.exchange(deadline)?);
        for _ in 1..EXCHANGES {
            best = best.better(Offset::of(&self.exchange(deadline)?));
        }
        Ok(best)
    }

    /// Returns the CPUs of the agent's machine, and the CPU time of all programs there since they started, except the
    /// agent, the processes `ours`, and their descendants.
    pub fn other_programs(&self, ours: Vec<u32>, deadline: Duration) -> Result<(u32, Duration), AgentError> {
        match self.call(Request::OtherPrograms { ours })?.wait(deadline)? {
            Reply::OtherPrograms { cpus, cpu_ns } => Ok((cpus, Duration::from_nanos(cpu_ns))),
            _ => Err(self.odd("other programs")),
        }
    }

    /// Reads the agent's monotonic clock, between two readings of this machine's.
    pub fn exchange(&self, deadline: Duration) -> Result<ClockExchange, AgentError> {
        let sent_ns = now_ns();
        let reply = self.call(Request::Clock)?.wait(deadline)?;
        self.reading(sent_ns, reply)
    }

    /// Returns the exchange that ends now with this reply.
    pub(crate) fn reading(&self, sent_ns: u64, reply: Reply) -> Result<ClockExchange, AgentError> {
        match reply {
            Reply::Clock { now_ns: theirs_ns } => Ok(ClockExchange { sent_ns, theirs_ns, received_ns: now_ns() }),
            _ => Err(self.odd("clock")),
        }
    }

    /// Sends a request. Its answer goes to the caller's channel, marked with `tag`. Returns the call's id and a
    /// description of the request.
    pub(crate) fn send(
        &self,
        request: Request,
        answer_to: mpsc::Sender<Incoming>,
        tag: usize,
    ) -> Result<(CallId, &'static str), AgentError> {
        let what = verb(&request);
        let id = CallId(self.calls.fetch_add(1, Ordering::Relaxed));
        self.wire.send(id, request, answer_to, tag)?;
        Ok((id, what))
    }

    /// Returns the reply of an arrival, or its error.
    pub(crate) fn open(&self, what: &'static str, arrival: Incoming) -> Result<Reply, AgentError> {
        match arrival.outcome {
            Ok(CallOutcome::Done(reply)) => Ok(reply),
            Ok(CallOutcome::Output(_)) => Err(self.odd(what)),
            Ok(CallOutcome::Failed(fault)) => Err(AgentError::Refused { name: self.name().to_owned(), what, fault }),
            Err(death) => Err(AgentError::Died { name: self.name().to_owned(), death }),
        }
    }

    pub(crate) fn late(&self, what: &'static str, deadline: Duration) -> AgentError {
        AgentError::Deadline { name: self.name().to_owned(), what, deadline }
    }

    pub(crate) fn odd(&self, what: &'static str) -> AgentError {
        AgentError::OddReply { name: self.name().to_owned(), what }
    }
}

/// A request without an answer so far.
#[derive(Debug)]
pub struct PendingReply<'link> {
    link: &'link AgentLink,
    id: CallId,
    what: &'static str,
    arrivals: mpsc::Receiver<Incoming>,
}

impl PendingReply<'_> {
    /// Waits for the answer. It is an error if the answer doesn't come in time, or if the agent dies.
    pub fn wait(self, deadline: Duration) -> Result<Reply, AgentError> {
        match self.arrivals.recv_timeout(deadline) {
            Ok(arrival) => self.link.open(self.what, arrival),
            Err(_) => Err(self.link.late(self.what, deadline)),
        }
    }
}

fn verb(request: &Request) -> &'static str {
    match request {
        Request::Prepare { .. } => "prepare the file",
        Request::Listen { .. } => "listen",
        Request::Finish { .. } => "serve the test",
        Request::Connect { .. } => "connect",
        Request::Start { .. } => "run the test",
        Request::Watch { .. } => "watch an address",
        Request::Cancel { .. } | Request::CancelAll => "cancel",
        Request::Ping => "ping",
        Request::Clock => "clock",
        Request::OtherPrograms { .. } => "read the load of other programs",
        Request::Describe => "describe",
        Request::Route { .. } => "route",
        Request::Tune(TuningOrder::Facts) => "read its host",
        Request::Tune(TuningOrder::Status) => "list its changes",
        Request::Tune(TuningOrder::ConnectTime { .. }) => "measure a round trip",
        Request::Tune(TuningOrder::Plan { .. }) => "plan changes",
        Request::Tune(TuningOrder::TryOut { .. }) => "make changes",
        Request::Tune(TuningOrder::Keep { .. }) => "confirm changes",
        Request::Tune(TuningOrder::Revert { .. } | TuningOrder::RevertAll) => "restore settings",
        Request::Attach { .. } => "set up its link",
        Request::Lend { .. } => "add an address",
        Request::TakeBack => "remove its addresses",
        Request::Load(_) => "change its memory",
        Request::Run(_) => "run a program",
        Request::More { .. } => "send more of a program's output",
        Request::Signal { .. } => "signal a program",
        Request::Shutdown => "shutdown",
        Request::PowerOff => "power off its machine",
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
pub(crate) mod tests;
