//! Locks for threads that never leave data partially changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires the lock, even if a thread panicked while holding it: that must not end other sessions.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
