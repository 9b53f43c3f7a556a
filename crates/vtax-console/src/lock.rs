//! Locks for threads that never leave data half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires the lock. A thread that panicked while holding it must not end the others' sessions.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
