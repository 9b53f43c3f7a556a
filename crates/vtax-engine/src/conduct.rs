//! The common window of tests whose flows have no marks of their own (crr, cc).
//!
//! One connection beside those of the test is admitted like any flow. On it the thread that runs the
//! end tells the other end when the window opens and when it closes, so that both windows hold the
//! same connections without a common clock.

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
    error::EngineError,
    flow::Flow,
    options::set_timeout,
    wire::Mark,
};

/// How often a wait looks whether the test is over.
const TICK: Duration = Duration::from_millis(100);
/// How often the end of the warm-up is looked for.
const GLANCE: Duration = Duration::from_millis(2);

/// The initiator's part: opens the window when the flows are warm, and closes it in time.
pub(crate) fn lead(control: &Flow, shared: &Shared) -> Result<(), EngineError> {
    prepare(control)?;
    while !shared.is_warm() {
        pause(GLANCE, shared)?;
    }
    exchange(control, shared, Mark::Open)?;
    let now = now_ns();
    let closes = after(now, shared.session.spec.duration.0);
    shared.close_at(closes);
    shared.open_at(now);
    while now_ns() < closes {
        pause(Duration::from_nanos(closes.saturating_sub(now_ns())).min(TICK), shared)?;
    }
    exchange(control, shared, Mark::Close)
}

/// The responder's part.
pub(crate) fn follow(control: &Flow, shared: &Shared) -> Result<(), EngineError> {
    prepare(control)?;
    let patience = shared.session.patience;
    let spec = &shared.session.spec;
    await_byte(control, shared, Mark::Open as u8, patience.first + spec.warmup.most().0 + patience.silence)?;
    shared.open_at(now_ns());
    control.say(Mark::Open as u8)?;
    await_byte(control, shared, Mark::Close as u8, spec.duration.0 + patience.silence)?;
    shared.close_at(now_ns());
    control.say(Mark::Close as u8)
}

fn prepare(control: &Flow) -> Result<(), EngineError> {
    control.probe_peer()?;
    control.option("SO_RCVTIMEO", set_timeout(&control.socket, TICK))
}

fn pause(time: Duration, shared: &Shared) -> Result<(), EngineError> {
    thread::sleep(time);
    if shared.session.is_stopped() { Err(EngineError::Cancelled) } else { Ok(()) }
}

fn exchange(control: &Flow, shared: &Shared, mark: Mark) -> Result<(), EngineError> {
    control.say(mark as u8)?;
    await_byte(control, shared, mark as u8, shared.session.patience.silence)
}

fn await_byte(control: &Flow, shared: &Shared, expected: u8, patience: Duration) -> Result<(), EngineError> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        let mut byte = [0];
        match recv(&*control.socket, &mut byte, RecvFlags::empty()) {
            Ok((0, _)) => return Err(control.ended("receive")),
            Ok(_) if byte == [expected] => return Ok(()),
            Ok(_) => {
                let what = "a wrong mark of the window";
                return Err(EngineError::Protocol { peer: control.peer.clone(), what });
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(control.failed("receive", errno, TICK)),
        }
        if shared.session.is_stopped() {
            return Err(EngineError::Cancelled);
        }
    }
    Err(control.failed("receive", Errno::AGAIN, patience))
}
