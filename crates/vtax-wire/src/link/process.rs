//! The process behind a link: its last output, its status and its end.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    process::{Child, ChildStderr, ExitStatus},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::PollFlags;
use vtax_model::foreign::ForeignText;

use super::poller::{self, Polled};

/// Bytes kept from the end of standard error.
const LAST_WORDS: usize = 4096;
/// Time for an agent to exit after its stream is closed; after that it is killed. It gives its sessions half a second
/// to clean up.
pub(super) const GRACE: Duration = Duration::from_millis(1500);
/// Time to wait for the status of a process that has closed its stream. The kernel closes files before it notifies the
/// parent.
const STATUS_SOON: Duration = Duration::from_millis(300);
/// Time for which standard error is read after the process has exited. It isn't read to the end: with connection
/// sharing, `ssh` leaves a master process that keeps it open.
const WORDS_SOON: Duration = Duration::from_millis(100);

/// A child process, or none, because a link may use other streams. It is killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    id: Option<u32>,
    /// The socket at the other end of a link without a process; shut down when the link ends.
    socket: Option<UnixStream>,
    child: Mutex<Option<Child>>,
    words: Arc<LastWords>,
}

/// The end of a process's standard error.
#[derive(Debug, Default)]
struct LastWords {
    bytes: Mutex<VecDeque<u8>>,
    /// True while more may arrive.
    open: AtomicBool,
}

impl ChildProcess {
    /// For a link to a socket or to some other stream.
    pub(super) fn without_child(socket: Option<UnixStream>) -> ChildProcess {
        ChildProcess { id: None, socket, child: Mutex::default(), words: Arc::default() }
    }

    pub(crate) fn adopt(mut child: Child) -> ChildProcess {
        let words = Arc::<LastWords>::default();
        if let Some(stderr) = child.stderr.take() {
            // Without a thread they are lost.
            let _ = StandardError::listen(stderr, &words);
        }
        ChildProcess { id: Some(child.id()), socket: None, child: Mutex::new(Some(child)), words }
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.id
    }

    /// The exit status, after the stream has ended. `None` if the process hasn't ended or there is none.
    pub(crate) fn status_soon(&self) -> Option<ExitStatus> {
        self.wait(STATUS_SOON)
    }

    /// The end of its standard error; complete if the process has ended.
    pub(crate) fn last_words(&self) -> ForeignText {
        let deadline = Instant::now() + WORDS_SOON;
        while self.words.open.load(Ordering::Acquire) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.words_so_far()
    }

    fn words_so_far(&self) -> ForeignText {
        let words: Vec<u8> = lock(&self.words.bytes).iter().copied().collect();
        String::from_utf8_lossy(&words).trim().into()
    }

    /// The exit status and the last words, this long after the end of the stream. None if more may be known soon.
    pub(super) fn autopsy(&self, ended: Duration) -> Option<(Option<ExitStatus>, ForeignText)> {
        let child = lock(&self.child).as_mut().map(|child| child.try_wait().ok().flatten());
        let alive = child == Some(None);
        let speaks = self.words.open.load(Ordering::Acquire);
        if (alive || speaks) && ended < STATUS_SOON {
            return None;
        }
        Some((child.flatten(), self.words_so_far()))
    }

    /// Waits until the process has exited by itself, or kills it.
    pub(super) fn end(&self) {
        self.end_by(Instant::now() + GRACE);
    }

    /// Like [`end`](Self::end), with a deadline after which it is killed.
    pub(super) fn end_by(&self, deadline: Instant) {
        if let Some(socket) = &self.socket {
            // This wakes the threads that read or write the socket. An error means that it is shut down already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if self.wait(deadline.saturating_duration_since(Instant::now())).is_some() {
            return;
        }
        if let Some(mut child) = lock(&self.child).take() {
            // If kill fails, the process has just ended; wait reaps it in either case.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Releases the lock while it sleeps, because several threads may wait.
    fn wait(&self, most: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + most;
        loop {
            let status = lock(&self.child).as_mut()?.try_wait().ok()?;
            if status.is_some() || Instant::now() >= deadline {
                return status;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Standard error, which is read to the end; otherwise the process would block on a full pipe.
struct StandardError {
    stderr: ChildStderr,
    words: Arc<LastWords>,
}

impl StandardError {
    fn listen(stderr: ChildStderr, words: &Arc<LastWords>) -> std::io::Result<()> {
        poller::set_nonblocking(&stderr)?;
        words.open.store(true, Ordering::Release);
        poller::add(StandardError { stderr, words: Arc::clone(words) }).inspect_err(|_| words.close())
    }
}

impl LastWords {
    fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    fn hear(&self, piece: &[u8]) {
        let mut words = lock(&self.bytes);
        words.extend(piece);
        let excess = words.len().saturating_sub(LAST_WORDS);
        words.drain(..excess);
    }
}

impl Polled for StandardError {
    fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        Some((self.stderr.as_fd(), PollFlags::IN))
    }

    fn turn(&mut self) -> bool {
        let mut piece = [0; LAST_WORDS];
        match self.stderr.read(&mut piece) {
            Ok(count @ 1..) => self.words.hear(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(_) | Err(_) => {
                self.words.close();
                return false;
            }
        }
        true
    }

    /// A master of shared ssh connections may keep the stream open for hours.
    fn is_over(&self) -> bool {
        Arc::strong_count(&self.words) == 1
    }
}

/// A thread that panicked while it held one of these locks left no inconsistent state.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
