//! Counters and their times.
//!
//! The large state, above all a histogram, exists once per thread ([`ThreadCounts`]), never once per flow. A workload
//! reports its start and completed work to its thread's [`ThreadRecorder`], and asks whether the warm-up continues and
//! when the measured time ends. [`Shared`] is the state common to the threads of one end, and [`report`] merges their
//! counts into the end's report.
//!
//! **Windows.** The first flow of a thread that has warmed up opens the thread's window: the thread reads its
//! counters then. The window closes `duration` later for all flows of the thread. Each flow's own time runs
//! from the start of the first unit that is counted to the end of the last. So its time divided by its
//! transactions is exactly their mean. The flows are joined by their rates.

mod desk;
mod ledger;
mod meter;
mod packets;
mod report;
mod series;
mod session;
mod shared;
mod stages;
mod warming;

pub(crate) use desk::{FlowRecorder, ThreadRecorder};
pub(crate) use ledger::{Counted, Sender, ThreadCounts};
pub(crate) use meter::Meter;
pub(crate) use report::merge;
pub(crate) use session::Begun;
pub(crate) use shared::Shared;
pub(crate) use stages::Moments;

use std::time::Duration;

/// A moment `span` after `now`, in the nanoseconds of [`now_ns`](vtax_sys::clock::now_ns).
pub(crate) fn after(now: u64, span: Duration) -> u64 {
    now.saturating_add(nanoseconds(span))
}

pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds from `start` to `end`.
pub(crate) fn seconds(start: u64, end: u64) -> f64 {
    Duration::from_nanos(end.saturating_sub(start)).as_secs_f64()
}
