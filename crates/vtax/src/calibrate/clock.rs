//! The cost of a timestamp and of recording a transaction.

use std::hint::black_box;

use serde::Serialize;
use vtax_stats::histogram::Histogram;
use vtax_sys::clock::{clocksource, now_ns, resolution};

/// The clock that stamps every transaction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClockRecord {
    /// The kernel's clock source, e.g. `tsc`.
    pub(crate) source: String,
    /// ns, as reported by the kernel.
    pub(crate) resolution_ns: u64,
    /// Minimum ns between two readings that differ.
    pub(crate) step_ns: u64,
    /// ns for one reading.
    pub(crate) reading_ns: f64,
    /// ns to record one transaction.
    pub(crate) recording_ns: f64,
}

/// Readings in a batch: a few milliseconds, shorter than the scheduler's slice.
const BATCH: u32 = 50_000;
/// The fastest of several batches counts: whatever else ran in between only makes a batch slower.
const BATCHES: u32 = 20;

pub(crate) fn measure() -> ClockRecord {
    ClockRecord {
        source: clocksource().unwrap_or_else(|_| "unknown".to_owned()),
        resolution_ns: u64::try_from(resolution().as_nanos()).unwrap_or(u64::MAX),
        step_ns: step(),
        reading_ns: fastest(|| (0..BATCH).for_each(|_| _ = black_box(now_ns()))),
        recording_ns: recording(),
    }
}

/// Returns the clock's resolution in practice: the smallest difference of two consecutive readings.
fn step() -> u64 {
    let steps = (0..BATCH).filter_map(|_| {
        let first = now_ns();
        let next = now_ns();
        (next > first).then_some(next - first)
    });
    steps.min().unwrap_or(0)
}

/// Measures with values spread like round-trip times, so that the counters do not all stay in the cache.
fn recording() -> f64 {
    let mut histogram = Histogram::new();
    fastest(|| (0..BATCH).for_each(|n| histogram.record(40_000 + u64::from(n.wrapping_mul(2_654_435_761) % 60_000))))
}

/// Returns the ns per step of the fastest batch.
fn fastest(mut batch: impl FnMut()) -> f64 {
    let times = (0..BATCHES).map(|_| {
        let begun = now_ns();
        batch();
        now_ns() - begun
    });
    times.min().unwrap_or(0) as f64 / f64::from(BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_has_a_cost_and_a_step() {
        let clock = measure();
        assert!(clock.reading_ns > 0.0 && clock.recording_ns > 0.0, "{clock:?}");
        assert!(clock.step_ns > 0 && clock.resolution_ns > 0);
    }
}
