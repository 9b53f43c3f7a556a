//! The process behind a link: its last output, its status and its end.

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
use vtax_model::foreign::ForeignText;

/// Bytes of standard error that are kept, from its end.
const LAST_WORDS: usize = 4096;
/// Time for an agent to exit after its stream is closed; then it is killed. It gives its sessions half a
/// second to clean up.
const GRACE: Duration = Duration::from_millis(1500);
/// Time to wait for the status of a process that has closed its stream. The kernel closes files before it
/// tells the parent.
const STATUS_SOON: Duration = Duration::from_millis(300);
/// Time for which standard error is read after the process has exited. It isn't read to its end: an `ssh` that
/// shares connections leaves a master process behind that keeps it open.
const WORDS_SOON: Duration = Duration::from_millis(100);

/// A child process, or none, because a link may use other streams. It is killed and reaped on drop.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    id: Option<u32>,
    /// The socket at the other end of a link without a process; shut down when the link ends.
    socket: Option<UnixStream>,
    child: Mutex<Option<Child>>,
    words: Arc<Mutex<VecDeque<u8>>>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl ChildProcess {
    /// For a link to a socket or to some other stream.
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

    /// The exit status, after the stream has ended. `None` if the process hasn't ended or there is none.
    pub(crate) fn status_soon(&self) -> Option<ExitStatus> {
        self.wait(STATUS_SOON)
    }

    /// The end of its standard error; complete if the process has ended.
    pub(crate) fn last_words(&self) -> ForeignText {
        let deadline = Instant::now() + WORDS_SOON;
        let speaks = || lock(&self.listener).as_ref().is_some_and(|listener| !listener.is_finished());
        while speaks() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let words: Vec<u8> = lock(&self.words).iter().copied().collect();
        String::from_utf8_lossy(&words).trim().into()
    }

    /// Waits until the process has ended by itself, or kills it.
    pub(super) fn end(&self) {
        if let Some(socket) = &self.socket {
            // This wakes the threads that read or write the socket. An error means that it is shut down already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if self.wait(GRACE).is_some() {
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

/// Reads standard error to its end; otherwise the process would stop when the pipe is full.
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
