//! Record of one step in a journal.

use crate::{
    batch::BatchId,
    step::{Step, Undone},
};

/// Step and its state.
#[derive(Debug)]
pub struct Record<S: Step> {
    pub step: S,
    pub batch: BatchId,
    /// Set if it may outlive the process that executed it.
    pub kept: bool,
    pub progress: StepProgress<S::Receipt>,
    /// Set if it was undone with its batch, before the undo of the whole journal began.
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

/// State of a step.
#[derive(Debug)]
pub enum StepProgress<R> {
    /// The step is about to begin, or may have begun.
    Intended,
    /// The step is done, with this receipt.
    Done(R),
    /// The step is undone.
    Undone(Undone),
}

impl<R> StepProgress<R> {
    /// Returns the receipt of the step if it is done.
    pub fn receipt(&self) -> Option<&R> {
        match self {
            StepProgress::Done(receipt) => Some(receipt),
            StepProgress::Intended | StepProgress::Undone(_) => None,
        }
    }
}
