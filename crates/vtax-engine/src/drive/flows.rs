//! The flows of one thread, polled without wakers: the engine knows whose turn it is.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::error::Result;

/// What a flow does, from its beginning to its end.
pub(crate) trait FlowTask: Future<Output = Result<()>> {}

impl<F: Future<Output = Result<()>>> FlowTask for F {}

/// The n-th flow is in slot n.
pub(crate) struct Flows<F> {
    left: Vec<Option<Pin<Box<F>>>>,
    alive: usize,
    /// The first ends all.
    led: bool,
}

impl<F: FlowTask> Flows<F> {
    pub(crate) fn new(flows: impl Iterator<Item = F>) -> Flows<F> {
        let left: Vec<_> = flows.map(|flow| Some(Box::pin(flow))).collect();
        Flows { alive: left.len(), left, led: false }
    }

    /// The flows after the first are over when it is.
    pub(crate) fn led(flows: impl Iterator<Item = F>) -> Flows<F> {
        Flows { led: true, ..Flows::new(flows) }
    }

    pub(crate) fn are_over(&self) -> bool {
        self.alive == 0 || self.led && self.left.first().is_some_and(Option::is_none)
    }

    /// Lets a flow go on, if it isn't over.
    #[inline]
    pub(crate) fn poll(&mut self, slot: usize) -> Result<()> {
        let Some(flow) = &mut self.left[slot] else { return Ok(()) };
        if let Poll::Ready(result) = flow.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.left[slot] = None;
            self.alive -= 1;
            result?;
        }
        Ok(())
    }
}
