//! The threads behind a link, and the data that they share with its callers.

use std::{
    collections::HashMap,
    io::{self, BufReader, Read, Write},
    mem,
    process::ExitStatus,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use serde::Serialize;
use vtax_model::units::ByteSize;

use super::{
    error::{AgentError, Death},
    process::{ChildProcess, lock},
};
use crate::{
    conversations::Conversations,
    frame::{self, FrameError, HELLO_MOST, REPLY_MOST, REQUEST_MOST},
    protocol::{Answer, Call, CallId, CallOutcome, Greeting, Hello, Introduction, Opening, ProgramSpec, Request},
};

/// Allowed stream content before the agent's first bytes to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Nothing: the stream was made for this link.
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

/// Both directions of a control stream.
#[derive(Debug)]
pub(super) struct ControlStream {
    shared: Arc<Shared>,
    frames: Sender<Vec<u8>>,
}

#[derive(Debug)]
struct Shared {
    /// The agent's name for the user.
    name: String,
    callers: Mutex<Callers>,
    process: ChildProcess,
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
    /// Number of bytes of output that the agent may still send. They wait for the caller in memory.
    window: u64,
}

impl ControlStream {
    /// Greets the agent and waits for its hello.
    pub(super) fn open(
        name: &str,
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        process: ChildProcess,
        past: Past,
        deadline: Duration,
    ) -> Result<(ControlStream, Hello), AgentError> {
        let opening = Opening::ours();
        let key = opening.key.clone();
        let callers = Mutex::new(Callers::Waiting(HashMap::new()));
        let shared = Arc::new(Shared { name: name.to_owned(), callers, process });
        let (frames, outbox) = mpsc::channel();
        let (introduce, hello) = mpsc::channel();
        let (for_reader, for_writer) = (shared.clone(), shared.clone());
        let start_thread = |thread: &str, run: Box<dyn FnOnce() + Send>| {
            let started = thread::Builder::new().name(thread.into()).spawn(run);
            started.map_err(|source| AgentError::Thread { name: name.to_owned(), source })
        };
        let read = move || match past {
            Past::None => read(BufReader::new(reader), &for_reader, &introduce),
            Past::Unknown => read_ours(Conversations::new(reader), &key, &for_reader, &introduce),
        };
        start_thread("agent-reader", Box::new(read))?;
        start_thread("agent-writer", Box::new(move || write(writer, &for_writer, &outbox)))?;
        let wire = ControlStream { shared, frames };
        wire.greet(&opening)?;
        match hello.recv_timeout(deadline) {
            Ok(hello) => Ok((wire, hello?)),
            Err(_) => {
                Err(AgentError::Silent { name: name.to_owned(), deadline, stderr: wire.shared.process.last_words() })
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
        // If the writer has gone, every caller learns the reason now or soon.
        let _ = self.frames.send(frame);
        Ok(())
    }

    /// The caller has taken so many bytes of outputs, so the agent may send as many more.
    pub(super) fn widen(&self, id: CallId, taken: u64) {
        if let Callers::Waiting(callers) = &mut *lock(&self.shared.callers)
            && let Some(caller) = callers.get_mut(&id)
        {
            caller.window += taken;
        }
    }

    fn greet(&self, opening: &Opening) -> Result<(), AgentError> {
        let opening = self.encode(opening, HELLO_MOST)?;
        let _ = self.frames.send([&frame::MAGIC[..], &opening].concat());
        Ok(())
    }

    fn encode(&self, body: &impl Serialize, most: ByteSize) -> Result<Vec<u8>, AgentError> {
        let frame = frame::encode(body, most);
        frame.map_err(|source| AgentError::Unsendable { name: self.name().to_owned(), source })
    }
}

impl Drop for ControlStream {
    /// Some agents don't see the end of the stream, so it sends the order to shut down. For the others,
    /// closing the stream is enough.
    fn drop(&mut self) {
        let shutdown = Call { id: CallId(u64::MAX), request: Request::Shutdown };
        if let Ok(frame) = frame::encode(&shutdown, REQUEST_MOST) {
            let _ = self.frames.send(frame);
        }
        self.frames = mpsc::channel().0;
        self.shared.process.end();
    }
}

impl Shared {
    fn expect(&self, id: CallId, caller: Caller) -> Result<(), AgentError> {
        match &mut *lock(&self.callers) {
            Callers::Waiting(callers) => {
                callers.insert(id, caller);
                Ok(())
            }
            Callers::Bereft(death) => Err(self.died(death.clone())),
        }
    }

    /// An answer without a caller belongs to one that gave up, or to the last shutdown. A caller that gets an
    /// output goes on waiting. An output beyond the window is an error, or an agent could fill the memory.
    fn deliver(&self, Answer { id, outcome }: Answer) -> Result<(), FrameError> {
        let Callers::Waiting(callers) = &mut *lock(&self.callers) else { return Ok(()) };
        let send = |caller: &Caller, outcome| caller.answer_to.send(Incoming { tag: caller.tag, outcome: Ok(outcome) });
        // A sending that fails means that the caller gave up.
        match &outcome {
            CallOutcome::Output(output) => {
                let Some(caller) = callers.get_mut(&id) else { return Ok(()) };
                // An empty output counts, too: it takes room in the queue.
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
    fn die(&self, stream: Option<FrameError>) -> Death {
        let death = self.autopsy(stream);
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

    fn died(&self, death: Death) -> AgentError {
        AgentError::Died { name: self.name.clone(), death }
    }

    fn autopsy(&self, stream: Option<FrameError>) -> Death {
        let status: Option<ExitStatus> = self.process.status_soon();
        Death { stream: stream.map(Arc::new), status, stderr: self.process.last_words() }
    }
}

/// The channel on which a caller waits for the hello.
type Introduce = Sender<Result<Hello, AgentError>>;

/// Reads the hello, then answers, until the stream ends.
fn read(mut reader: BufReader<impl Read>, shared: &Shared, introduce: &Introduce) {
    if present(read_hello(&mut reader), shared, introduce) {
        follow(reader, shared);
    }
}

/// The same for a stream that carried earlier conversations. Everything before the hello with our key belongs to them.
fn read_ours(mut stream: Conversations<impl Read>, key: &str, shared: &Shared, introduce: &Introduce) {
    let end = loop {
        match stream.next_one() {
            Ok(true) => {}
            Ok(false) => break Ok(First::End),
            Err(error) => break Err(error.into()),
        }
        let mut reader = BufReader::new(&mut stream);
        match read_hello(&mut reader) {
            Ok(First::Ours(introduction)) if introduction.key != key => {}
            Ok(First::End) => {}
            Err(FrameError::Truncated { .. } | FrameError::TooLong { .. } | FrameError::Malformed(_)) => {}
            Err(error) => break Err(error),
            Ok(first) => {
                if present(Ok(first), shared, introduce) {
                    follow(reader, shared);
                }
                return;
            }
        }
    };
    present(end, shared, introduce);
}

/// Passes the hello on to the waiting caller. False if there is no agent, or if the caller is gone.
fn present(first: Result<First, FrameError>, shared: &Shared, introduce: &Introduce) -> bool {
    let introduced = match first {
        Ok(First::Ours(Introduction { hello, .. })) => Ok(hello),
        Ok(First::Others(theirs)) => {
            Err(AgentError::OtherVersion { name: shared.name.clone(), ours: Greeting::ours(), theirs })
        }
        Ok(First::End) => Err(shared.died(shared.die(None))),
        Err(error) => Err(shared.died(shared.die(Some(error)))),
    };
    let goes_on = introduced.is_ok();
    introduce.send(introduced).is_ok() && goes_on
}

fn follow(mut reader: BufReader<impl Read>, shared: &Shared) {
    let end = read_answers(&mut reader, shared);
    shared.die(end.err());
}

/// The beginning of an agent's stream.
enum First {
    Ours(Introduction),
    /// An agent of another version; only its greeting is certain.
    Others(Greeting),
    End,
}

fn read_hello(reader: &mut BufReader<impl Read>) -> Result<First, FrameError> {
    let Some(()) = frame::read_magic(reader)? else {
        return Ok(First::End);
    };
    let Some(body) = frame::read_frame(reader, HELLO_MOST)? else {
        return Ok(First::End);
    };
    let greeting: Greeting = frame::parse(&body)?;
    if greeting == Greeting::ours() { Ok(First::Ours(frame::parse(&body)?)) } else { Ok(First::Others(greeting)) }
}

fn read_answers(reader: &mut impl Read, shared: &Shared) -> Result<(), FrameError> {
    while let Some(body) = frame::read_frame(reader, REPLY_MOST)? {
        shared.deliver(frame::parse(&body)?)?;
    }
    Ok(())
}

/// Writes frames until the link is dropped, which closes the stream, or until nobody reads. A dead agent
/// shows as a broken pipe here; the reader knows more about the cause.
fn write(mut writer: impl Write, shared: &Shared, outbox: &Receiver<Vec<u8>>) {
    while let Ok(frame) = outbox.recv() {
        match writer.write_all(&frame).and_then(|()| writer.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return,
            Err(error) => return drop(shared.die(Some(FrameError::Io(error)))),
        }
    }
}
