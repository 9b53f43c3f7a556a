//! Request and response, one in flight: the round-trip time.
//!
//! The end of one transaction is the start of the next, so that a transaction costs one reading
//! of the clock, and the time of a flow divided by its transactions is the mean round-trip time
//! exactly. With a gap before each request, or with stages, whose stamps are read between two
//! transactions, that isn't so, and the histogram alone has the times.
//!
//! With losses the time of a flow includes the waits for what was lost, unless nothing was answered
//! after it: time by transactions is then what a user of the path waits per answer, and is above the
//! mean of the histogram, which knows the answered ones only.

use vtax_sys::clock::now_ns;

use super::{
    Sizes,
    requests::{Outcome, Requests},
};
use crate::{
    account::{Desk, Way, after},
    drive::Io,
    error::EngineError,
    task::Line,
    wire::Mark,
};

/// Warms up, measures, and tells the responder both edges of the window.
pub(crate) async fn initiate<I: Io>(
    line: Line<'_, I>,
    desk: &Desk<'_>,
    slot: usize,
    sizes: Sizes,
) -> Result<(), EngineError> {
    let gap = line.flow.session.spec.options.gap.map(|gap| gap.0);
    let mut wire = Requests::new(line, sizes);
    let mut now = now_ns();
    desk.begun(now);
    while desk.warming(now, 1) {
        if let Some(gap) = gap {
            wire.line.sleep(after(now, gap)).await?;
        }
        wire.exchange(Mark::None).await?;
        wire.line.io.look_back(false);
        now = now_ns();
    }
    while wire.exchange(Mark::Open).await? == Outcome::Lost {}
    wire.line.io.look_back(false);
    let mut previous = desk.open(slot, Way::Here)?;
    let (_, closes) = desk.window();
    loop {
        if let Some(gap) = gap {
            wire.line.sleep(after(previous, gap)).await?;
            previous = now_ns();
        }
        let outcome = wire.exchange(Mark::None).await?;
        let now = now_ns();
        if now >= closes {
            break;
        }
        match outcome {
            Outcome::Answered => desk.transaction(slot, now - previous, now)?,
            Outcome::Lost => desk.lost(1),
        }
        previous = now;
        if wire.line.io.look_back(outcome == Outcome::Answered) {
            previous = now_ns();
        }
    }
    desk.close()?;
    wire.line.io.look_back(false);
    wire.finish().await
}
