//! Request and response, one in flight: measures the round-trip time.
//!
//! The end of one transaction is the start of the next. So a transaction costs one reading of the clock, and the flow's
//! time divided by its transactions is exactly the mean round-trip time. This isn't so with a gap before each request,
//! nor with stages, whose timestamps are read between two transactions. In these cases only the histogram has the
//! round-trip times.
//!
//! The transaction that is in flight at the window's end counts as a whole. The flow's time ends with it, or
//! with the wait for it if it is lost. So the figures show an outage that lasts to the end of a
//! sample.
//!
//! With losses, the flow's time includes the waits for lost responses. The time divided by the transactions
//! is then how long a user of the path waits for an answer. It is above the mean of the histogram, which
//! contains only the answered transactions.

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

/// Warms up, measures, and informs the responder when the window begins and ends.
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

/// Waits until a slice begins, and warms the path up again.
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

/// Measures from the opening mark to the closing one.
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
