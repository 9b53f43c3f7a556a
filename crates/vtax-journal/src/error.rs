//! Errors of journals and their steps.

use std::{fmt, io, path::PathBuf};

use vtax_sys::record::RecordError;

use crate::{
    batch::BatchId,
    holder::LockHolder,
    line::{FORMAT, LONGEST_INTENDED},
    owner::Owner,
    snapshot::JournalState,
};

/// Error of creating, reading or writing a journal.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {operation} {path}: {source}")]
    #[diagnostic(code("file"))]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("invalid journal name `{id}`: use letters, digits, `-` and `_`")]
    #[diagnostic(code("bad-name"))]
    BadId { id: String },
    #[error("the name `{id}` is taken: {state}{}", whose(.owner))]
    #[diagnostic(code("name-taken"))]
    Taken { id: String, state: JournalState, owner: Option<Box<Owner>> },
    #[error("`{id}` not found in {directory}")]
    #[diagnostic(code("nothing-of-that-name"))]
    Missing { id: String, directory: PathBuf },
    #[error("`{id}` is in use by {}; wait until it exits, or stop it", whom(.by))]
    #[diagnostic(code("name-in-use"))]
    Busy { id: String, by: Option<LockHolder> },
    #[error("{path}:{line}: {why}")]
    #[diagnostic(code("damaged-journal"))]
    Corrupt { path: PathBuf, line: usize, why: String },
    #[error(
        "{path} has no room for this change: its limit before a change is {} MiB; undo the changes recorded in it first",
        LONGEST_INTENDED >> 20
    )]
    #[diagnostic(code("journal-full"))]
    Full { path: PathBuf },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    #[error("{path} has format {found}, this vtax uses format {FORMAT}; use the vtax that wrote it")]
    #[diagnostic(code("journal-version"))]
    Format { path: PathBuf, found: u64 },
    #[error(
        "{path}:{line}: another version of vtax wrote this line, and this version cannot read it ({why}); use the vtax that wrote it"
    )]
    #[diagnostic(code("journal-version"))]
    OtherVersion { path: PathBuf, line: usize, why: String },
}

impl JournalError {
    /// Returns `true` if the journal itself is damaged: short, empty, altered, or not a regular file. The contents of a
    /// damaged journal are never acted upon, least of all as if it were empty.
    pub fn is_damage(&self) -> bool {
        match self {
            JournalError::Corrupt { .. } => true,
            JournalError::Record(error) => error.is_damage(),
            _ => false,
        }
    }
}

/// Returns the owner in parentheses, e.g. `(created by pid 12, …)` with its command; empty without an owner.
fn whose(owner: &Option<Box<Owner>>) -> String {
    owner.as_ref().map_or(String::new(), |owner| format!(" (created by pid {}, `{}`)", owner.pid, owner.command))
}

fn whom(by: &Option<LockHolder>) -> String {
    by.as_ref().map_or("another process".to_owned(), LockHolder::to_string)
}

/// Part of a step that failed.
#[derive(Debug, thiserror::Error)]
pub enum StepCause<E> {
    #[error("{0}")]
    Apply(E),
    #[error("done, but not found afterwards: {0}")]
    ReadBack(E),
    #[error("{0}")]
    Journal(JournalError),
}

/// Failure of a step. The earlier steps of its batch have been undone as far as possible.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}{}", listed(.left))]
pub struct ExecuteError<E: fmt::Display> {
    pub step: String,
    pub index: usize,
    pub cause: StepCause<E>,
    pub left: Option<Box<UndoErrors<E>>>,
}

/// Step that could not be undone.
#[derive(Debug, thiserror::Error)]
#[error("could not undo \"{step}\": {error}")]
pub struct UndoError<E> {
    pub step: String,
    pub error: E,
}

/// All reasons why a journal was not undone completely. The journal still exists, so the undo can be repeated once they
/// no longer apply.
#[derive(Debug, thiserror::Error)]
#[error("`{id}` is not completely undone{}{}", listed(.steps), listed(.file))]
pub struct UndoErrors<E: fmt::Display> {
    pub id: String,
    pub steps: Vec<UndoError<E>>,
    pub file: Option<JournalError>,
}

/// Reason why a batch was not undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoBatchError<E: fmt::Display> {
    #[error("`{id}` has no batch {batch}")]
    Missing { id: String, batch: BatchId },
    #[error("batch {later} of `{id}` changed the same as batch {batch} ({step}): undo batch {later} first")]
    Later { id: String, batch: BatchId, step: String, later: BatchId },
    #[error(transparent)]
    Steps(UndoErrors<E>),
}

impl<E: miette::Diagnostic> miette::Diagnostic for ExecuteError<E> {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        match &self.cause {
            StepCause::Apply(error) => error.code(),
            StepCause::ReadBack(_) => Some(Box::new("change-not-kept")),
            StepCause::Journal(error) => error.code(),
        }
    }
}

impl<E: std::error::Error> miette::Diagnostic for UndoErrors<E> {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        Some(Box::new("not-undone"))
    }
}

impl<E: std::error::Error> miette::Diagnostic for UndoBatchError<E> {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        match self {
            UndoBatchError::Missing { .. } => Some(Box::new("no-such-batch")),
            UndoBatchError::Later { .. } => Some(Box::new("changed-again-later")),
            UndoBatchError::Steps(errors) => errors.code(),
        }
    }
}

fn listed<T: fmt::Display>(errors: impl IntoIterator<Item = T>) -> String {
    errors.into_iter().map(|error| format!("; {error}")).collect()
}
