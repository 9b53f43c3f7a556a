//! The common window of tests whose flows have no marks (crr, cc).
//!
//! One additional connection is admitted like any flow. The initiator uses it to signal the start and the end of the
//! window to the responder. It ends when every flow has finished the connection in progress at the window's end. So
//! both windows hold the same connections without a common clock, and the responder serves as long as flows still
//! connect.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use vtax_sys::clock::now_ns;

use crate::{
    account::{Shared, after},
    error::Result,
    flow::Flow,
    options::set_timeout,
    wire::Mark,
};

/// Interval at which a wait checks whether the test is over.
const TICK: Duration = Duration::from_millis(100);
/// Interval at which the initiator checks whether the warm-up, or the last connection, is over.
const GLANCE: Duration = Duration::from_millis(2);
/// Time limit for all connections in progress at the window's end together. Each of their waits has its own deadline,
/// so the flow that waits for a dead peer reports it.
const LAST_CONNECTIONS: Duration = Duration::from_secs(60);

/// The initiator's part: opens the window when the flows are warm, and informs the responder when every flow
/// has finished its window.
pub(crate) fn lead(control: &Flow, shared: &Shared) -> Result<()> {
    prepare(control)?;
    while !shared.is_warm() {
        pause(shared)?;
    }
    exchange(control, shared, Mark::Open)?;
    let now = now_ns();
    shared.open_at(now);
    let ends = after(now, shared.session.spec.duration.0);
    shared.session.sleep_until(ends)?;
    await_last(control, shared, after(ends, LAST_CONNECTIONS))?;
    exchange(control, shared, Mark::Close)
}

fn await_last(control: &Flow, shared: &Shared, latest: u64) -> Result<()> {
    while shared.any_unfinished() {
        if now_ns() >= latest {
            return Err(control.failed("finish the last connections", Errno::AGAIN, LAST_CONNECTIONS));
        }
        pause(shared)?;
    }
    Ok(())
}

/// The responder's part.
pub(crate) fn follow(control: &Flow, shared: &Shared) -> Result<()> {
    prepare(control)?;
    let patience = shared.session.patience;
    let spec = &shared.session.spec;
    await_byte(control, shared, Mark::Open, patience.first + spec.warmup.most().0 + patience.silence)?;
    shared.open_at(now_ns());
    control.say(Mark::Open as u8)?;
    await_byte(control, shared, Mark::Close, spec.duration.0 + LAST_CONNECTIONS + patience.silence)?;
    shared.close_at(now_ns());
    control.say(Mark::Close as u8)
}

fn prepare(control: &Flow) -> Result<()> {
    control.probe_peer()?;
    control.option("SO_RCVTIMEO", set_timeout(&control.socket, TICK))
}

fn pause(shared: &Shared) -> Result<()> {
    thread::sleep(GLANCE);
    shared.session.check_stopped()
}

fn exchange(control: &Flow, shared: &Shared, mark: Mark) -> Result<()> {
    control.say(mark as u8)?;
    await_byte(control, shared, mark, shared.session.patience.silence)
}

fn await_byte(control: &Flow, shared: &Shared, mark: Mark, patience: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        let mut byte = [0];
        match recv(&*control.socket, &mut byte, RecvFlags::empty()) {
            Ok((0, _)) => return Err(control.ended("receive")),
            Ok(_) if byte == [mark as u8] => return Ok(()),
            Ok(_) => return Err(control.strange("a wrong mark of the window")),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(control.failed("receive", errno, TICK)),
        }
        shared.session.check_stopped()?;
    }
    Err(control.failed("receive", Errno::AGAIN, patience))
}
