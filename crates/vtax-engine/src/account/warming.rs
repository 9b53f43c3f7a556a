//! The end of the warm-up: after a fixed time, or when the rate of all threads of this end has become steady.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vtax_model::workload::Warmup;
use vtax_stats::steady::{Steady, SteadyState};

use super::after;

/// Length in nanoseconds of one bin of the series; longer if nothing completes in time.
const BIN: u64 = 10_000_000;

/// State of the common warm-up of an end's threads.
pub(crate) struct Warming {
    plan: Warmup,
    completed: Box<[Counter]>,
    /// True if a thread examined the series. A responder of transactions doesn't: it follows the initiator.
    watched: AtomicBool,
    steady: AtomicBool,
}

/// A counter on its own cache line, because the threads count concurrently.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// Only the first thread has one.
pub(super) struct Watch {
    detector: Steady,
    bin_end: u64,
    total: u64,
}

impl Warming {
    pub(crate) fn new(plan: Warmup, threads: usize) -> Warming {
        let completed = (0..threads).map(|_| Counter::default()).collect();
        Warming { plan, completed, watched: AtomicBool::new(false), steady: AtomicBool::new(false) }
    }

    /// Returns whether the series was steady at the end of the warm-up. None if no thread examined it.
    pub(crate) fn outcome(&self) -> Option<bool> {
        self.watched.load(Ordering::Relaxed).then(|| self.steady.load(Ordering::Relaxed))
    }

    /// Counts the units that a thread has completed at `now`; the thread began at `begun`. Returns false if the warm-up
    /// is over.
    #[inline]
    pub(super) fn goes_on(&self, thread: usize, begun: u64, now: u64, units: u64, watch: &mut Option<Watch>) -> bool {
        let in_time = now < after(begun, self.plan.most().0);
        if let Warmup::For(_) = self.plan {
            return in_time;
        }
        self.watched.store(true, Ordering::Relaxed);
        if !in_time {
            return false;
        }
        self.completed[thread].0.fetch_add(units, Ordering::Relaxed);
        if thread == 0 && watch.get_or_insert_with(|| Watch::from(begun)).is_steady(now, || self.total()) {
            self.steady.store(true, Ordering::Relaxed);
        }
        !self.steady.load(Ordering::Relaxed)
    }

    fn total(&self) -> u64 {
        self.completed.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

impl Watch {
    fn from(begun: u64) -> Watch {
        Watch { detector: Steady::new(), bin_end: begun + BIN, total: 0 }
    }

    fn is_steady(&mut self, now: u64, total: impl FnOnce() -> u64) -> bool {
        if now < self.bin_end {
            return false;
        }
        let length = now - (self.bin_end - BIN);
        let total = total();
        let rate = (total - self.total) as f64 / length as f64;
        (self.total, self.bin_end) = (total, now + BIN);
        matches!(self.detector.push(rate), SteadyState::Steady { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::Span;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_fixed_time_is_each_threads_own() {
        let warming = Warming::new(Warmup::For(Span::from_millis(10)), 2);
        let mut watch = None;
        assert!(warming.goes_on(0, 5 * MS, 14 * MS, 1, &mut watch));
        assert!(!warming.goes_on(0, 5 * MS, 15 * MS, 1, &mut watch));
        assert!(warming.goes_on(1, 9 * MS, 15 * MS, 1, &mut watch));
        assert_eq!(warming.outcome(), None);
    }

    /// 1000 units per bin from two threads, after a ramp of 20 bins.
    #[test]
    fn a_level_of_all_threads_ends_it() {
        let warming = Warming::new(Warmup::UntilSteady { most: Span::from_millis(5_000) }, 2);
        let (mut watch, mut other) = (None, None);
        let ended = (1u64..500).find(|bin| {
            let (now, units) = (bin * BIN, 25 * (*bin).min(20) + bin % 3);
            let second = warming.goes_on(1, 0, now, units, &mut other);
            !warming.goes_on(0, 0, now, units, &mut watch) || !second
        });
        assert!(ended.is_some_and(|bin| (20..120).contains(&bin)), "{ended:?}");
        assert_eq!(warming.outcome(), Some(true));
        assert!(!warming.goes_on(1, 0, 100, 1, &mut other), "the others follow");
    }

    #[test]
    fn an_unsteady_warm_up_times_out_and_is_reported() {
        let warming = Warming::new(Warmup::UntilSteady { most: Span::from_millis(300) }, 1);
        let mut watch = None;
        let ended = (1u64..100).find(|bin| !warming.goes_on(0, 0, bin * BIN, 1 << bin.min(&40), &mut watch));
        assert_eq!((ended, warming.outcome()), (Some(30), Some(false)));
    }
}
