//! What can go wrong with a journal, and with the steps in it.

use std::{fmt, io, path::PathBuf};

use crate::{line::FORMAT, owner::Owner, snapshot::JournalState};

/// Why a journal could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// A verb phrase.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// A text that can't be the name of a file.
    #[error("`{id}` can't name a journal: use letters, digits, `-` and `_`")]
    BadId {
        /// As given.
        id: String,
    },
    /// There is a journal of that name already.
    #[error("the name `{id}` is taken: {state}{}", Whose(.owner))]
    Taken {
        /// The name.
        id: String,
        /// What is known of the other.
        state: JournalState,
        /// Who made it, if its journal says so.
        owner: Option<Box<Owner>>,
    },
    /// There is no such journal.
    #[error("there is no `{id}` in {directory}")]
    Missing {
        /// The name.
        id: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// A living process has it.
    #[error("`{id}` is in use{}; end that process first", Whose(.owner))]
    Busy {
        /// The name.
        id: String,
        /// Who made it, if its journal says so.
        owner: Option<Box<Owner>>,
    },
    /// The file is damaged elsewhere than in its last line.
    #[error("{path}:{line}: {why}; undo by hand what the file lists, then remove it")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Another version of vtax wrote it.
    #[error("{path} has format {found}, this vtax writes format {FORMAT}; use the vtax that made it")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
}

/// ` (made by pid 12, `vtax run demo`)`.
struct Whose<'a>(&'a Option<Box<Owner>>);

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(owner) => write!(f, " (made by pid {}, `{}`)", owner.pid, owner.command),
            None => Ok(()),
        }
    }
}

/// Which of its parts made a step fail.
#[derive(Debug, thiserror::Error)]
pub enum StepCause<E> {
    /// The change could not be made.
    #[error("{0}")]
    Apply(E),
    /// The change was made and isn't there.
    #[error("done, but not found afterwards: {0}")]
    ReadBack(E),
    /// It could not be written down.
    #[error("{0}")]
    Journal(JournalError),
}

/// A step failed; what was done before it has been undone as far as possible.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}{}", Left(.left))]
pub struct ExecuteError<E: fmt::Display> {
    /// The step in words.
    pub step: String,
    /// Its place in the job, from 0.
    pub index: usize,
    /// Why it failed.
    pub cause: StepCause<E>,
    /// Every step that could not be taken back, if there is one. The journal is still there
    /// then, and the next recovery tries again.
    pub left: Option<Box<UndoErrors<E>>>,
}

/// A step that could not be taken back.
#[derive(Debug, thiserror::Error)]
#[error("could not undo \"{step}\": {error}")]
pub struct UndoError<E> {
    /// The step in words.
    pub step: String,
    /// Why not.
    pub error: E,
}

/// Every reason why a journal is not undone. The journal is still there; undo it again when
/// the reasons are gone.
#[derive(Debug, thiserror::Error)]
#[error("`{id}` is not undone in full{}{}", Also(.steps), Removal(.file))]
pub struct UndoErrors<E: fmt::Display> {
    /// The journal's name.
    pub id: String,
    /// The steps that are left.
    pub steps: Vec<UndoError<E>>,
    /// All steps are undone but the file could not be removed.
    pub file: Option<JournalError>,
}

struct Also<'a, E>(&'a [UndoError<E>]);

impl<E: fmt::Display> fmt::Display for Also<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|error| write!(f, "; {error}"))
    }
}

struct Left<'a, E: fmt::Display>(&'a Option<Box<UndoErrors<E>>>);

impl<E: fmt::Display> fmt::Display for Left<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|errors| write!(f, "; {errors}"))
    }
}

struct Removal<'a>(&'a Option<JournalError>);

impl fmt::Display for Removal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|error| write!(f, "; {error}"))
    }
}
