//! Wakes a thread that waits in `poll`.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Kernel counter that `poll` reports when it isn't 0.
#[derive(Debug)]
pub(crate) struct Waker {
    counter: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker { counter: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Wakes the thread. The counter can't overflow, because waiting resets it.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    /// Waits at most this time until this thread is woken or one of these has a requested event. Returns the events of
    /// each.
    pub(crate) fn wait(
        &self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        timeout: Option<Duration>,
    ) -> io::Result<Vec<PollFlags>> {
        let mut fds = vec![PollFd::new(&self.counter, PollFlags::IN)];
        fds.extend(others.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
        wait_for(&mut fds, timeout)?;
        self.clear();
        Ok(fds[1..].iter().map(PollFd::revents).collect())
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.counter, &mut [0; 8]);
    }
}

/// Waits for events. A signal ends the wait, as if the time had expired.
fn wait_for(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| timeout.min(Duration::from_secs(3600)));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
