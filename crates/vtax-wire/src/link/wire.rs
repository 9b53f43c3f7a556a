//! A control stream, and the data that its callers share with the thread that polls it.

use std::{
    collections::HashMap,
    mem,
    os::fd::OwnedFd,
    process::ExitStatus,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use vtax_model::{foreign::ForeignText, units::ByteSize};

use super::{
    error::{AgentError, Death},
    inbound::Inbound,
    poller,
    process::{ChildProcess, GRACE, lock},
    queue::{QueueError, SendQueue},
};
use crate::{
    frame::{self, FrameError, HELLO_MOST, REQUEST_MOST},
    protocol::{Answer, Call, CallId, CallOutcome, Hello, Opening, ProgramSpec, Request},
};

/// Permitted stream content before the agent's first bytes to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Nothing: the stream was created for this link.
    None,
    /// Bytes of earlier conversations.
    Unknown,
}

/// The answer to a call, or an output before it, or the reason why no answer will come.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The mark that the caller has set.
    pub(crate) tag: usize,
    /// The agent's message, or its death.
    pub(crate) outcome: Result<CallOutcome, Death>,
}

/// The two directions of a stream to an agent, and the process on this machine that carries it.
pub(crate) struct AgentStream {
    pub(crate) reader: OwnedFd,
    /// Bytes that were read already.
    pub(crate) unread: Vec<u8>,
    pub(crate) writer: OwnedFd,
    pub(crate) process: ChildProcess,
    pub(crate) past: Past,
}

/// Both directions of a control stream.
#[derive(Debug)]
pub(super) struct ControlStream {
    shared: Arc<SharedLink>,
}

#[derive(Debug)]
pub(super) struct SharedLink {
    /// The agent's name in messages to the user.
    pub(super) name: String,
    callers: Mutex<Callers>,
    pub(super) process: ChildProcess,
    queue: Arc<SendQueue>,
    hung_up: AtomicBool,
}

#[derive(Debug)]
enum Callers {
    Waiting(HashMap<CallId, Caller>),
    Bereft(Death),
}

#[derive(Debug)]
struct Caller {
    answer_to: Sender<Incoming>,
    tag: usize,
    /// Bytes of output that the agent may still send. They are buffered until the caller takes them.
    window: u64,
}

impl ControlStream {
    /// Greets the agent and waits for its hello.
    pub(super) fn open(
        name: &str,
        stream: AgentStream,
        deadline: Duration,
    ) -> Result<(ControlStream, Hello), AgentError> {
        let AgentStream { reader, unread, writer, process, past } = stream;
        let nonblocking = poller::set_nonblocking(&reader).and_then(|()| poller::set_nonblocking(&writer));
        nonblocking.map_err(|source| AgentError::Descriptor { name: name.to_owned(), source })?;
        let (opening, queue) = (Opening::ours(), Arc::new(SendQueue::new(writer)));
        let callers = Mutex::new(Callers::Waiting(HashMap::new()));
        let (name, hung_up) = (name.to_owned(), AtomicBool::default());
        let shared = Arc::new(SharedLink { name, callers, process, queue, hung_up });
        let wire = ControlStream { shared: Arc::clone(&shared) };
        let (introduce, hello) = mpsc::channel();
        let inbound = Inbound::new(reader, &unread, past, opening.key.clone(), introduce, Arc::clone(&shared));
        poller::add(inbound).map_err(|source| AgentError::Thread { name: shared.name.clone(), source })?;
        wire.greet(&opening)?;
        match hello.recv_timeout(deadline) {
            Ok(hello) => Ok((wire, hello?)),
            Err(_) => {
                let (name, stderr) = (shared.name.clone(), shared.process.last_words());
                Err(AgentError::Silent { name, deadline, stderr })
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.shared.name
    }

    pub(super) fn hang_up(&self) {
        self.shared.process.end();
    }

    pub(super) fn process_id(&self) -> Option<u32> {
        self.shared.process.id()
    }

    /// Sends a request. Its answer, or the death of the agent, goes to `answer_to`.
    pub(super) fn send(
        &self,
        id: CallId,
        request: Request,
        answer_to: Sender<Incoming>,
        tag: usize,
    ) -> Result<(), AgentError> {
        let window = match &request {
            Request::Run(ProgramSpec { window: Some(window), .. }) => window.0,
            _ => 0,
        };
        let frame = self.encode(&Call { id, request }, REQUEST_MOST)?;
        self.shared.expect(id, Caller { answer_to, tag, window })?;
        self.push(&frame)
    }

    /// Returns how the agent was lost, if it was.
    pub(super) fn death(&self) -> Option<Death> {
        match &*lock(&self.shared.callers) {
            Callers::Waiting(_) => None,
            Callers::Bereft(death) => Some(death.clone()),
        }
    }

    /// Asks the agent to exit, without waiting for it.
    pub(super) fn close(&self) {
        // Some agents don't see the end of the stream. For the others, closing the stream is enough.
        let shutdown = Call { id: CallId(u64::MAX), request: Request::Shutdown };
        if let Ok(frame) = frame::encode(&shutdown, REQUEST_MOST) {
            let _ = self.shared.queue.push(&frame);
        }
        self.shared.queue.close();
    }

    /// Ends the link, and the process that carries it by this deadline.
    pub(super) fn end_by(&self, deadline: Instant) {
        self.close();
        self.shared.process.end_by(deadline);
        self.shared.queue.abandon();
        self.shared.hung_up.store(true, Ordering::Release);
        poller::look_again();
    }

    /// If the agent no longer reads, each caller learns the reason now or soon.
    fn push(&self, frame: &[u8]) -> Result<(), AgentError> {
        match self.shared.queue.push(frame) {
            Ok(()) => Ok(()),
            Err(QueueError::Full(waiting)) => Err(AgentError::Backlog { name: self.name().to_owned(), waiting }),
            Err(QueueError::Stream(error)) => {
                let stderr = self.shared.process.last_words();
                Err(self.shared.died(self.shared.die(Some(FrameError::Io(error)), None, stderr)))
            }
        }
    }

    /// The caller has consumed this many bytes of output, so the agent may send as many more.
    pub(super) fn widen(&self, id: CallId, taken: u64) {
        if let Callers::Waiting(callers) = &mut *lock(&self.shared.callers)
            && let Some(caller) = callers.get_mut(&id)
        {
            caller.window += taken;
        }
    }

    fn greet(&self, opening: &Opening) -> Result<(), AgentError> {
        let opening = self.encode(opening, HELLO_MOST)?;
        self.push(&[&frame::MAGIC[..], &opening].concat())
    }

    fn encode(&self, body: &impl Serialize, most: ByteSize) -> Result<Vec<u8>, AgentError> {
        let frame = frame::encode(body, most);
        frame.map_err(|source| AgentError::Unsendable { name: self.name().to_owned(), source })
    }
}

impl Drop for ControlStream {
    fn drop(&mut self) {
        self.end_by(Instant::now() + GRACE);
    }
}

impl SharedLink {
    /// Returns true if nobody waits for answers any more.
    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Acquire)
    }

    fn expect(&self, id: CallId, caller: Caller) -> Result<(), AgentError> {
        match &mut *lock(&self.callers) {
            Callers::Waiting(callers) => {
                callers.insert(id, caller);
                Ok(())
            }
            Callers::Bereft(death) => Err(self.died(death.clone())),
        }
    }

    /// An answer without a caller belongs to one that gave up, or to the last shutdown. A caller that gets an output
    /// continues to wait. An output beyond the window is an error; otherwise an agent could fill the memory.
    pub(super) fn deliver(&self, Answer { id, outcome }: Answer) -> Result<(), FrameError> {
        let Callers::Waiting(callers) = &mut *lock(&self.callers) else { return Ok(()) };
        let send = |caller: &Caller, outcome| caller.answer_to.send(Incoming { tag: caller.tag, outcome: Ok(outcome) });
        // If this fails, the caller gave up.
        match &outcome {
            CallOutcome::Output(output) => {
                let Some(caller) = callers.get_mut(&id) else { return Ok(()) };
                // An empty output counts, too: it occupies a place in the queue.
                let left = caller.window.checked_sub((output.bytes.len() as u64).max(1));
                caller.window = left.ok_or(FrameError::BeyondWindow)?;
                let _ = send(caller, outcome);
            }
            CallOutcome::Done(_) | CallOutcome::Failed(_) => {
                let _ = callers.remove(&id).map(|caller| send(&caller, outcome));
            }
        }
        Ok(())
    }

    /// Tells every waiting caller, and keeps the cause for later calls. The first cause counts, because
    /// others follow from it.
    pub(super) fn die(&self, stream: Option<FrameError>, status: Option<ExitStatus>, stderr: ForeignText) -> Death {
        let death = Death { stream: stream.map(Arc::new), status, stderr };
        let mut callers = lock(&self.callers);
        if let Callers::Bereft(earlier) = &*callers {
            return earlier.clone();
        }
        if let Callers::Waiting(waiting) = mem::replace(&mut *callers, Callers::Bereft(death.clone())) {
            for caller in waiting.into_values() {
                let _ = caller.answer_to.send(Incoming { tag: caller.tag, outcome: Err(death.clone()) });
            }
        }
        death
    }

    pub(super) fn died(&self, death: Death) -> AgentError {
        AgentError::Died { name: self.name.clone(), death }
    }
}
