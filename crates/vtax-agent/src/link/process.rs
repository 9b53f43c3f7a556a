//! The process behind a link: its last words, its status, its end.

use std::{
    collections::VecDeque,
    io::Read,
    net::Shutdown,
    os::unix::net::UnixStream,
    process::{Child, ChildStderr, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How much of standard error is kept: the end of it.
const LAST_WORDS: usize = 4096;
/// How long an agent whose stream is closed has until it is killed. It gives its sessions
/// half a second to put things away.
const GRACE: Duration = Duration::from_millis(1500);
/// How long a process that has closed its stream may take to be waited for. The kernel closes
/// files before it lets the parent know.
const STATUS_SOON: Duration = Duration::from_millis(300);
/// How long standard error is read on after the process has ended. Not to its end: a
/// connection-sharing `ssh` leaves a master behind that holds it open.
const WORDS_SOON: Duration = Duration::from_millis(100);

/// A child process, or none: a link may run over other streams. Killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    id: Option<u32>,
    /// What takes the place of a process at the other end of a link: shut when the link ends.
    socket: Option<UnixStream>,
    child: Mutex<Option<Child>>,
    words: Arc<Mutex<VecDeque<u8>>>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl ChildProcess {
    /// At the other end there is a socket, or some other stream.
    pub(super) fn without_child(socket: Option<UnixStream>) -> ChildProcess {
        let (words, listener) = (Arc::default(), Mutex::default());
        ChildProcess { id: None, socket, child: Mutex::default(), words, listener }
    }

    pub(crate) fn adopt(mut child: Child) -> ChildProcess {
        let words = Arc::<Mutex<VecDeque<u8>>>::default();
        let stderr = child.stderr.take();
        let listener = stderr.and_then(|stderr| listen(stderr, words.clone()));
        let (id, listener) = (Some(child.id()), Mutex::new(listener));
        ChildProcess { id, socket: None, child: Mutex::new(Some(child)), words, listener }
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.id
    }

    /// How it ended, once its stream has; `None` if it hasn't ended, or there is no process.
    pub(crate) fn status_soon(&self) -> Option<ExitStatus> {
        self.wait(STATUS_SOON)
    }

    /// The last it has said, complete if it has ended.
    pub(crate) fn last_words(&self) -> String {
        let deadline = Instant::now() + WORDS_SOON;
        let speaks = || lock(&self.listener).as_ref().is_some_and(|listener| !listener.is_finished());
        while speaks() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let words: Vec<u8> = lock(&self.words).iter().copied().collect();
        String::from_utf8_lossy(&words).trim().to_owned()
    }

    /// Waits until it has ended by itself, or kills it.
    pub(super) fn end(&self) {
        if let Some(socket) = &self.socket {
            // Threads that read or write it learn of it. An error means that it is shut already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if self.wait(GRACE).is_some() {
            return;
        }
        if let Some(mut child) = lock(&self.child).take() {
            // An error of kill is that it has just ended; wait reaps it in either case.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Without holding the lock while it sleeps: several threads may want to know.
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

/// Reads standard error to its end, or the process would stop when the pipe is full.
fn listen(mut stderr: ChildStderr, words: Arc<Mutex<VecDeque<u8>>>) -> Option<JoinHandle<()>> {
    let read = move || {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            let mut words = lock(&words);
            words.extend(&buffer[..count]);
            let excess = words.len().saturating_sub(LAST_WORDS);
            words.drain(..excess);
        }
    };
    thread::Builder::new().name("agent-stderr".into()).spawn(read).ok()
}

/// A thread that panicked while it held one of these locks left nothing half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
