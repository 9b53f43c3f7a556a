//! Ending a test from another thread.

use std::{
    net::Shutdown,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use socket2::Socket;

use crate::error::EngineError;

/// A switch that makes a running test return [`Cancelled`](crate::EngineError::Cancelled) soon.
///
/// Clones share it, and it can't be reset: a test that is started with it afterwards returns immediately.
#[derive(Clone, Default)]
pub struct Cancel(Arc<State>);

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    sockets: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    /// Weak references, so that a finished flow closes its socket although this list still names it.
    sockets: Vec<Weak<Socket>>,
    /// Length of the list at which closed sockets are removed.
    full: usize,
}

impl Cancel {
    /// Creates an unused switch.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Cancels the test. Any thread may call this, any number of times.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        for socket in self.watched().sockets.iter().filter_map(Weak::upgrade) {
            interrupt(&socket);
        }
    }

    /// Returns true if [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Registers `socket`, so that [`cancel`](Self::cancel) wakes threads that are blocked on it.
    pub(crate) fn watch(&self, socket: &Arc<Socket>) {
        let mut watched = self.watched();
        if watched.sockets.len() >= watched.full {
            watched.sockets.retain(|socket| socket.strong_count() > 0);
            watched.full = 2 * watched.sockets.len() + 16;
        }
        watched.sockets.push(Arc::downgrade(socket));
        // `cancel` may have processed the list before this socket was added.
        if self.is_cancelled() {
            interrupt(socket);
        }
    }

    /// Replaces an error caused by the cancellation.
    pub(crate) fn explain(&self, error: EngineError) -> EngineError {
        if self.is_cancelled() { EngineError::Cancelled } else { error }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes every thread that is blocked on `socket`; later calls on it return immediately.
///
/// Linux wakes the sleepers of an unconnected UDP socket too, although shutdown(2) then fails with ENOTCONN. Any other
/// failure means that the socket is already dead, with the same effect.
pub(crate) fn interrupt(socket: &Socket) {
    let _ = socket.shutdown(Shutdown::Both);
}
