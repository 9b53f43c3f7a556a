//! Batches: steps of a journal that one call executed, and that can be undone together.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    record::{Record, StepProgress},
    step::Step,
};

/// Text that is not a batch number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid batch number `{0}`; use a whole number from 1")]
pub struct BatchIdError(String);

/// Number of a batch within its journal, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(u32);

/// Steps of a journal that belong together.
#[derive(Debug)]
pub struct Batch<'a, S: Step> {
    pub id: BatchId,
    /// Steps of the batch, at least one.
    pub records: &'a [Record<S>],
}

/// Progress of a batch, from its intent to its undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchState {
    /// All steps are done.
    Done,
    /// Half done or half undone: a process was interrupted, or some steps could not be undone. The batch must be
    /// undone.
    Partial,
    /// All steps are undone.
    Undone,
}

impl BatchId {
    pub(crate) const FIRST: BatchId = BatchId(1);

    pub(crate) fn next(self) -> BatchId {
        BatchId(self.0.saturating_add(1))
    }

    pub(crate) fn first() -> BatchId {
        BatchId::FIRST
    }

    pub(crate) fn is_first(&self) -> bool {
        *self == BatchId::FIRST
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BatchId {
    type Err = BatchIdError;

    fn from_str(text: &str) -> Result<Self, BatchIdError> {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.map(BatchId).ok_or_else(|| BatchIdError(text.to_owned()))
    }
}

impl<S: Step> Batch<'_, S> {
    /// Returns `true` if the batch may outlive the process that executed it: the journal was kept after it.
    pub fn is_kept(&self) -> bool {
        self.records.iter().all(|record| record.kept)
    }

    /// Returns `true` if the batch must be undone once the process that executed it is dead: it is half done or half
    /// undone, or was never kept.
    pub fn is_abandoned(&self) -> bool {
        match self.state() {
            BatchState::Done => !self.is_kept(),
            BatchState::Partial => true,
            BatchState::Undone => false,
        }
    }

    /// Returns the progress according to the lines so far.
    pub fn state(&self) -> BatchState {
        let all = |is: fn(&StepProgress<S::Receipt>) -> bool| self.records.iter().all(|record| is(&record.progress));
        if all(|progress| matches!(progress, StepProgress::Done(_))) {
            BatchState::Done
        } else if all(|progress| matches!(progress, StepProgress::Undone(_))) {
            BatchState::Undone
        } else {
            BatchState::Partial
        }
    }
}

/// Returns the batches of these records, in order of execution.
pub fn batches<S: Step>(records: &[Record<S>]) -> impl DoubleEndedIterator<Item = Batch<'_, S>> {
    let chunks = records.chunk_by(|one, next| one.batch == next.batch);
    chunks.map(|records| Batch { id: records[0].batch, records })
}
