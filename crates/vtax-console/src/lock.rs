//! Locks of threads of which none leaves things half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock. A thread that panicked while it had the lock must not end the others' sessions.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
