//! The thread that polls the streams of all agents of this process.
//!
//! The streams don't block, and the thread blocks only in poll(2). So an agent that hangs, floods or dies doesn't delay
//! the others. The thread ends when nothing is left to poll: only a process with a single thread can enter a user
//! namespace.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

use super::process::lock;

/// Pause after the kernel had no memory for a poll.
const NO_MEMORY: Duration = Duration::from_millis(10);

/// A stream that the thread polls.
pub(super) trait Polled: Send {
    /// The descriptor that it waits for, and the event.
    fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)>;

    /// Time of the next turn even without the event.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does what can be done without waiting. Returns false if nothing is left to do.
    fn turn(&mut self) -> bool;

    /// Returns true if nobody needs it any more.
    fn is_over(&self) -> bool;
}

/// Data that the thread shares with its users.
struct Inbox {
    new: Vec<Box<dyn Polled>>,
    /// An eventfd that wakes the thread. None if it doesn't run.
    wake: Option<Arc<OwnedFd>>,
}

static INBOX: Mutex<Inbox> = Mutex::new(Inbox { new: Vec::new(), wake: None });

/// Polls the stream until it is over. Returns an error if the thread can't be started.
pub(super) fn add(stream: impl Polled + 'static) -> io::Result<()> {
    let mut inbox = lock(&INBOX);
    if inbox.wake.is_none() {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let of_thread = Arc::clone(&wake);
        thread::Builder::new().name("agents".into()).spawn(move || run(&of_thread))?;
        inbox.wake = Some(wake);
    }
    inbox.new.push(Box::new(stream));
    wake_up(&inbox);
    Ok(())
}

/// Makes the thread check which streams are over.
pub(super) fn look_again() {
    wake_up(&lock(&INBOX));
}

/// Makes reads and writes nonblocking. This affects all descriptors of the same stream on our side.
pub(super) fn set_nonblocking(stream: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&stream)?;
    Ok(fcntl_setfl(&stream, flags | OFlags::NONBLOCK)?)
}

fn wake_up(inbox: &Inbox) {
    if let Some(wake) = &inbox.wake {
        // It only fails if the thread is about to wake up anyway.
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }
}

fn run(wake: &OwnedFd) {
    let mut streams: Vec<Box<dyn Polled>> = Vec::new();
    loop {
        let new = {
            let mut inbox = lock(&INBOX);
            let new = std::mem::take(&mut inbox.new);
            if new.is_empty() && streams.is_empty() {
                inbox.wake = None;
                return;
            }
            new
        };
        streams.extend(new);
        let ready = wait(&streams, wake);
        let mut ready = ready.into_iter();
        streams.retain_mut(|stream| !ready.next().unwrap_or(false) || stream.turn());
        streams.retain(|stream| !stream.is_over());
    }
}

/// Waits until a stream is ready or due, or for a wake-up. Returns the streams that get a turn.
fn wait(streams: &[Box<dyn Polled>], wake: &OwnedFd) -> Vec<bool> {
    let interests: Vec<_> = streams.iter().map(|stream| stream.interest()).collect();
    let polled = interests.iter().flatten().map(|(stream, flags)| PollFd::from_borrowed_fd(*stream, *flags));
    let mut fds: Vec<PollFd<'_>> = std::iter::once(PollFd::new(wake, PollFlags::IN)).chain(polled).collect();
    let first = streams.iter().filter_map(|stream| stream.due()).min();
    let left = first.map(|due| due.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(_) => thread::sleep(NO_MEMORY),
    }
    // The count doesn't matter. An error means that there was no wake-up.
    let _ = rustix::io::read(wake, &mut [0; 8]);
    let now = Instant::now();
    let mut events = fds[1..].iter().map(PollFd::revents);
    let turns = streams.iter().zip(&interests).map(|(stream, interest)| {
        let is_ready = interest.is_some() && events.next().is_some_and(|events| !events.is_empty());
        is_ready || stream.due().is_some_and(|due| due <= now)
    });
    turns.collect()
}
