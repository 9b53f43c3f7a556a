//! Durable do and undo.
//!
//! A job that changes the machine (a lab, a tuning) is a list of [`Step`]s. All steps are written to a [`Journal`] and
//! synced to disk before the first one runs, and a `done` line follows after each. After a crash or a `kill -9`, a
//! later process reads in the journal what may exist and who created it, and can undo it. It never searches for objects
//! by a name pattern.
//!
//! Each call of [`Journal::execute`] adds a [`Batch`]. If one of its steps fails, only this batch is undone. A batch
//! can be undone individually, or the journal as a whole. A batch that is half done or half undone because a process
//! was killed is recognized by its lines ([`BatchState::Partial`]).
//!
//! If a step finds neither its change nor the previous state, someone else has changed the object since. The step
//! leaves the object alone and reports the value found ([`Undone::Foreign`]), which the result of the undo lists. That
//! is not an error: nothing of ours is left.
//!
//! The `done` lines are not synced. The results of the steps (namespaces, links, sysctls) are in the kernel's memory,
//! and a power failure removes them together with the unsynced lines. A killed process loses no line, because a line is
//! in the page cache as soon as `write` returns.
//!
//! The owner holds an exclusive lock on the file while it is alive, which distinguishes a running job from an abandoned
//! one. The kernel releases the lock however the process ends, so neither a heartbeat nor a guess by age is required.
//!
//! Each line has a checksum, and the file contains the number of lines it had when it was last written as a whole. A
//! file that is empty or short, or has an altered line, is damaged ([`JournalError::is_damage`]), and so is anything
//! but a regular file. It is never undone by its contents, and never mistaken for an empty journal: its owner finds the
//! job's objects by other means, and sets the file aside ([`DamagedJournal`]).

#![forbid(unsafe_code)]

mod batch;
pub mod checksum;
mod damaged;
mod directory;
mod error;
#[cfg(test)]
mod fuzz;
mod holder;
mod journal;
mod line;
mod log;
mod owner;
mod record;
mod report;
mod snapshot;
mod step;

pub use batch::{Batch, BatchId, BatchIdError, BatchState, batches};
pub use damaged::{DamagedJournal, Opened};
pub use error::{ExecuteError, JournalError, StepCause, UndoBatchError, UndoError, UndoErrors};
pub use holder::LockHolder;
pub use journal::Journal;
pub use line::{FORMAT, Header};
pub use owner::Owner;
pub use record::{Record, StepProgress};
pub use report::{ForeignChange, UndoReport};
pub use snapshot::{JournalState, Scan, Snapshot, read_header, scan};
pub use step::{Step, Undone};
