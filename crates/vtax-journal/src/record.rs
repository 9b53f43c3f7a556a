//! A journal's record of one step.

use crate::{
    batch::BatchId,
    step::{Step, Undone},
};

/// A step and its state.
#[derive(Debug)]
pub struct Record<S: Step> {
    pub step: S,
    pub batch: BatchId,
    /// True if it may outlive the process that did it.
    pub kept: bool,
    pub progress: StepProgress<S::Receipt>,
    /// It was undone with its batch, before the undoing of the whole journal began.
    pub(crate) settled: bool,
}

impl<S: Step> Record<S> {
    pub(crate) fn new(step: S, batch: BatchId) -> Record<S> {
        Record { step, batch, kept: false, progress: StepProgress::Intended, settled: false }
    }

    pub(crate) fn settle(&mut self) {
        self.settled = matches!(self.progress, StepProgress::Undone(_));
    }
}

/// The state of a step.
#[derive(Debug)]
pub enum StepProgress<R> {
    /// The step was about to begin, and may have begun.
    Intended,
    /// The step was done, with this receipt.
    Done(R),
    /// The step was undone.
    Undone(Undone),
}

impl<R> StepProgress<R> {
    /// The step's receipt, if it is done.
    pub fn receipt(&self) -> Option<&R> {
        match self {
            StepProgress::Done(receipt) => Some(receipt),
            StepProgress::Intended | StepProgress::Undone(_) => None,
        }
    }
}
