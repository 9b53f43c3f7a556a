//! Recording interface for the workloads of a thread.

use std::{
    cell::{RefCell, RefMut},
    ops::Deref,
};

use vtax_model::measurement::{EndReport, FileReport};
use vtax_stats::histogram::Histogram;
use vtax_sys::{clock::now_ns, cpu::thread_times};

use super::{
    after,
    ledger::{Counted, Sender, ThreadCounts},
    meter::{Meter, suspended_for},
    nanoseconds,
    series::{Series, Totals},
    shared::Shared,
    stages::{self, Moments},
};
use crate::error::{EngineError, Result};

/// A thread's recorder, as one of its flows uses it.
#[derive(Clone, Copy)]
pub(crate) struct FlowRecorder<'a> {
    thread: &'a ThreadRecorder<'a>,
    pub(crate) slot: usize,
}

impl<'a> Deref for FlowRecorder<'a> {
    type Target = ThreadRecorder<'a>;

    #[inline]
    fn deref(&self) -> &ThreadRecorder<'a> {
        self.thread
    }
}

/// The counts of one thread; its flows add to them.
pub(crate) struct ThreadRecorder<'a> {
    pub(crate) shared: &'a Shared,
    thread: usize,
    meter: Meter<'a>,
    ledger: RefCell<ThreadCounts>,
}

impl<'a> ThreadRecorder<'a> {
    pub(crate) fn new(shared: &'a Shared, thread: usize, meter: Meter<'a>, flows: usize) -> ThreadRecorder<'a> {
        let open_loop = shared.session.spec.options.arrivals.is_some();
        ThreadRecorder { shared, thread, meter, ledger: RefCell::new(ThreadCounts::new(shared.unit, flows, open_loop)) }
    }

    pub(crate) fn flow(&'a self, slot: usize) -> FlowRecorder<'a> {
        FlowRecorder { thread: self, slot }
    }

    /// Records that the thread has sent or received its first message.
    pub(crate) fn begun(&self, now: u64) {
        let mut ledger = self.ledger.borrow_mut();
        if ledger.begun == 0 {
            ledger.begun = now;
        }
    }

    /// Counts work completed at `now`, before the window. Returns false when it is time to open the window.
    #[inline]
    pub(crate) fn warming(&self, now: u64, units: u64) -> bool {
        let ThreadCounts { begun, watch, .. } = &mut *self.ledger.borrow_mut();
        self.shared.warming.goes_on(self.thread, *begun, now, units, watch)
    }

    /// The latest end of the warm-up: for a flow that must wait before it can complete anything.
    pub(crate) fn warms_until(&self) -> u64 {
        after(self.ledger.borrow().begun, self.shared.session.spec.warmup.most().0)
    }

    fn open_thread(&self, ledger: &mut ThreadCounts) -> Result<()> {
        // A sender on a path without loss that pauses between slices may stay in slow start forever.
        if !self.shared.is_sliced() {
            ledger.in_slow_start = self.meter.in_slow_start()?;
        }
        ledger.opened = Some(self.meter.read()?);
        ledger.start = now_ns();
        ledger.closes = after(ledger.start, self.duration());
        if let Some(interval) = self.shared.session.spec.options.interval {
            let totals = Totals { bytes: 0, ..self.totals(ledger)? };
            let series = Series::new(nanoseconds(interval.0), nanoseconds(self.duration()), ledger.start, totals);
            ledger.turn = series.turn();
            ledger.series = Some(series);
        }
        Ok(())
    }

    fn duration(&self) -> std::time::Duration {
        self.shared.session.spec.duration.0
    }

    /// Start times of the slices of a sliced sample. A slice without a time in the schedule begins immediately.
    pub(crate) fn turns(&self) -> Vec<u64> {
        let starts = &self.shared.schedule.slices;
        let passes = self.shared.session.spec.slices.map_or(0, |slices| slices.passes as usize);
        (0..passes).map(|pass| starts.get(pass).copied().unwrap_or(0)).collect()
    }

    /// Records that everything belonging to the slice due at `start` was over at `now`.
    pub(crate) fn slot_ended(&self, start: u64, now: u64) {
        let slot = self.shared.schedule.slot;
        if slot > 0 && start > 0 {
            let mut ledger = self.ledger.borrow_mut();
            ledger.report.overrun_ns = ledger.report.overrun_ns.max(now.saturating_sub(start + slot));
        }
    }

    /// The thread's window: its start and its end.
    pub(crate) fn window(&self) -> (u64, u64) {
        let ledger = self.ledger.borrow();
        (ledger.start, ledger.closes)
    }

    /// True once, in the middle of the thread's window.
    pub(crate) fn is_time_to_stall(&self, now: u64) -> bool {
        let mut ledger = self.ledger.borrow_mut();
        let due = ledger.start > 0 && now >= ledger.start + (ledger.closes - ledger.start) / 2;
        due && !std::mem::replace(&mut ledger.stalled, due)
    }

    /// Records the time of an open-loop transaction, from its actual send.
    #[inline]
    pub(crate) fn sent_and_answered(&self, rtt: u64) {
        if let Some(histogram) = &mut self.ledger.borrow_mut().report.rtt_from_send {
            histogram.record(rtt);
        }
    }

    /// Records how long this responder deliberately waited before a response.
    pub(crate) fn waited(&self, ns: u64) {
        self.ledger.borrow_mut().report.waits.get_or_insert_with(Histogram::new).record(ns);
    }

    /// The part of the report counted by the workloads themselves.
    pub(crate) fn report(&self) -> RefMut<'_, EndReport> {
        RefMut::map(self.ledger.borrow_mut(), |ledger| &mut ledger.report)
    }

    /// Records the timestamps of a message in the window, if stages were requested.
    pub(crate) fn passage(&self, moments: &Moments) {
        let initiates = matches!(self.shared.unit, Counted::Transactions(_));
        stages::record(self.ledger.borrow_mut().report.stages.get_or_insert_default(), moments, initiates);
    }

    pub(crate) fn file(&self, file: impl FnOnce(f64, f64) -> FileReport) {
        let mut ledger = self.ledger.borrow_mut();
        if let (Some(opened), Some(closed)) = (&ledger.opened, &ledger.closed) {
            let used = self.meter.thread_cpu(opened, closed);
            ledger.report.file = Some(file(used.user, used.system));
        }
    }

    /// Reads the counters at the end of the thread's window, if this flow is the first to reach it.
    pub(crate) fn close(&self) -> Result<()> {
        let mut ledger = self.ledger.borrow_mut();
        self.close_thread(&mut ledger)?;
        if self.shared.is_sliced() {
            self.end_slice(&mut ledger);
        }
        Ok(())
    }

    /// A sliced sample has one flow, so the thread's window is the flow's window.
    fn end_slice(&self, ledger: &mut ThreadCounts) {
        let (Some(opened), Some(closed)) = (ledger.opened, ledger.closed) else { return };
        let slot = ledger.openers.1;
        let used = self.meter.thread_cpu(&opened, &closed);
        ledger.end_slice(slot, closed.cpu_since(&opened), used, closed.tcp_since(&opened));
    }

    fn close_thread(&self, ledger: &mut ThreadCounts) -> Result<()> {
        let Some(opened) = ledger.opened.filter(|_| ledger.closed.is_none()) else { return Ok(()) };
        let closed = self.meter.read()?;
        ledger.closed = Some(closed);
        self.close_series(ledger)?;
        suspended_for(&opened, &closed).map_or(Ok(()), |seconds| Err(EngineError::Suspended { seconds }))
    }

    #[cold]
    fn turn_over(&self, ledger: &mut ThreadCounts, now: u64) -> Result<()> {
        let totals = self.totals(ledger)?;
        if let Some(series) = &mut ledger.series {
            let rtt = ledger.report.rtt.as_mut().map(|rtt| series.rtt.close_into(rtt)).unwrap_or_default();
            series.turn_over(now, totals, rtt);
            ledger.turn = series.turn();
        }
        Ok(())
    }

    fn close_series(&self, ledger: &mut ThreadCounts) -> Result<()> {
        if ledger.series.is_none() {
            return Ok(());
        }
        let now = now_ns();
        self.turn_over(ledger, now)?;
        let totals = self.totals(ledger)?;
        if let Some(series) = &mut ledger.series {
            let rtt = ledger.report.rtt.as_mut().map(|rtt| series.rtt.close_into(rtt)).unwrap_or_default();
            series.close(now, totals, rtt);
            ledger.turn = u64::MAX;
        }
        Ok(())
    }

    /// Costs a system call for each TCP flow, and one more for each sender.
    fn totals(&self, ledger: &ThreadCounts) -> Result<Totals> {
        Ok(Totals {
            retransmits: self.meter.retransmits()?,
            windows: self.meter.windows()?,
            cpu: thread_times().total.as_secs_f64(),
            ..ledger.totals()
        })
    }

    /// The thread's counts; must be called on the thread itself. A window that is still open ends now.
    pub(crate) fn into_ledger(self) -> (ThreadCounts, Meter<'a>) {
        // If the counters can't be read, the report has no costs. The caller knows already that it ended early.
        let _ = self.close();
        let mut ledger = self.ledger.into_inner();
        ledger.gather();
        (ledger, self.meter)
    }
}

impl FlowRecorder<'_> {
    /// Opens a flow's window, and the thread's window if no flow has opened it yet. Returns the start of the flow's
    /// window.
    pub(crate) fn open(&self, way: Sender) -> Result<u64> {
        let mut ledger = self.ledger.borrow_mut();
        ledger.openers.0 += 1;
        let now = if ledger.openers.0 == 1 {
            ledger.openers.1 = self.slot;
            self.open_thread(&mut ledger)?;
            ledger.start
        } else {
            ledger.begins(now_ns())
        };
        let count = &mut ledger.counts[self.slot];
        (count.start, count.last, count.way) = (now, now, way);
        Ok(now)
    }

    /// Moves the start of a flow's time to `start`, before its window was opened.
    pub(crate) fn began_before(&self, start: u64) {
        self.ledger.borrow_mut().counts[self.slot].start = start;
    }

    /// The other end answered the opening mark, but the answer was lost, so the window restarts. If other flows of the
    /// thread have opened theirs, the thread's counters stay unchanged.
    pub(crate) fn reopen(&self) -> Result<()> {
        let mut ledger = self.ledger.borrow_mut();
        if ledger.openers == (1, self.slot) {
            self.open_thread(&mut ledger)?;
        }
        ledger.restart(self.slot, now_ns());
        Ok(())
    }

    /// Counts a transaction that took `rtt` and ended at `now`.
    #[inline]
    pub(crate) fn transaction(&self, rtt: u64, now: u64) -> Result<()> {
        let mut ledger = self.ledger.borrow_mut();
        if now >= ledger.turn {
            self.turn_over(&mut ledger, now)?;
        }
        ledger.record(rtt);
        ledger.add(self.slot, 1, now);
        Ok(())
    }

    /// Counts a request that this end has answered.
    #[inline]
    pub(crate) fn answered(&self) -> Result<()> {
        let mut ledger = self.ledger.borrow_mut();
        if ledger.turn == u64::MAX {
            let last = ledger.counts[self.slot].last;
            ledger.add(self.slot, 1, last);
            return Ok(());
        }
        let now = now_ns();
        if now >= ledger.turn {
            self.turn_over(&mut ledger, now)?;
        }
        ledger.add(self.slot, 1, now);
        Ok(())
    }

    /// Counts bytes whose call ended at `now`.
    #[inline]
    pub(crate) fn bytes(&self, bytes: usize, now: u64) -> Result<()> {
        let mut ledger = self.ledger.borrow_mut();
        if now >= ledger.turn {
            self.turn_over(&mut ledger, now)?;
        }
        ledger.add(self.slot, bytes as u64, now);
        Ok(())
    }

    /// Ends a flow's time here, instead of at its last transaction.
    pub(crate) fn ends(&self, now: u64) {
        self.ledger.borrow_mut().counts[self.slot].last = now;
    }
}
