//! Waiting flows of a thread, and their deadlines. Coarse waits count ticks; exact times are in a heap.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BinaryHeap,
    future::poll_fn,
    task::Poll,
    time::Duration,
};

use vtax_sys::clock::now_ns;

use crate::{account::nanoseconds, drive::WaitUntil};

/// The unit of coarse waits in nanoseconds. A thread also notices within this time that it must stop.
pub(crate) const TICK: u64 = 20_000_000;

/// The waits of a thread's flows. Each flow has a slot and waits for one thing at a time.
pub(crate) struct Waits {
    slots: Vec<Wait>,
    timers: RefCell<BinaryHeap<Reverse<(u64, usize)>>>,
    ticks: Cell<u64>,
}

struct Wait {
    /// The tick in which the flow began to wait with patience; `NOT_WAITING` otherwise.
    since: Cell<u64>,
    patience: Cell<u64>,
    expired: Cell<bool>,
    /// The time for which the flow waits. Other entries of the slot in the heap are outdated.
    armed: Cell<u64>,
}

const NOT_WAITING: u64 = u64::MAX;
const NOT_ARMED: u64 = u64::MAX;

impl Waits {
    pub(crate) fn new(flows: usize, patience: Duration) -> Waits {
        let wait = |_| Wait {
            since: Cell::new(NOT_WAITING),
            patience: Cell::new(ticks(patience)),
            expired: Cell::new(false),
            armed: Cell::new(NOT_ARMED),
        };
        Waits { slots: (0..flows).map(wait).collect(), timers: RefCell::default(), ticks: Cell::new(0) }
    }

    pub(crate) fn set_patience(&self, slot: usize, patience: Duration) {
        self.slots[slot].patience.set(ticks(patience));
    }

    /// Forgets the slot's previous waits.
    #[inline]
    pub(crate) fn begin(&self, slot: usize) {
        self.slots[slot].since.set(NOT_WAITING);
        self.slots[slot].expired.set(false);
    }

    #[inline]
    pub(crate) fn wait(&self, slot: usize, until: WaitUntil) {
        let since = &self.slots[slot].since;
        match until {
            WaitUntil::Patience if since.get() == NOT_WAITING => since.set(self.ticks.get()),
            WaitUntil::Patience => {}
            WaitUntil::Moment(moment) => self.arm(slot, moment),
        }
    }

    #[inline]
    pub(crate) fn is_over(&self, slot: usize, until: WaitUntil) -> bool {
        match until {
            WaitUntil::Patience => self.slots[slot].expired.get(),
            WaitUntil::Moment(moment) => now_ns() >= moment,
        }
    }

    /// Waits for as long as the slot's patience allows.
    pub(crate) async fn nap(&self, slot: usize) {
        self.begin(slot);
        poll_fn(|_| match self.is_over(slot, WaitUntil::Patience) {
            true => Poll::Ready(()),
            false => {
                self.wait(slot, WaitUntil::Patience);
                Poll::Pending
            }
        })
        .await
    }

    /// Ends the slot's wait with patience, if it is in one.
    pub(crate) fn give_up(&self, slot: usize) {
        let wait = &self.slots[slot];
        wait.expired.set(wait.since.get() != NOT_WAITING);
    }

    /// A slot waits for one time only: the last one given.
    fn arm(&self, slot: usize, moment: u64) {
        if self.slots[slot].armed.replace(moment) != moment {
            self.timers.borrow_mut().push(Reverse((moment, slot)));
        }
    }

    /// The earliest moment that a flow waits for.
    pub(crate) fn next_moment(&self) -> Option<u64> {
        let mut timers = self.timers.borrow_mut();
        loop {
            let &Reverse((moment, slot)) = timers.peek()?;
            if self.slots[slot].armed.get() == moment {
                return Some(moment);
            }
            timers.pop();
        }
    }

    /// The next slot whose time has come.
    pub(crate) fn take_due(&self, now: u64) -> Option<usize> {
        self.next_moment().filter(|moment| *moment <= now)?;
        let Reverse((_, slot)) = self.timers.borrow_mut().pop()?;
        self.slots[slot].armed.set(NOT_ARMED);
        Some(slot)
    }

    /// Counts one more [`TICK`], and reports the slots whose patience is over.
    pub(crate) fn tick(&self, mut expired: impl FnMut(usize)) {
        let now = self.ticks.get() + 1;
        self.ticks.set(now);
        for (index, slot) in self.slots.iter().enumerate() {
            let since = slot.since.get();
            if since != NOT_WAITING && now - since > slot.patience.get() {
                slot.expired.set(true);
                expired(index);
            }
        }
    }
}

/// Rounds up, and adds one because the current tick has already begun.
fn ticks(patience: Duration) -> u64 {
    nanoseconds(patience).div_ceil(TICK) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(waits: &Waits) -> Vec<usize> {
        let mut expired = vec![];
        waits.tick(|slot| expired.push(slot));
        expired
    }

    #[test]
    fn patience_is_never_shorter_than_configured() {
        let waits = Waits::new(2, Duration::from_nanos(TICK));
        waits.wait(1, WaitUntil::Patience);
        assert!(expired(&waits).is_empty() && expired(&waits).is_empty());
        assert!(!waits.is_over(1, WaitUntil::Patience));
        assert_eq!(expired(&waits), [1]);
        assert!(waits.is_over(1, WaitUntil::Patience));
        waits.begin(1);
        assert!(!waits.is_over(1, WaitUntil::Patience));
        assert!(expired(&waits).is_empty());
    }

    #[test]
    fn deadlines_expire_in_order_and_the_last_one_set_counts() {
        let waits = Waits::new(3, Duration::ZERO);
        for (slot, moment) in [(0, 300), (1, 200), (2, 100), (2, 250), (1, 200)] {
            waits.wait(slot, WaitUntil::Moment(moment));
        }
        assert_eq!(waits.next_moment(), Some(200));
        assert_eq!(waits.take_due(199), None);
        assert_eq!([(); 4].map(|()| waits.take_due(300)), [Some(1), Some(2), Some(0), None]);
        // A time may also be in the past.
        waits.wait(0, WaitUntil::Moment(0));
        assert_eq!(waits.take_due(1), Some(0));
    }
}
