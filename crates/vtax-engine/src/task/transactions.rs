//! The initiator's transactions in tests whose flows carry no marks.
//!
//! The window opens for all flows at the same time, and the other end counts until all of them have finished their
//! windows: see [`conduct`](crate::conduct).

use vtax_sys::clock::now_ns;

use crate::{
    account::{FlowRecorder, Sender},
    error::Result,
};

/// A flow's transactions, one after another.
#[allow(async_fn_in_trait, reason = "nothing here is sent to another thread")]
pub(crate) trait Transactions {
    /// Runs one transaction to its very end; returns false if it was lost.
    async fn next(&mut self) -> Result<bool>;
}

/// Runs one transaction after another until the thread's window is over. The one in progress then is completed and
/// counts like any other, with its full time. The flow's time ends with it. So the figures contain an outage that lasts
/// beyond the window.
pub(crate) async fn run<T: Transactions>(desk: FlowRecorder<'_>, flow: &mut T) -> Result<()> {
    let mut begun = warm_up(desk, flow).await?;
    let (_, closes) = desk.window();
    while begun < closes {
        let done = flow.next().await?;
        count(desk, begun, done)?;
        begun = now_ns();
        desk.ends(begun);
        desk.shared.session.check_stopped()?;
    }
    desk.close()?;
    desk.shared.one_has_finished();
    Ok(())
}

/// Runs transactions until the window is open, and returns the start of the flow's first transaction in it. A
/// transaction that was in progress during the whole window of the thread's other flows counts as well.
async fn warm_up<T: Transactions>(desk: FlowRecorder<'_>, flow: &mut T) -> Result<u64> {
    let mut begun = now_ns();
    desk.begun(begun);
    while begun < desk.shared.window().0 {
        let done = flow.next().await?;
        let now = now_ns();
        if now >= desk.window().1 {
            desk.open(Sender::Here)?;
            desk.began_before(begun);
            count(desk, begun, done)?;
            return Ok(now);
        }
        begun = now;
        if !desk.warming(begun, 1) {
            desk.shared.has_warmed_up();
        }
        desk.shared.session.check_stopped()?;
    }
    desk.open(Sender::Here)
}

fn count(desk: FlowRecorder<'_>, begun: u64, done: bool) -> Result<()> {
    let now = now_ns();
    match done {
        true => desk.transaction(now - begun, now),
        false => {
            desk.report().lost += 1;
            Ok(())
        }
    }
}
