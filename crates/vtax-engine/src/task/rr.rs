//! Request and response, one in flight: the round-trip time.
//!
//! The end of one transaction is the start of the next, so that a transaction costs one reading
//! of the clock, and the time of a flow divided by its transactions is the mean round-trip time
//! exactly. With a gap before each request, or with stages, whose stamps are read between two
//! transactions, that isn't so, and the histogram alone has the times.
//!
//! The transaction that is in flight when the time is over counts as a whole: the flow's time ends with it,
//! and so does a lost one's wait. An outage that lasts to the end of a sample is seen so.
//!
//! With losses the time of a flow includes the waits for what was lost: time by transactions is then what a
//! user of the path waits per answer, and is above the mean of the histogram, which knows the answered ones
//! only.

use std::time::Duration;

use vtax_sys::clock::now_ns;

use super::{
    MessageSizes,
    requests::{Requests, TransactionOutcome},
};
use crate::{
    account::{Sender, after},
    drive::Io,
    error::Result,
    task::FlowOnPoller,
    wire::Mark,
};

/// Warms up, measures, and tells the responder both edges of the window.
pub(crate) async fn initiate<I: Io>(line: FlowOnPoller<'_, I>, sizes: MessageSizes) -> Result<()> {
    let desk = line.desk;
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
    if !desk.shared.is_sliced() {
        measure(&mut wire, gap).await?;
        return wire.finish().await;
    }
    for start in desk.turns() {
        await_turn(&mut wire, start).await?;
        measure(&mut wire, gap).await?;
        while wire.exchange(Mark::Pause).await? == TransactionOutcome::Lost {}
        desk.slot_ended(start, now_ns());
    }
    wire.line.sleep(desk.shared.schedule.ends).await?;
    wire.finish().await
}

/// Waits until a slice begins, and gets the path going again.
async fn await_turn<I: Io>(wire: &mut Requests<'_, I>, start: u64) -> Result<()> {
    wire.line.sleep(start).await?;
    let led = after(now_ns(), wire.line.flow.session.spec.lead());
    loop {
        wire.exchange(Mark::None).await?;
        if now_ns() >= led {
            return Ok(());
        }
    }
}

/// From one mark to the other.
async fn measure<I: Io>(wire: &mut Requests<'_, I>, gap: Option<Duration>) -> Result<()> {
    let desk = wire.line.desk;
    while wire.exchange(Mark::Open).await? == TransactionOutcome::Lost {}
    wire.line.io.look_back(false);
    let mut previous = desk.open(Sender::Here)?;
    let (_, closes) = desk.window();
    loop {
        if let Some(gap) = gap {
            wire.line.sleep(after(previous, gap)).await?;
            previous = now_ns();
        }
        let outcome = wire.exchange(Mark::None).await?;
        let now = now_ns();
        match outcome {
            TransactionOutcome::Answered => desk.transaction(now - previous, now)?,
            TransactionOutcome::Lost => {
                desk.report().lost += 1;
                desk.ends(now);
            }
        }
        previous = now;
        if wire.line.io.look_back(outcome == TransactionOutcome::Answered) {
            previous = now_ns();
        }
        if now >= closes {
            return desk.close();
        }
    }
}
