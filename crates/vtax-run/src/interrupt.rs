//! Ctrl-C: the first one stops the run cleanly, the second leaves immediately.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use crate::{events::RunEvents, stop::Coded, threads::start};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};

/// The status with which a shell reports a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

type Action = Box<dyn Fn() + Send>;

/// The user's request to stop, and the action to take immediately on it.
#[derive(Clone, Default)]
pub struct Interrupt {
    events: RunEvents,
    told: &'static str,
    asked: Arc<AtomicUsize>,
    action: Arc<Mutex<Option<Action>>>,
    /// None in the thread that hears the signals.
    #[expect(dead_code, reason = "what counts is when the last clone of it is dropped")]
    caught: Option<Arc<Caught>>,
}

/// Ends the thread that hears the signals, so that the next run of this process is asked alone.
struct Caught(Handle);

impl Drop for Caught {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub fn catch(events: &RunEvents) -> miette::Result<Interrupt> {
        Interrupt::catch_telling("samples taken so far are saved", events)
    }

    /// Does the same, and shows the user `told` after Ctrl-C.
    pub fn catch_telling(told: &'static str, events: &RunEvents) -> miette::Result<Interrupt> {
        let interrupt = Interrupt { told, events: events.clone(), ..Interrupt::default() };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).coded("kernel", || "catching Ctrl-C")?;
        let (hearing, handle) = (interrupt.clone(), signals.handle());
        start("signals", move || signals.forever().for_each(|signal| hearing.signalled(signal)))?;
        Ok(Interrupt { caught: Some(Arc::new(Caught(handle))), ..interrupt })
    }

    /// Returns whether they have.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Sets what is done immediately when the user asks to stop. It replaces what was set before. If the user has asked
    /// already, it is done now, and perhaps once more if the signal comes in this moment.
    pub(crate) fn on_ask(&self, action: impl Fn() + Send + 'static) {
        *self.action.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
        if self.asked() {
            self.act();
        }
    }

    /// Ends this process immediately when the user asks to stop, for there is nothing yet to put back.
    pub(crate) fn leave_on_ask(&self) {
        self.on_ask(|| std::process::exit(INTERRUPTED));
    }

    /// Only notes that the user asked to stop, for [`asked`](Self::asked).
    pub(crate) fn only_note(&self) {
        *self.action.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn signalled(&self, signal: i32) {
        if self.asked.fetch_add(1, Ordering::Relaxed) > 0 {
            self.events.tell("vtax: exiting immediately; `vtax lab clean` removes what is left of the lab");
            std::process::exit(128 + signal);
        }
        self.events.tell(format_args!("vtax: stopping: {} (press again to exit immediately)", self.told));
        self.act();
    }

    fn act(&self) {
        if let Some(action) = &*self.action.lock().unwrap_or_else(PoisonError::into_inner) {
            action();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_after_ctrl_c_is_done_at_once() {
        let (interrupt, done) = (Interrupt::default(), Arc::new(AtomicUsize::new(0)));
        let count = |done: &Arc<AtomicUsize>| {
            let done = Arc::clone(done);
            move || {
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        interrupt.on_ask(|| panic!("the user hasn't asked yet, and this is replaced"));
        interrupt.on_ask(count(&done));
        interrupt.signalled(SIGINT);
        interrupt.on_ask(count(&done));
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }
}
