//! Waiting for an exact time, and its cost.
//!
//! A timer wakes a thread some tens of µs late, so the last part of such a wait is spent on the CPU. That is overhead
//! of the measurement, and so is the timer's own, which on a virtual machine takes as long as a round trip. Each thread
//! counts both, and its reports keep them separate from the cost of the path.

use std::cell::Cell;

use vtax_sys::{clock::now_ns, cpu::thread_cpu_ns};

/// Time before the deadline at which a thread stops sleeping.
pub(crate) const SPIN: u64 = 60_000;

thread_local! {
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

/// A sleep ended by a timer unless something else happens first.
#[derive(Clone, Copy)]
pub(crate) struct TimedSleep {
    cpu: u64,
}

impl TimedSleep {
    /// Reads the thread's CPU time, which takes a system call.
    pub(crate) fn begin() -> TimedSleep {
        TimedSleep { cpu: thread_cpu_ns() }
    }

    /// Counts the CPU time since then: the timer woke the thread.
    pub(crate) fn ended_in_time(self) {
        WAITED.set(WAITED.get() + thread_cpu_ns().saturating_sub(self.cpu));
    }
}

/// Returns the CPU time in nanoseconds that this thread has spent waiting for exact times.
pub(crate) fn waited() -> u64 {
    WAITED.get()
}

/// Counts the time since `begun` as such a wait. If the thread was preempted in the meantime, this overestimates.
pub(crate) fn has_waited_since(begun: u64) {
    WAITED.set(WAITED.get() + now_ns().saturating_sub(begun).min(SPIN));
}

/// Spins until the given time and counts the duration.
pub(crate) fn wait_until(moment: u64) {
    let begun = now_ns();
    spin_until(moment);
    has_waited_since(begun);
}

/// Waits exactly, by spinning. It keeps a CPU busy all the time.
///
/// It doesn't use the CPU's pause instruction: a hypervisor deschedules a virtual CPU that pauses repeatedly
/// (pause-loop exiting), and resumes it some tens of µs too late.
///
/// Returns the time at which it ended: the first reading of the clock that isn't before the given time.
pub(crate) fn spin_until(moment: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= moment {
            return now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_up_to_the_longest_spin() {
        let counted = |wait: &dyn Fn()| {
            let before = waited();
            wait();
            waited() - before
        };
        // A thread that is preempted before it begins to wait has less to wait for.
        let halves = (0..100).map(|_| counted(&|| wait_until(now_ns() + SPIN / 2)));
        let longest = halves.max().expect("some");
        assert!((SPIN / 2 - 5_000..=SPIN).contains(&longest), "{longest}");
        assert_eq!(counted(&|| has_waited_since(now_ns() - 10 * SPIN)), SPIN, "the rest was preemption");
        std::thread::spawn(|| assert_eq!(waited(), 0)).join().expect("each thread counts its own");
    }
}
