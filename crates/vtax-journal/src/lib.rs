//! Durable do and undo.
//!
//! A job that changes the machine (a lab, a tuning) is a list of [`Step`]s. Before the first of them is
//! taken, all are written to a [`Journal`] and synced to disk; after each one a `done` line follows. Whoever
//! finds the journal later, after a crash or a `kill -9`, knows exactly what may be there and whose it is,
//! and can undo it. Nothing is ever searched for by the look of its name.
//!
//! The `done` lines are not synced. What the steps make (namespaces, links, sysctls) lives in the kernel's
//! memory: a power cut takes it together with the unsynced lines, and a killed process loses no line, because
//! a line is in the page cache as soon as `write` returns.
//!
//! An exclusive lock on the file, held as long as its owner lives, tells a job that is
//! running from one that was abandoned. The kernel drops the lock with the process, however
//! that ends, so no heartbeat or age guesses are needed.

#![forbid(unsafe_code)]

mod directory;
mod error;
mod journal;
mod line;
mod owner;
mod snapshot;
mod step;

pub use error::{ExecuteError, JournalError, StepCause, UndoError, UndoErrors};
pub use journal::{Journal, UndoCounts};
pub use line::{FORMAT, Header};
pub use owner::Owner;
pub use snapshot::{JournalState, Record, Scan, Snapshot, StepProgress, scan};
pub use step::{Step, Undone};
