//! Ctrl-C: the first one stops the run cleanly, the second leaves immediately.
//!
//! Signals that arrive together are one request: the terminal sends Ctrl-C to a whole group, and a program in front of
//! vtax may forward its own. SIGHUP is never a second request, because nobody presses it: it means that the terminal or
//! the parent has ended, and the kernel sends the signal of prctl(2) PR_SET_PDEATHSIG for each thread of the parent.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{events::RunEvents, stop::Coded, threads::start};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag::register_conditional_default,
    iterator::{Handle, Signals},
};

/// Exit status that a shell reports for a program ended by SIGINT.
const INTERRUPTED: i32 = 130;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Time after the reaction to the first signal in which others belong to the same request. Nobody reads the message and
/// presses again faster. It doesn't begin at the signal, because one that arrives during the reaction, e.g. while guests
/// are killed, is handled only after it.
const SAME_REQUEST: Duration = Duration::from_millis(300);

type Action = Box<dyn Fn() + Send>;

/// The user's request to stop, and the immediate reaction to it.
#[derive(Clone, Default)]
pub struct Interrupt {
    events: RunEvents,
    told: &'static str,
    /// Message for a user who leaves immediately.
    left: &'static str,
    asked: Arc<AtomicBool>,
    /// Time at which the reaction to the first request was complete.
    reacted: Arc<OnceLock<Instant>>,
    action: Arc<Mutex<Option<Action>>>,
    /// None in the thread that receives the signals.
    #[expect(dead_code, reason = "what counts is when the last clone of it is dropped")]
    caught: Option<Arc<Caught>>,
}

/// Ends the signal thread on drop, so that only the next run of this process receives the signals.
struct Caught(Handle);

impl Drop for Caught {
    fn drop(&mut self) {
        self.0.close();
        LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).remove();
    }
}

/// Without listeners, a signal ends this process as if it weren't caught. signal-hook alone would ignore it.
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { count: 0, none: None });

struct Listeners {
    count: usize,
    /// True if there are no listeners. Read by the signal handler.
    none: Option<Arc<AtomicBool>>,
}

impl Listeners {
    fn add(&mut self) -> io::Result<()> {
        let none = match &self.none {
            Some(none) => none,
            None => {
                let none = Arc::new(AtomicBool::new(true));
                for signal in SIGNALS {
                    register_conditional_default(signal, Arc::clone(&none))?;
                }
                self.none.insert(none)
            }
        };
        none.store(false, Ordering::Relaxed);
        self.count += 1;
        Ok(())
    }

    fn remove(&mut self) {
        self.count -= 1;
        if let (0, Some(none)) = (self.count, &self.none) {
            none.store(true, Ordering::Relaxed);
        }
    }
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub fn catch(events: &RunEvents) -> miette::Result<Interrupt> {
        Interrupt::catch_telling("samples taken so far are saved", events)
    }

    /// Does the same, and shows the user `told` after Ctrl-C.
    pub fn catch_telling(told: &'static str, events: &RunEvents) -> miette::Result<Interrupt> {
        Interrupt::catch_saying(told, "`vtax lab clean` removes what is left of the lab", events)
    }

    /// Does the same, and shows the user `left` after the second Ctrl-C.
    pub fn catch_saying(told: &'static str, left: &'static str, events: &RunEvents) -> miette::Result<Interrupt> {
        let interrupt = Interrupt { told, left, events: events.clone(), ..Interrupt::default() };
        let mut signals = Signals::new(SIGNALS).coded("kernel", || "catching Ctrl-C")?;
        LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).add().coded("kernel", || "catching Ctrl-C")?;
        let (hearing, caught) = (interrupt.clone(), Caught(signals.handle()));
        start("signals", move || signals.forever().for_each(|signal| hearing.signalled(signal)))?;
        Ok(Interrupt { caught: Some(Arc::new(caught)), ..interrupt })
    }

    /// Returns whether the user has asked to stop.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Sets the action to take immediately when the user asks to stop, in place of an earlier one. If the user has
    /// already asked, the action is taken now, and possibly once more if the signal arrives at this moment.
    pub fn on_ask(&self, action: impl Fn() + Send + 'static) {
        *self.action.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
        if self.asked() {
            self.act();
        }
    }

    /// Ends this process immediately when the user asks to stop, because there is nothing to restore yet.
    pub(crate) fn leave_on_ask(&self) {
        self.on_ask(|| std::process::exit(INTERRUPTED));
    }

    /// Only records the user's request for [`asked`](Self::asked).
    pub(crate) fn only_note(&self) {
        *self.action.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn signalled(&self, signal: i32) {
        if let Some(reacted) = self.reacted.get() {
            if signal == SIGHUP || reacted.elapsed() < SAME_REQUEST {
                return;
            }
            self.events.tell(format_args!("vtax: exiting immediately; {}", self.left));
            std::process::exit(128 + signal);
        }
        self.asked.store(true, Ordering::Relaxed);
        self.events.tell(format_args!("vtax: stopping: {} (press again to exit immediately)", self.told));
        self.act();
        self.reacted.get_or_init(Instant::now);
    }

    fn act(&self) {
        if let Some(action) = &*self.action.lock().unwrap_or_else(PoisonError::into_inner) {
            action();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, os::unix::process::ExitStatusExt, process::Command, sync::atomic::AtomicUsize, thread};

    use super::*;

    /// Set in the process that a signal is to end.
    const CHILD: &str = "VTAX_TEST_SIGNALLED";

    #[test]
    fn a_signal_without_listeners_ends_the_process() {
        if env::var_os(CHILD).is_some() {
            drop(Interrupt::catch(&RunEvents::default()).expect("signals can be caught"));
            signal_hook::low_level::raise(SIGINT).expect("a signal to this process");
            thread::sleep(Duration::from_secs(60));
            return;
        }
        let name = "interrupt::tests::a_signal_without_listeners_ends_the_process";
        let mut child = Command::new(env::current_exe().expect("this program"));
        let output = child.args(["--exact", name]).env(CHILD, "").output().expect("it starts");
        assert_eq!(output.status.signal(), Some(SIGINT), "{output:?}");
    }

    /// The second one ended the run before it had restored the host, if only because it had to wait for the reaction to
    /// the first.
    #[test]
    fn signals_that_arrive_together_are_one_request() {
        let (interrupt, actions) = (Interrupt::default(), Arc::new(AtomicUsize::new(0)));
        let taken = Arc::clone(&actions);
        interrupt.on_ask(move || {
            taken.fetch_add(1, Ordering::Relaxed);
            thread::sleep(SAME_REQUEST);
        });
        interrupt.signalled(SIGINT);
        let reacted = Instant::now();
        for signal in [SIGINT, SIGTERM] {
            // After a long pause of this thread, the next one would end this program.
            if reacted.elapsed() < SAME_REQUEST / 2 {
                interrupt.signalled(signal);
            }
        }
        assert!(interrupt.asked());
        assert_eq!(actions.load(Ordering::Relaxed), 1);
    }

    /// A run that was cancelled in `vtax ui` exited without restoring the host if `vtax ui` ended next.
    #[test]
    fn the_end_of_the_terminal_is_no_second_request() {
        let interrupt = Interrupt::default();
        interrupt.signalled(SIGINT);
        thread::sleep(SAME_REQUEST * 2);
        interrupt.signalled(SIGHUP);
        assert!(interrupt.asked());
    }

    #[test]
    fn an_action_set_after_ctrl_c_is_taken_immediately() {
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
