//! The agent's side of the control stream.
//!
//! One thread owns the table of sessions and the writing end of the stream. One thread reads calls, and each
//! session measures on a thread of its own; both only send events to the owner. So there is no lock, frames
//! can't be mixed, and the end of the stream is noticed whatever the sessions do.

mod attach;
mod desk;
mod engine;
mod facts;
mod orders;
mod program;
mod session;

use std::{
    io::{BufReader, Read, Write},
    sync::mpsc::{self, SyncSender},
    thread,
};

use desk::{OwnerEvent, SessionOwner};
pub use engine::{Measuring, RunTest, ServeTest, TestEngine, TestPart};
pub(crate) use facts::boot_id;

use crate::{
    frame::{self, FrameError, HELLO_MOST, REQUEST_MOST},
    protocol::{Call, CallId, Greeting, Introduction, Opening},
};

/// Events that may wait for the owner; beyond that, the thread that sends the next one waits. It bounds
/// what a flood of calls can make the agent hold.
const BACKLOG: usize = 64;

/// Why an agent stopped other than by the end of its stream.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ServeError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Stream(#[from] FrameError),
    #[error("the control stream ended before a coordinator said hello; the agent is started by vtax, not by hand")]
    #[diagnostic(code("started-by-hand"))]
    Nobody,
    #[error("the coordinator is vtax {} (protocol {}), this agent is {} (protocol {}); install the same version of both", theirs.version, theirs.protocol, ours.version, ours.protocol)]
    #[diagnostic(code("agent-version"))]
    OtherVersion { ours: Greeting, theirs: Greeting },
    #[error("no thread can be started to read the control stream: {0}")]
    #[diagnostic(code("too-many-threads"))]
    Thread(#[source] std::io::Error),
}

/// What the machine is to the agent that runs on it, and so what it may do to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentRights {
    /// Somebody else's: the agent measures, and changes nothing.
    Visitor,
    /// A guest that is there to be measured in: its links are set up and its programs run on order.
    Guest,
    /// A guest whose first process is the agent, which also switches it off.
    Init,
}

/// How a conversation came to its end, where there was nothing wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// The coordinator has gone, or has told the agent to.
    Over,
    /// The machine is to be switched off.
    PowerOff,
}

/// Serves the coordinator at the other end of a stream until the stream ends. Then every session is cancelled
/// and has half a second to put away what it had. What hasn't ended by then goes with the process: exit.
pub fn serve(
    reader: impl Read + Send + 'static,
    mut writer: impl Write,
    engine: impl TestEngine,
    standing: AgentRights,
) -> Result<Parting, ServeError> {
    let mut reader = BufReader::new(reader);
    greet(&mut reader, &mut writer)?;
    let (events, inbox) = mpsc::sync_channel(BACKLOG);
    let calls = events.clone();
    let read = move || read_calls(&mut reader, &calls);
    thread::Builder::new().name("control".into()).spawn(read).map_err(ServeError::Thread)?;
    Ok(SessionOwner::new(writer, engine, standing, events).run(&inbox)?)
}

/// Answers any greeting with our own versions, so that a coordinator of another version can name
/// both; then refuses it.
fn greet<R: Read>(reader: &mut BufReader<R>, writer: &mut impl Write) -> Result<(), ServeError> {
    frame::read_magic(reader)?.ok_or(ServeError::Nobody)?;
    let body = frame::read_frame(reader, HELLO_MOST)?.ok_or(ServeError::Nobody)?;
    let Opening { greeting: theirs, key } = frame::parse(&body)?;
    let ours = Greeting::ours();
    let introduction = Introduction { hello: facts::hello(), key };
    let hello = [&frame::MAGIC[..], &frame::encode(&introduction, HELLO_MOST)?].concat();
    write_whole(writer, &hello)?;
    if theirs == ours { Ok(()) } else { Err(ServeError::OtherVersion { ours, theirs }) }
}

fn write_whole(writer: &mut impl Write, bytes: &[u8]) -> Result<(), FrameError> {
    writer.write_all(bytes)?;
    Ok(writer.flush()?)
}

/// Reads until the stream or the owner is gone.
fn read_calls(reader: &mut impl Read, events: &SyncSender<OwnerEvent>) {
    let end = loop {
        match next_call(reader) {
            Ok(Some(event)) => {
                if events.send(event).is_err() {
                    return;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = events.send(OwnerEvent::StreamEnded(end));
}

/// A body that is no call but has an id can be answered; one without ends the stream.
fn next_call(reader: &mut impl Read) -> Result<Option<OwnerEvent>, FrameError> {
    #[derive(serde::Deserialize)]
    struct OnlyId {
        id: CallId,
    }
    let Some(body) = frame::read_frame(reader, REQUEST_MOST)? else {
        return Ok(None);
    };
    match frame::parse::<Call>(&body) {
        Ok(call) => Ok(Some(OwnerEvent::Called(Box::new(call)))),
        Err(error) => match frame::parse::<OnlyId>(&body) {
            Ok(OnlyId { id }) => Ok(Some(OwnerEvent::Misread { id, error })),
            Err(_) => Err(error),
        },
    }
}

#[cfg(test)]
mod tests;
