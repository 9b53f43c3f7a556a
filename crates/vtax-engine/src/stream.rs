//! Bytes one way, as fast as they go: the goodput at the receiver.
//!
//! Each end has a window of its own that begins `warmup` after its first message and lasts
//! `duration`. Both edges are moments at which a call has just ended, and the bytes are those of
//! the calls that ended after the first edge and up to the second: `bytes / seconds` has no part
//! of a call that was counted and not timed, or the other way round. A sender whose calls take
//! long opens its window late, and may find the receiver done before it is over; its window then
//! ends with the last message that was taken.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use vtax_model::measurement::EndReport;
use vtax_sys::clock::now_ns;

use crate::{
    error::EngineError,
    flow::{Meter, Reading, after, seconds, until},
    transport::Flow,
};

/// How long a sender goes on after its own window, for the receiver's began a little later and
/// datagrams may have been lost at its start. The receiver ends it sooner by closing.
const GRACE: Duration = Duration::from_secs(2);

/// What became of a message.
pub(crate) enum Sent {
    /// So many bytes were taken by the kernel.
    Bytes(usize),
    /// The receiver has closed.
    Closed,
}

/// The sender's side of a transport.
pub(crate) trait Source {
    /// Hands one message to the kernel.
    fn send(&mut self) -> Result<Sent, EngineError>;

    /// Whether the receiver is done, on a transport where [`send`](Self::send) may not learn it.
    fn is_told_to_stop(&mut self) -> bool;
}

/// Datagrams that did not come as they were sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Losses {
    pub(crate) lost: u64,
    pub(crate) reordered: u64,
}

/// The receiver's side of a transport.
pub(crate) trait Sink {
    /// Waits for bytes and returns how many came.
    fn receive(&mut self) -> Result<usize, EngineError>;

    /// Losses count from here.
    fn open_window(&mut self);

    /// Losses since the window was opened.
    fn losses(&self) -> Losses;

    /// Tells the sender to stop, where closing doesn't.
    fn finish(&mut self);
}

/// Sends through the window of this end, then on until the receiver has enough.
pub(crate) fn send(
    mut source: impl Source,
    flow: &Flow,
    meter: &Meter<'_>,
    warmup: Duration,
    duration: Duration,
) -> Result<EndReport, EngineError> {
    let begun = now_ns();
    let mut sending = Sending { source: &mut source, flow, bytes: 0, due: after(begun, warmup + duration) };
    let start = until(begun, warmup, || sending.step())?;
    let opened = meter.read()?;
    sending.bytes = 0;
    let end = until(start, duration, || sending.step())?;
    let (bytes, closed) = (sending.bytes, meter.read()?);
    if bytes == 0 {
        return Err(EngineError::NothingMeasured { what: "no message was taken by the kernel", duration });
    }
    sending.outlast_receiver()?;
    Ok(EndReport { seconds: seconds(start, end), bytes, ..meter.between(&opened, &closed)? })
}

struct Sending<'a, S> {
    source: &'a mut S,
    flow: &'a Flow,
    bytes: u64,
    /// The receiver can't have finished its window before: it began after the sender did.
    due: u64,
}

impl<S: Source> Sending<'_, S> {
    #[inline]
    fn step(&mut self) -> Result<ControlFlow<()>, EngineError> {
        match self.source.send()? {
            Sent::Bytes(len) => {
                self.bytes += len as u64;
                Ok(ControlFlow::Continue(()))
            }
            Sent::Closed => self.receiver_closed(),
        }
    }

    /// A receiver that has all it wanted has closed; one that closes before was ended.
    #[cold]
    fn receiver_closed(&mut self) -> Result<ControlFlow<()>, EngineError> {
        if now_ns() < self.due {
            return Err(self.flow.ended("send"));
        }
        Ok(ControlFlow::Break(()))
    }

    fn outlast_receiver(&mut self) -> Result<(), EngineError> {
        until(now_ns(), GRACE, || match self.source.is_told_to_stop() {
            true => Ok(ControlFlow::Break(())),
            false => self.step(),
        })
        .map(drop)
    }
}

/// Flows that have not finished their window yet, at one receiving end. Those that have go on
/// reading, so that the others are measured under the same load to their end.
pub(crate) struct Unfinished(AtomicUsize);

impl Unfinished {
    pub(crate) fn new(flows: usize) -> Unfinished {
        Unfinished(AtomicUsize::new(flows))
    }

    fn one_less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Receives through the window of this end, and on until all flows have finished theirs.
pub(crate) fn receive(
    mut sink: impl Sink,
    meter: &Meter<'_>,
    unfinished: &Unfinished,
    warmup: Duration,
    duration: Duration,
) -> Result<EndReport, EngineError> {
    let window = measure(&mut sink, meter, warmup, duration)?;
    unfinished.one_less();
    // An error here is the end of a sender whose grace is over: this flow's window is complete.
    while unfinished.any() && sink.receive().is_ok() {}
    sink.finish();
    Ok(EndReport {
        seconds: seconds(window.start, window.end),
        bytes: window.bytes,
        lost: window.losses.lost,
        reordered: window.losses.reordered,
        ..meter.between(&window.opened, &window.closed)?
    })
}

struct Window {
    start: u64,
    end: u64,
    bytes: u64,
    losses: Losses,
    opened: Reading,
    closed: Reading,
}

fn measure(
    sink: &mut impl Sink,
    meter: &Meter<'_>,
    warmup: Duration,
    duration: Duration,
) -> Result<Window, EngineError> {
    sink.receive()?;
    let start = until(now_ns(), warmup, || sink.receive().map(|_| ControlFlow::Continue(())))?;
    sink.open_window();
    let opened = meter.read()?;
    let mut bytes = 0;
    let end = until(start, duration, || {
        bytes += sink.receive()? as u64;
        Ok::<_, EngineError>(ControlFlow::Continue(()))
    })?;
    let losses = sink.losses();
    let closed = meter.read()?;
    if bytes == 0 {
        return Err(EngineError::NothingMeasured { what: "no message came", duration });
    }
    Ok(Window { start, end, bytes, losses, opened, closed })
}
