//! Transactions of a test whose flows have no marks of their own: the initiator.
//!
//! The window is opened for all flows at once, and the other end counts until all of them have ended
//! theirs: see [`conduct`](crate::conduct).

use vtax_sys::clock::now_ns;

use crate::{
    account::{FlowRecorder, Sender},
    error::Result,
};

/// A flow's transactions, one after the other.
#[allow(async_fn_in_trait, reason = "nothing here is sent to another thread")]
pub(crate) trait Transactions {
    /// What a transaction leaves behind. It is dropped once the transaction has been counted.
    type Done;

    /// One transaction; none if it was lost.
    async fn next(&mut self) -> Result<Option<Self::Done>>;
}

/// One transaction after the other, until the thread's window is over. The one that is under way
/// then is finished and counts like any other, with all of its time, and the flow's time ends with
/// it: an outage that lasts beyond the window is in the figures.
pub(crate) async fn run<T: Transactions>(desk: FlowRecorder<'_>, flow: &mut T) -> Result<()> {
    let mut begun = warm_up(desk, flow).await?;
    let (_, closes) = desk.window();
    while begun < closes {
        let done = flow.next().await?;
        count(desk, begun, done.is_some())?;
        drop(done);
        begun = now_ns();
        desk.ends(begun);
        desk.shared.session.check_stopped()?;
    }
    desk.close()?;
    desk.shared.one_has_finished();
    Ok(())
}

/// Goes on until the window is open, and returns when the flow's first transaction begins in it. One
/// that was under way all through the window of the thread's other flows is counted nevertheless.
async fn warm_up<T: Transactions>(desk: FlowRecorder<'_>, flow: &mut T) -> Result<u64> {
    let mut begun = now_ns();
    desk.begun(begun);
    while begun < desk.shared.window().0 {
        let done = flow.next().await?.is_some();
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
