//! Reboots the machine when its first process is asked to, e.g. by `busybox reboot` or `kill -TERM 1`.
//!
//! Running programs are ended first. So the coordinator learns how its programs ended, and the conversation doesn't
//! break off silently: on a virtio-serial port, neither side sees that the other is gone.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use vtax_sys::{
    power,
    process::{Pid, ProcessId, Signal, all_pids, kill_all},
};
use vtax_wire::guest::LEAVING;

use super::{say_of_agent, state};

static LEAVES: AtomicBool = AtomicBool::new(false);

/// Time for the requesting program to end with its own status.
const FAREWELL: Duration = Duration::from_millis(300);
/// Time limit for all other programs to end after SIGTERM.
const ENDING: Duration = Duration::from_secs(2);
const KILLED: Duration = Duration::from_secs(1);
/// Time limit for the coordinator's last answers.
const ANSWERS: Duration = Duration::from_millis(300);

/// Waits for the signals on a separate thread.
pub(super) fn listen() -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let wait = move || {
        if signals.forever().next().is_some() {
            leave();
        }
    };
    thread::Builder::new().name("reboot".into()).spawn(wait).map(drop)
}

/// Makes a coordinator that connects now wait for the next boot.
pub(super) fn hold() {
    while LEAVES.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn leave() {
    LEAVES.store(true, Ordering::SeqCst);
    // This file shows that the request was received. If it cannot be written, the requesting program waits without
    // success and is ended.
    let _ = fs::write(LEAVING, "");
    thread::sleep(FAREWELL);
    end_all();
    thread::sleep(ANSWERS);
    state::close();
    say_of_agent(&power::restart().to_string());
}

fn end_all() {
    let others = others();
    for process in &others {
        // A process that has just ended needs no signal.
        let _ = process.signal(Signal::TERM);
    }
    let until = Instant::now() + ENDING;
    for process in &others {
        let _ = process.wait_end(until.saturating_duration_since(Instant::now()));
    }
    // Also ends processes that were started in the meantime.
    let _ = kill_all(&self::others(), KILLED);
}

/// Returns all processes except this one and the kernel's threads, which have no program.
fn others() -> Vec<ProcessId> {
    let has_program = |pid: &Pid| fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).is_ok();
    let pids = all_pids().unwrap_or_default().into_iter().filter(|pid| *pid != Pid::own() && has_program(pid));
    pids.filter_map(|pid| ProcessId::of(pid).ok()).collect()
}
