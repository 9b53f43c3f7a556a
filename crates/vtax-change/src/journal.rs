//! The journal of tuning: changes that stay until somebody takes them back, in a directory that survives a reboot.
//!
//! There is one for each directory. Who works on it has its lock, so two processes never tune at once
//! ([`JournalError::Busy`]).
//!
//! What is left over is undone before further changes are made ([`ChangeJournal::start`]):
//!
//! - If vtax was killed while it made changes or [tried them out](ChangeJournal::try_out), there is a batch that was never
//!   kept.
//! - If vtax was killed while it took a batch back, this batch is half undone.
//! - If the machine was restarted, the kernel has forgotten all changes. The journal ends. A value that isn't the one from
//!   before was set by somebody else since, and is reported.

use std::path::Path;

use serde::{Deserialize, Serialize};
use vtax_journal::{
    Batch, BatchId, BatchState, ExecuteError, Header, Journal, JournalError, Snapshot, UndoBatchError, UndoErrors,
    UndoReport,
};
use vtax_sys::directory;

use crate::{change::Change, error::ChangeError, host::HostAccess};

const ID: &str = "tuning";
const KIND: &str = "tuning";
const BOOT_ID: &str = "sys/kernel/random/boot_id";

/// What a journal's first line says beside its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    /// Of the boot in which the changes were made.
    boot_id: String,
}

/// Why the journal of changes could not be used.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ChangeJournalError {
    #[error("{0}; the file has each value from before: bring back by hand those that you want, then remove the file")]
    #[diagnostic(code("damaged-tuning"))]
    Damaged(JournalError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Journal(JournalError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] ChangeError),
    #[error("the changes were not made: {0}")]
    #[diagnostic(forward(0))]
    Failed(Box<ExecuteError<ChangeError>>),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Batch(#[from] UndoBatchError<ChangeError>),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Left(#[from] UndoErrors<ChangeError>),
}

/// A journal that this process has taken over, to look at its changes or to take them back.
#[derive(Debug)]
pub struct PastChanges {
    journal: Journal<Change>,
    host: HostAccess,
}

/// A journal that further changes can be made with. Nothing in it is half done, and all of it is of this boot.
#[derive(Debug)]
pub struct ChangeJournal {
    journal: Journal<Change>,
    host: HostAccess,
}

/// What was found and undone before further changes could be made.
#[derive(Debug, Default)]
pub struct RecoveredChanges {
    /// The changes of an earlier boot.
    pub before_reboot: Option<UndoReport>,
    /// Batches that a killed process has left.
    pub interrupted: Vec<(BatchId, UndoReport)>,
}

/// The changes as they are written down, whether a process works on them or not.
#[derive(Debug)]
pub struct ChangesSnapshot {
    /// The journal.
    pub snapshot: Snapshot<Change>,
    /// The machine was restarted since, so none of the changes is there any more.
    pub rebooted: bool,
}

impl ChangesSnapshot {
    /// Reads the journal without taking it over. None if nothing is changed.
    pub fn read(directory: &Path, host: &mut HostAccess) -> Result<Option<ChangesSnapshot>, ChangeJournalError> {
        directory::make_private(directory).map_err(ChangeError::from)?;
        let snapshot = match Snapshot::read(directory, ID) {
            Err(JournalError::Missing { .. }) => return Ok(None),
            snapshot => snapshot?,
        };
        let rebooted = !is_of_this_boot(snapshot.header.as_ref(), host)?;
        Ok(Some(ChangesSnapshot { snapshot, rebooted }))
    }
}

impl PastChanges {
    /// None if nothing is changed. It is an error if another process has the journal.
    pub fn open(directory: &Path, mut host: HostAccess) -> Result<Option<PastChanges>, ChangeJournalError> {
        let journal = take_over(directory, &mut host)?;
        Ok(journal.map(|journal| PastChanges { journal, host }))
    }

    /// The batches, with their changes.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Batch<'_, Change>> {
        self.journal.batches()
    }

    /// Takes one batch back.
    pub fn revert(&mut self, batch: BatchId) -> Result<UndoReport, ChangeJournalError> {
        Ok(self.journal.undo_batch(batch, &mut self.host)?)
    }

    /// Takes all changes back, and ends the journal.
    pub fn revert_all(mut self) -> Result<UndoReport, ChangeJournalError> {
        Ok(self.journal.undo(&mut self.host)?)
    }

    /// Lets go of the journal, and ends it if nothing of it is left.
    pub fn close(mut self) -> Result<(), ChangeJournalError> {
        end_if_undone(self.journal, &mut self.host)
    }
}

impl ChangeJournal {
    /// Opens the journal of this directory, or starts it. First undoes what a killed process or a reboot has left.
    pub fn start(
        directory: &Path,
        mut host: HostAccess,
    ) -> Result<(ChangeJournal, RecoveredChanges), ChangeJournalError> {
        let mut recovered = RecoveredChanges::default();
        let journal = match take_over(directory, &mut host)? {
            Some(journal) if host.is_rebooted() => {
                recovered.before_reboot = Some(journal.undo(&mut host)?);
                create(directory, &mut host)?
            }
            Some(mut journal) => {
                recovered.interrupted = undo_abandoned(&mut journal, &mut host)?;
                journal
            }
            None => create(directory, &mut host)?,
        };
        Ok((ChangeJournal { journal, host }, recovered))
    }

    /// The machine, to plan changes with.
    pub fn host(&mut self) -> &mut HostAccess {
        &mut self.host
    }

    /// Makes changes that stay until somebody takes them back. If one fails, none of them is left.
    pub fn apply(&mut self, changes: Vec<Change>) -> Result<BatchId, ChangeJournalError> {
        let batch = self.try_out(changes)?;
        self.keep(batch)?;
        Ok(batch)
    }

    /// Lets changes stay that were tried out. If that can't be written down, they are reverted.
    pub fn keep(&mut self, batch: BatchId) -> Result<(), ChangeJournalError> {
        if let Err(error) = self.journal.keep() {
            self.journal.undo_batch(batch, &mut self.host)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Makes changes that are undone by the next [`ChangeJournal::start`], if this process is killed before it reverts
    /// them or makes others that stay.
    pub fn try_out(&mut self, changes: Vec<Change>) -> Result<BatchId, ChangeJournalError> {
        self.journal.execute(changes, &mut self.host).map_err(|error| ChangeJournalError::Failed(Box::new(error)))
    }

    /// The batches, with their changes.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Batch<'_, Change>> {
        self.journal.batches()
    }

    /// Takes one batch back.
    pub fn revert(&mut self, batch: BatchId) -> Result<UndoReport, ChangeJournalError> {
        Ok(self.journal.undo_batch(batch, &mut self.host)?)
    }

    /// Lets go of the journal, and ends it if nothing of it is left.
    pub fn close(mut self) -> Result<(), ChangeJournalError> {
        end_if_undone(self.journal, &mut self.host)
    }
}

fn create(directory: &Path, host: &mut HostAccess) -> Result<Journal<Change>, ChangeJournalError> {
    let about = About { boot_id: boot_id(host)? };
    host.set_rebooted(false);
    Ok(Journal::create(directory, ID, KIND, &about)?)
}

/// Takes the journal over, if there is one, and tells the host whether the journal's changes are of this boot.
fn take_over(directory: &Path, host: &mut HostAccess) -> Result<Option<Journal<Change>>, ChangeJournalError> {
    directory::make_private(directory).map_err(ChangeError::from)?;
    let journal: Journal<Change> = match Journal::open(directory, ID) {
        Err(JournalError::Missing { .. }) => return Ok(None),
        journal => journal?,
    };
    let rebooted = !is_of_this_boot(journal.header(), host)?;
    host.set_rebooted(rebooted);
    Ok(Some(journal))
}

/// The last batch comes first: an earlier one may have changed the same value.
fn undo_abandoned(
    journal: &mut Journal<Change>,
    host: &mut HostAccess,
) -> Result<Vec<(BatchId, UndoReport)>, ChangeJournalError> {
    let abandoned: Vec<BatchId> = journal.batches().rev().filter(Batch::is_abandoned).map(|batch| batch.id).collect();
    abandoned.into_iter().map(|batch| Ok((batch, journal.undo_batch(batch, host)?))).collect()
}

fn end_if_undone(journal: Journal<Change>, host: &mut HostAccess) -> Result<(), ChangeJournalError> {
    if journal.batches().all(|batch| batch.state() == BatchState::Undone) {
        journal.undo(host)?;
    }
    Ok(())
}

/// A journal without its first line has no changes.
fn is_of_this_boot(header: Option<&Header>, host: &mut HostAccess) -> Result<bool, ChangeJournalError> {
    let Some(header) = header else { return Ok(true) };
    let now = boot_id(host)?;
    Ok(About::deserialize(&header.about).is_ok_and(|about| about.boot_id == now))
}

fn boot_id(host: &mut HostAccess) -> Result<String, ChangeError> {
    let missing = || ChangeError::Missing { what: "the id of this boot".to_owned() };
    host.read_proc(None, BOOT_ID)?.ok_or_else(missing)
}

impl From<JournalError> for ChangeJournalError {
    fn from(error: JournalError) -> ChangeJournalError {
        match error {
            JournalError::Corrupt { .. } => ChangeJournalError::Damaged(error),
            error => ChangeJournalError::Journal(error),
        }
    }
}
