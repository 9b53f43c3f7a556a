//! Watches a server while a command runs in it: its agent must answer, and the server must not reboot.
//!
//! A server that is told to reboot ends the command first. A server that is reset informs only QEMU: its agent's port
//! stays open but falls silent.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use miette::bail;
use vtax_guest::qmp::Monitor;

use super::{EmulatedServerUp, MONITOR_TIME};
use crate::threads::start_in;

/// Time for which its agent may be silent while a command runs: the command's guests may take all CPUs.
const SILENCE: Duration = Duration::from_secs(150);
/// Interval at which the agent is polled in the meantime.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit for an event, which may come as long as the command runs, or never.
const EVER: Duration = Duration::from_secs(3600);

impl EmulatedServerUp {
    /// Does `work`, and kills the server if its agent stops answering in the meantime. If the server reboots, the link
    /// ends, and that is the error.
    pub(super) fn watched<T>(&self, work: impl FnOnce() -> T) -> miette::Result<T> {
        let (over, booted) = (AtomicBool::new(false), AtomicBool::new(false));
        // Without it, only the agent's silence shows a reset.
        let launch = self.qemu.launch();
        let monitor = Monitor::connect(&launch.name, &launch.events_socket(), MONITOR_TIME).ok();
        let hang_up = monitor.as_ref().and_then(|monitor| monitor.hang_up().ok());
        let done = thread::scope(|scope| {
            let watch = start_in(scope, "watcher", || self.ping_until(&over))?;
            if let Some(monitor) = monitor {
                start_in(scope, "events", || self.hear_reset(monitor, &booted))?;
            }
            let done = work();
            over.store(true, Ordering::Relaxed);
            watch.thread().unpark();
            drop(hang_up);
            miette::Result::<T>::Ok(done)
        })?;
        if booted.load(Ordering::Relaxed) {
            bail!(
                code = "server-rebooted",
                "the emulated server rebooted while a command ran in it; the command was lost"
            );
        }
        Ok(done)
    }

    fn ping_until(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if self.link.ping(SILENCE).is_err_and(|error| !error.is_death()) && !over.load(Ordering::Relaxed) {
                let seconds = SILENCE.as_secs();
                self.events.tell(format_args!("server: no output from its agent for {seconds} s: stopping the server"));
                // A program that has ended already needs no signal.
                let _ = self.qemu.process().signal(vtax_sys::process::Signal::KILL);
                return;
            }
            thread::park_timeout(PING_INTERVAL);
        }
    }

    fn hear_reset(&self, mut monitor: Monitor, booted: &AtomicBool) {
        // An error means that the work is done, or that QEMU has exited, which is noticed
        // elsewhere.
        while let Ok(event) = monitor.event(Instant::now() + EVER) {
            if event.is_some_and(|event| event.name == "RESET") {
                booted.store(true, Ordering::Relaxed);
                return self.link.hang_up();
            }
        }
    }
}
