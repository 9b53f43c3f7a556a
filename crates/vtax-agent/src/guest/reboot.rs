//! Boots the machine again when its first process is told to, as `busybox reboot` and `kill -TERM 1` do it.
//!
//! What runs is ended first. So the coordinator hears how its programs ended, and a conversation doesn't break off without
//! a word: over a virtio-serial port nobody sees that the other side is gone.

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

/// The program that asked may end by itself, with its own status.
const FAREWELL: Duration = Duration::from_millis(300);
/// How long all others may take to end after SIGTERM.
const ENDING: Duration = Duration::from_secs(2);
const KILLED: Duration = Duration::from_secs(1);
/// How long the coordinator's last answers may take.
const ANSWERS: Duration = Duration::from_millis(300);

/// Waits for the signals on a thread of its own.
pub(super) fn listen() -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let wait = move || {
        if signals.forever().next().is_some() {
            leave();
        }
    };
    thread::Builder::new().name("reboot".into()).spawn(wait).map(drop)
}

/// A coordinator who comes now waits for the next boot.
pub(super) fn hold() {
    while LEAVES.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn leave() {
    LEAVES.store(true, Ordering::SeqCst);
    // Whoever asked sees by this that it was heard. Where it can't be written, they wait in vain and are ended.
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
        // One that has just ended needs no signal.
        let _ = process.signal(Signal::TERM);
    }
    let until = Instant::now() + ENDING;
    for process in &others {
        let _ = process.wait_end(until.saturating_duration_since(Instant::now()));
    }
    // What was started meanwhile is ended, too.
    let _ = kill_all(&self::others(), KILLED);
}

/// All processes but this one and the kernel's threads, which have no program.
fn others() -> Vec<ProcessId> {
    let has_program = |pid: &Pid| fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).is_ok();
    let pids = all_pids().unwrap_or_default().into_iter().filter(|pid| *pid != Pid::own() && has_program(pid));
    pids.filter_map(|pid| ProcessId::of(pid).ok()).collect()
}
