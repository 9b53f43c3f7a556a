//! State shared by the threads of one end.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use super::{Counted, warming::Warming};
use crate::{error::EngineError, flow::Session};
use vtax_model::station::Schedule;

/// State shared by the threads of one end while the test runs.
pub(crate) struct Shared {
    pub(crate) session: Arc<Session>,
    pub(crate) unit: Counted,
    pub(crate) warming: Warming,
    /// Number of flows that have not finished their window yet. At a receiving end, the others continue reading until
    /// this is 0, so that all flows are measured under the same load. An initiator of connections tells the responder
    /// when this is 0.
    unfinished: AtomicUsize,
    failure: Mutex<Option<EngineError>>,
    /// If flows carry no marks (crr, cc), another thread opens the window for all of them; at the responder it closes
    /// the window, too. Times are on this machine's clock.
    warm: AtomicBool,
    opens: AtomicU64,
    closes: AtomicU64,
    /// Empty at a responder.
    pub(crate) schedule: Schedule,
    /// Why idle states could not be disabled, if the test requested that.
    pub(crate) idle_not_held: Option<String>,
}

impl Shared {
    pub(crate) fn new(
        session: &Arc<Session>,
        unit: Counted,
        threads: usize,
        awaited: usize,
        schedule: Schedule,
        idle_not_held: Option<String>,
    ) -> Shared {
        Shared {
            session: session.clone(),
            unit,
            warming: Warming::new(session.spec.warmup, threads),
            unfinished: AtomicUsize::new(awaited),
            failure: Mutex::new(None),
            warm: AtomicBool::new(false),
            opens: AtomicU64::new(u64::MAX),
            closes: AtomicU64::new(u64::MAX),
            schedule,
            idle_not_held,
        }
    }

    pub(crate) fn is_sliced(&self) -> bool {
        self.session.spec.slices.is_some()
    }

    pub(crate) fn one_has_finished(&self) {
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn any_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) > 0
    }

    /// Keeps the first error, because later ones are consequences, and ends the other threads.
    pub(crate) fn fail(&self, error: EngineError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop();
    }

    pub(crate) fn stop(&self) {
        self.session.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn take_failure(&self) -> Option<EngineError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reports that it is time to open the common window.
    pub(crate) fn has_warmed_up(&self) {
        self.warm.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed)
    }

    /// Opens the common window.
    pub(crate) fn open_at(&self, now: u64) {
        self.opens.store(now, Ordering::Release);
    }

    pub(crate) fn close_at(&self, now: u64) {
        self.closes.store(now, Ordering::Release);
    }

    /// Start and end of the common window; `u64::MAX` if not known yet.
    #[inline]
    pub(crate) fn window(&self) -> (u64, u64) {
        (self.opens.load(Ordering::Acquire), self.closes.load(Ordering::Acquire))
    }
}
