//! The flows of one thread, polled without wakers: the engine knows which flow can continue.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::error::Result;

/// Task of a flow, from start to end.
pub(crate) trait FlowTask: Future<Output = Result<()>> {}

impl<F: Future<Output = Result<()>>> FlowTask for F {}

/// The unfinished flows; the n-th flow is in slot n.
pub(crate) struct Flows<F> {
    left: Vec<Option<Pin<Box<F>>>>,
    alive: usize,
    /// True if the end of the first flow ends them all.
    led: bool,
}

impl<F: FlowTask> Flows<F> {
    pub(crate) fn new(flows: impl Iterator<Item = F>) -> Flows<F> {
        let left: Vec<_> = flows.map(|flow| Some(Box::pin(flow))).collect();
        Flows { alive: left.len(), left, led: false }
    }

    /// Flows that all end when the first one does.
    pub(crate) fn led(flows: impl Iterator<Item = F>) -> Flows<F> {
        Flows { led: true, ..Flows::new(flows) }
    }

    pub(crate) fn are_over(&self) -> bool {
        self.alive == 0 || self.led && self.left.first().is_some_and(Option::is_none)
    }

    /// Polls a flow unless it has ended.
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
