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
/// Clones are the same switch. It stays thrown: a test that is started with it afterwards returns at once.
#[derive(Clone, Default)]
pub struct Cancel(Arc<State>);

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    sockets: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    /// Weak, so that a flow that is done closes its socket although it is listed here.
    sockets: Vec<Weak<Socket>>,
    /// When the list is this long, those that are closed are taken off it.
    full: usize,
}

impl Cancel {
    /// A switch that is not thrown.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Throws the switch. May be called from any thread, any number of times.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        for socket in self.watched().sockets.iter().filter_map(Weak::upgrade) {
            interrupt(&socket);
        }
    }

    /// Whether the switch was thrown.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Lets [`cancel`](Self::cancel) wake threads that are blocked on `socket`.
    pub(crate) fn watch(&self, socket: &Arc<Socket>) {
        let mut watched = self.watched();
        if watched.sockets.len() >= watched.full {
            watched.sockets.retain(|socket| socket.strong_count() > 0);
            watched.full = 2 * watched.sockets.len() + 16;
        }
        watched.sockets.push(Arc::downgrade(socket));
        // `cancel` may have gone through the list before this socket was on it.
        if self.is_cancelled() {
            interrupt(socket);
        }
    }

    /// Errors that came after the switch was thrown are its doing.
    pub(crate) fn explain(&self, error: EngineError) -> EngineError {
        if self.is_cancelled() { EngineError::Cancelled } else { error }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes every thread that is blocked on `socket`; its calls return at once from now on.
///
/// Linux wakes the sleepers of an unconnected UDP socket too, although shutdown(2) then fails
/// with ENOTCONN; failing otherwise means that the socket is dead already, which is as good.
pub(crate) fn interrupt(socket: &Socket) {
    let _ = socket.shutdown(Shutdown::Both);
}
