//! The agent's side of the control stream.
//!
//! One thread owns the table of sessions and writes to the stream. One thread reads calls, and each session measures on
//! its own thread; these only send events to the owner. So no lock is needed, frames are never interleaved, and the
//! agent notices the end of the stream whatever the sessions do.

mod attach;
mod desk;
mod engine;
mod facts;
mod loan;
mod memory_load;
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

/// Number of events that may wait for the owner. Beyond that, the sending thread waits, so a flood of calls cannot fill
/// the agent's memory.
const BACKLOG: usize = 64;

/// Reasons why an agent stopped, other than the end of its stream.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Stream(#[from] FrameError),
    #[error("the control stream ended before a coordinator said hello; vtax starts its agents by itself")]
    #[diagnostic(code("started-by-hand"))]
    Nobody,
    #[error("the coordinator is vtax {} (protocol {}), this agent is {} (protocol {}); install the same version of both", theirs.version, theirs.protocol, ours.version, ours.protocol)]
    #[diagnostic(code("agent-version"))]
    OtherVersion { ours: Greeting, theirs: Greeting },
    #[error("cannot start a thread to read the control stream: {0}")]
    #[diagnostic(code("too-many-threads"))]
    Thread(#[source] std::io::Error),
}

/// Ownership of the agent's machine, which decides what the agent may change on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentRights {
    /// Someone else's machine: the agent measures, and changes only settings that can be restored.
    Visitor,
    /// A guest that exists for measurements: on request, the agent sets up its links and runs programs.
    Guest,
    /// A guest whose first process is the agent. The agent also powers it off.
    Init,
}

/// The way in which a conversation ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// The coordinator has left, or requested the agent's end.
    Over,
    /// Power off the machine.
    PowerOff,
}

/// Serves the coordinator on the other side of a stream until the stream ends. Then every session is cancelled and has
/// half a second to clean up. The caller must exit, which ends the sessions that are still running.
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

/// Answers any greeting with our own versions, so that a coordinator of another version can report both, then refuses
/// it.
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

/// Reads the next event. A body that isn't a call but has an id can be answered; a body without an id ends the stream.
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
