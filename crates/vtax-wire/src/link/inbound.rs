//! Reads an agent's hello and its answers.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;

use super::{
    error::AgentError,
    poller::Polled,
    wire::{Past, SharedLink},
};
use crate::{
    conversations::Conversations,
    frame::{self, FrameBuffer, FrameError, HELLO_MOST, REPLY_MOST},
    protocol::{Greeting, Hello, Introduction},
};

/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Polling interval for a process that has closed its stream and is about to end.
const PACE: Duration = Duration::from_millis(5);

/// The channel on which a caller waits for the hello.
pub(super) type Introduce = Sender<Result<Hello, AgentError>>;

/// The stream from the agent.
pub(super) struct Inbound {
    source: Source,
    frames: FrameBuffer,
    stage: Stage,
    shared: Arc<SharedLink>,
    /// The next turn, even if the stream isn't ready. The first one always takes place: some bytes may have been read
    /// already.
    due: Option<Instant>,
}

enum Stage {
    /// The agent hasn't introduced itself.
    Hello { introduce: Introduce, has_magic: bool },
    /// Answers to calls.
    Answers,
    /// The stream has ended, and the process may be about to exit.
    Ended { why: Option<FrameError>, since: Instant, introduce: Option<Introduce> },
}

/// The end of a stream, and the error if it is one.
struct Ending(Option<FrameError>);

impl<E: Into<FrameError>> From<E> for Ending {
    fn from(error: E) -> Ending {
        Ending(Some(error.into()))
    }
}

enum Source {
    Fresh(OneRead),
    /// A port that carried earlier conversations. Everything before the hello with our key belongs to them.
    Port {
        conversations: Conversations<OneRead>,
        key: String,
        is_within: bool,
    },
}

/// Reads once per turn, so that an agent that floods the stream delays the others by one piece only.
struct OneRead {
    stream: File,
    has_read: bool,
}

impl Read for OneRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_read {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.has_read = true;
        self.stream.read(buffer)
    }
}

impl Inbound {
    /// The stream must not block. `unread` holds bytes already read from it.
    pub(super) fn new(
        reader: OwnedFd,
        unread: &[u8],
        past: Past,
        key: String,
        introduce: Introduce,
        shared: Arc<SharedLink>,
    ) -> Inbound {
        let reader = OneRead { stream: File::from(reader), has_read: false };
        let source = match past {
            Past::None => Source::Fresh(reader),
            Past::Unknown => Source::Port { conversations: Conversations::new(reader), key, is_within: false },
        };
        let mut frames = FrameBuffer::default();
        frames.push(unread);
        Inbound {
            source,
            frames,
            stage: Stage::Hello { introduce, has_magic: false },
            shared,
            due: Some(Instant::now()),
        }
    }

    /// Handles received bytes. Returns an error if no more will arrive.
    fn advance(&mut self) -> Result<(), Ending> {
        let mut piece = [0; CHUNK];
        loop {
            self.take_frames()?;
            match self.source.read(&mut piece) {
                Ok(None) => self.begin_anew(),
                Ok(Some(0)) => self.finish()?,
                Ok(Some(count)) => self.frames.push(&piece[..count]),
                Err(Ending(Some(FrameError::Io(error)))) if is_early(&error) => return Ok(()),
                Err(ending) => return Err(ending),
            }
        }
    }

    fn take_frames(&mut self) -> Result<(), Ending> {
        if matches!(self.stage, Stage::Hello { .. }) && !self.take_hello()? {
            return Ok(());
        }
        while let Some(body) = self.frames.take_frame(REPLY_MOST)? {
            self.shared.deliver(frame::parse(&body)?)?;
        }
        Ok(())
    }

    /// Returns true once the agent has introduced itself.
    fn take_hello(&mut self) -> Result<bool, Ending> {
        let Stage::Hello { introduce, has_magic } = &mut self.stage else { return Ok(true) };
        match (read_hello(&mut self.frames, has_magic), &mut self.source) {
            (Ok(None), _) => Ok(false),
            (Ok(Some(First::Ours(theirs))), Source::Port { key, is_within, .. }) if theirs.key != *key => {
                *is_within = false;
                Ok(false)
            }
            (Err(FrameError::TooLong { .. } | FrameError::Malformed(_)), Source::Port { is_within, .. }) => {
                *is_within = false;
                Ok(false)
            }
            (Ok(Some(First::Ours(Introduction { hello, .. }))), _) => {
                // If no caller waits for it, the link is about to be dropped.
                let _ = introduce.send(Ok(hello));
                self.stage = Stage::Answers;
                Ok(true)
            }
            (Ok(Some(First::Others(theirs))), _) => {
                let (name, ours) = (self.shared.name.clone(), Greeting::ours());
                let _ = introduce.send(Err(AgentError::OtherVersion { name, ours, theirs }));
                Err(Ending(None))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Starts over: a new conversation has begun on a port.
    fn begin_anew(&mut self) {
        self.frames = FrameBuffer::default();
        if let Stage::Hello { has_magic, .. } = &mut self.stage {
            *has_magic = false;
        }
    }

    /// The stream or the conversation has ended.
    fn finish(&mut self) -> Result<(), Ending> {
        match (&self.stage, &mut self.source) {
            (Stage::Hello { .. }, Source::Port { is_within, .. }) => {
                *is_within = false;
                return Ok(());
            }
            (Stage::Hello { has_magic: false, .. }, Source::Fresh(_)) => self.frames.check_magic_end()?,
            _ => self.frames.check_end()?,
        }
        Err(Ending(None))
    }

    fn end(&mut self, why: Option<FrameError>) {
        let ended = Stage::Ended { why, since: Instant::now(), introduce: None };
        if let (Stage::Hello { introduce: waits, .. }, Stage::Ended { introduce, .. }) =
            (std::mem::replace(&mut self.stage, ended), &mut self.stage)
        {
            *introduce = Some(waits);
        }
    }

    /// Tells all waiting callers that the agent is gone, once the cause is known. Returns false if all have been told.
    fn mourn(&mut self) -> bool {
        let Stage::Ended { why, since, introduce } = &mut self.stage else { return true };
        let Some((status, stderr)) = self.shared.process.autopsy(since.elapsed()) else {
            self.due = Some(Instant::now() + PACE);
            return true;
        };
        let death = self.shared.die(why.take(), status, stderr);
        if let Some(introduce) = introduce {
            // The caller may have given up, or have a better answer already.
            let _ = introduce.send(Err(self.shared.died(death)));
        }
        false
    }
}

impl Polled for Inbound {
    fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let stream = match &self.source {
            Source::Fresh(reader) => &reader.stream,
            Source::Port { conversations, .. } => &conversations.stream().stream,
        };
        (!matches!(self.stage, Stage::Ended { .. })).then(|| (stream.as_fd(), PollFlags::IN))
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn turn(&mut self) -> bool {
        self.due = None;
        self.source.begin_turn();
        if !matches!(self.stage, Stage::Ended { .. }) {
            match self.advance() {
                Ok(()) => return true,
                Err(Ending(why)) => self.end(why),
            }
        }
        self.mourn()
    }

    fn is_over(&self) -> bool {
        self.shared.has_hung_up()
    }
}

impl Source {
    fn begin_turn(&mut self) {
        match self {
            Source::Fresh(reader) => reader.has_read = false,
            Source::Port { conversations, .. } => conversations.stream_mut().has_read = false,
        }
    }

    /// None if a new conversation has begun instead, and 0 if the stream or the conversation has ended.
    fn read(&mut self, piece: &mut [u8]) -> Result<Option<usize>, Ending> {
        match self {
            Source::Fresh(reader) => Ok(Some(reader.read(piece)?)),
            Source::Port { conversations, is_within: true, .. } => Ok(Some(conversations.read(piece)?)),
            Source::Port { conversations, is_within, .. } => match conversations.next_one()? {
                true => {
                    *is_within = true;
                    Ok(None)
                }
                false => Err(Ending(None)),
            },
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The beginning of an agent's stream.
enum First {
    Ours(Introduction),
    /// An agent of another version; only its greeting is certain.
    Others(Greeting),
}

/// Returns the hello, if it has come.
fn read_hello(frames: &mut FrameBuffer, has_magic: &mut bool) -> Result<Option<First>, FrameError> {
    *has_magic = *has_magic || frames.take_magic()?;
    if !*has_magic {
        return Ok(None);
    }
    let Some(body) = frames.take_frame(HELLO_MOST)? else { return Ok(None) };
    let greeting: Greeting = frame::parse(&body)?;
    let is_ours = greeting == Greeting::ours();
    Ok(Some(if is_ours { First::Ours(frame::parse(&body)?) } else { First::Others(greeting) }))
}
