//! Frames on their way to an agent.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
};

use rustix::{event::PollFlags, io::Errno};
use vtax_model::units::ByteSize;

use super::{
    poller::{self, Polled},
    process::lock,
};

/// Maximum number of queued bytes for an agent that doesn't read.
pub(crate) const WAITING_MOST: ByteSize = ByteSize(8 << 20);

/// The reason why a frame can't be sent.
#[derive(Debug)]
pub(super) enum QueueError {
    /// The agent hasn't read this many bytes of earlier frames.
    Full(ByteSize),
    /// The stream failed.
    Stream(io::Error),
}

/// Sends as much as the stream accepts. The rest is left to the polling thread.
#[derive(Debug)]
pub(super) struct SendQueue(Mutex<QueueState>);

#[derive(Debug)]
struct QueueState {
    /// None once it is closed.
    writer: Option<Arc<OwnedFd>>,
    waiting: VecDeque<u8>,
    /// True while the polling thread sends.
    is_polled: bool,
    /// True if the stream is to be closed after the queued frames.
    is_closing: bool,
}

impl SendQueue {
    /// The stream must not block.
    pub(super) fn new(writer: OwnedFd) -> SendQueue {
        let state = QueueState {
            writer: Some(Arc::new(writer)),
            waiting: VecDeque::new(),
            is_polled: false,
            is_closing: false,
        };
        SendQueue(Mutex::new(state))
    }

    /// If the agent no longer reads, the frame is dropped: the reader of the agent's answers knows more about the
    /// cause.
    pub(super) fn push(self: &Arc<Self>, frame: &[u8]) -> Result<(), QueueError> {
        let mut state = lock(&self.0);
        let waiting = ByteSize(state.waiting.len() as u64);
        if waiting.0 > 0 && waiting.0 + frame.len() as u64 > WAITING_MOST.0 {
            return Err(QueueError::Full(waiting));
        }
        state.waiting.extend(frame);
        state.send().map_err(QueueError::Stream)?;
        match state.writer.clone() {
            Some(writer) if !state.waiting.is_empty() && !state.is_polled => {
                state.is_polled = true;
                drop(state);
                poller::add(QueueDrain { queue: Arc::clone(self), writer }).map_err(QueueError::Stream)
            }
            _ => Ok(()),
        }
    }

    /// Closes the stream after the queued frames.
    pub(super) fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closing = true;
        state.end_if_done();
    }

    /// Closes the stream immediately.
    pub(super) fn abandon(&self) {
        lock(&self.0).end();
    }
}

impl QueueState {
    fn send(&mut self) -> io::Result<()> {
        while let (Some(writer), Some(_)) = (&self.writer, self.waiting.front()) {
            match rustix::io::write(writer, self.waiting.as_slices().0) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => {
                    self.end();
                    return if errno == Errno::PIPE { Ok(()) } else { Err(errno.into()) };
                }
            }
        }
        self.end_if_done();
        Ok(())
    }

    fn end_if_done(&mut self) {
        if self.is_closing && self.waiting.is_empty() {
            self.end();
        }
    }

    fn end(&mut self) {
        self.writer = None;
        self.waiting = VecDeque::new();
    }
}

/// Sends queued frames.
struct QueueDrain {
    queue: Arc<SendQueue>,
    writer: Arc<OwnedFd>,
}

impl Polled for QueueDrain {
    fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        Some((self.writer.as_fd(), PollFlags::OUT))
    }

    /// An error ends the stream, which the reader of the answers notices.
    fn turn(&mut self) -> bool {
        let mut state = lock(&self.queue.0);
        let _ = state.send();
        state.is_polled = !state.waiting.is_empty();
        state.is_polled
    }

    fn is_over(&self) -> bool {
        lock(&self.queue.0).writer.is_none()
    }
}
