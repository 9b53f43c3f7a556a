//! Request and response, one in flight: the round-trip time.
//!
//! The end of one transaction is the start of the next, so that a transaction costs one reading
//! of the clock, and the time of the window divided by its transactions is the mean round-trip
//! time exactly.

use std::{ops::ControlFlow, time::Duration};

use vtax_model::{histogram::Histogram, measurement::EndReport};
use vtax_sys::clock::now_ns;

use crate::{
    error::EngineError,
    flow::{Meter, after, seconds, until},
    transport::Mark,
};

/// Bytes of the two messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) request: usize,
    pub(crate) response: usize,
}

impl Sizes {
    fn transaction(self) -> u64 {
        (self.request + self.response) as u64
    }
}

/// How a transaction ended that has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// No response in time, which only a datagram can do.
    Lost,
}

/// The initiator's side of a transport.
pub(crate) trait Requester {
    /// Sends a request and waits for its response.
    fn exchange(&mut self, mark: Mark) -> Result<Outcome, EngineError>;

    /// Tells the responder that the window is over.
    fn finish(&mut self) -> Result<(), EngineError>;
}

/// The responder's side of a transport.
pub(crate) trait Answerer {
    /// Waits for the next request.
    fn request(&mut self) -> Result<Mark, EngineError>;

    /// Answers it.
    fn respond(&mut self) -> Result<(), EngineError>;
}

/// Warms up, measures, and tells the responder both edges of the window.
pub(crate) fn initiate(
    mut wire: impl Requester,
    meter: &Meter<'_>,
    sizes: Sizes,
    warmup: Duration,
    duration: Duration,
) -> Result<EndReport, EngineError> {
    until(now_ns(), warmup, || wire.exchange(Mark::None).map(|_| ControlFlow::Continue(())))?;
    while wire.exchange(Mark::Open)? == Outcome::Lost {}
    let opened = meter.read()?;
    let window = measure(&mut wire, duration)?;
    let closed = meter.read()?;
    wire.finish()?;
    Ok(EndReport {
        seconds: window.seconds,
        transactions: window.rtt.count(),
        bytes: window.rtt.count() * sizes.transaction(),
        rtt: Some(window.rtt),
        lost: window.lost,
        ..meter.between(&opened, &closed)?
    })
}

struct Window {
    /// From the start of the first transaction to the end of the last that counts. Time spent
    /// waiting for a response that was lost is part of it unless nothing was answered after it:
    /// with losses, `seconds / transactions` is what a user of the path waits per answer, and is
    /// above the mean of `rtt`, which knows the answered ones only.
    seconds: f64,
    rtt: Histogram,
    lost: u64,
}

/// Transactions that end within `duration`.
fn measure(wire: &mut impl Requester, duration: Duration) -> Result<Window, EngineError> {
    let (mut rtt, mut lost) = (Histogram::new(), 0);
    let start = now_ns();
    let end = after(start, duration);
    let (mut previous, mut last) = (start, start);
    loop {
        let outcome = wire.exchange(Mark::None)?;
        let now = now_ns();
        if now >= end {
            break;
        }
        match outcome {
            Outcome::Answered => {
                rtt.record(now - previous);
                last = now;
            }
            Outcome::Lost => lost += 1,
        }
        previous = now;
    }
    if rtt.is_empty() {
        return Err(EngineError::NothingMeasured { what: "no response came", duration });
    }
    Ok(Window { seconds: seconds(start, last), rtt, lost })
}

/// Answers until the initiator closes the window. The window is between the two marks, so it
/// holds the initiator's transactions and the one that was under way when its time was over.
pub(crate) fn respond(mut wire: impl Answerer, meter: &Meter<'_>, sizes: Sizes) -> Result<EndReport, EngineError> {
    while wire.request()? != Mark::Open {
        wire.respond()?;
    }
    let mut opened = meter.read()?;
    let mut start = now_ns();
    let mut answered = 0;
    loop {
        wire.respond()?;
        match wire.request()? {
            Mark::None => answered += 1,
            // Our answer to the first one was lost.
            Mark::Open => {
                opened = meter.read()?;
                start = now_ns();
                answered = 0;
            }
            Mark::Close => break,
        }
    }
    let end = now_ns();
    let closed = meter.read()?;
    wire.respond()?;
    Ok(EndReport {
        seconds: seconds(start, end),
        bytes: answered * sizes.transaction(),
        ..meter.between(&opened, &closed)?
    })
}
