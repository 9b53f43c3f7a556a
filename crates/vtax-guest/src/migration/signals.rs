//! Signals from other threads to a migration.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A switch that cancels a migration from another thread. Clones share it, and nothing resets it.
#[derive(Debug, Clone, Default)]
pub struct MigrationCancel(Arc<AtomicBool>);

impl MigrationCancel {
    /// Cancels what has not switched over yet.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns true if somebody has cancelled it.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The last sign that a source makes progress, for a target that cannot see that itself. Clones share it.
#[derive(Debug, Clone)]
pub struct SourcePulse(Arc<Mutex<Instant>>);

impl Default for SourcePulse {
    fn default() -> SourcePulse {
        SourcePulse(Arc::new(Mutex::new(Instant::now())))
    }
}

impl SourcePulse {
    /// The source has made progress, or holds the guest on purpose.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn silent(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}
