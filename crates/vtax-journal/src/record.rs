//! What a journal says of one step.

use crate::{
    batch::BatchId,
    step::{Step, Undone},
};

/// A step, and how far it got.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Record<S: Step> {
    pub step: S,
    pub batch: BatchId,
    pub progress: StepProgress<S::Receipt>,
}

/// How far a step got.
#[derive(Debug)]
pub enum StepProgress<R> {
    /// The step was to be done. It may have begun.
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
