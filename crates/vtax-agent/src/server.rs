//! The agent's side of the control stream.
//!
//! One thread owns the table of sessions and writes to the stream. One thread reads calls, and each session
//! measures on its own thread; these only send events to the owner. So no lock is needed, frames never mix,
//! and the agent notices the end of the stream whatever the sessions do.

mod attach;
mod desk;
mod engine;
mod facts;
mod loan;
mod orders;
mod panics;
mod program;
mod session;
mod tuning;

use std::{
    io::{BufReader, Read, Write},
    sync::mpsc::{self, SyncSender},
    thread,
};

use desk::{OwnerEvent, SessionOwner};
pub use engine::{Measuring, RunTest, ServeTest, TestEngine, TestPart};
use vtax_wire::{
    frame::{self, FrameError, HELLO_MOST, REQUEST_MOST},
    protocol::{Call, CallId, Greeting, Introduction, Opening},
};

/// How many events may wait for the owner. If there are more, the thread that sends the next one waits. So a
/// flood of calls can't fill the agent's memory.
const BACKLOG: usize = 64;

/// Why an agent stopped, other than by the end of its stream.
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

/// Whose the agent's machine is, and so what the agent may change on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentRights {
    /// Somebody else's machine: the agent measures, and changes only settings that can be put back.
    Visitor,
    /// A guest that exists for measuring: on order, the agent sets up its links and runs programs.
    Guest,
    /// A guest whose first process is the agent. The agent also switches it off.
    Init,
}

/// How a conversation ended, if nothing was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// The coordinator has gone, or ordered the agent to end.
    Over,
    /// The machine shall be switched off.
    PowerOff,
}

/// Serves the coordinator at the other end of a stream until the stream ends. Then every session is
/// cancelled, and has half a second to clean up. The caller must exit, which ends the sessions that still
/// run.
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

/// Answers any greeting with our own versions, so that a coordinator of another version can name both. Then refuses it.
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

/// Reads calls until the stream ends or the owner is gone.
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

/// The next event. A body that isn't a call but has an id can be answered; a body without an id ends the stream.
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
mod fuzz;
#[cfg(test)]
mod tests;
