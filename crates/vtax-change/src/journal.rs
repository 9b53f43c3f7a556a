//! The tuning journal: changes that stay until they are reverted, in a directory that survives a reboot.
//!
//! There is one journal per directory. The process that uses it holds its lock, so two processes never tune
//! simultaneously ([`JournalError::Busy`]).
//!
//! Leftovers are undone before further changes are made ([`ChangeJournal::start`]):
//!
//! - If vtax was killed while it made changes or [tried them out](ChangeJournal::try_out), there is an unconfirmed
//!   batch.
//! - If vtax was killed while it reverted a batch, this batch is half undone.
//! - If the machine was rebooted, the kernel has lost the earlier changes. A value other than the previous one was set
//!   by another program since, and is reported. Only [persistent](crate::KeptLine) batches stay, because their lines
//!   still exist.

use std::path::{Path, PathBuf};

use vtax_journal::{
    Batch, BatchId, BatchState, ExecuteError, Journal, JournalError, Opened, Snapshot, UndoBatchError, UndoErrors,
    UndoReport, batches,
};
use vtax_sys::{directory, state, userns};

use crate::{change::Change, error::ChangeError, host::HostAccess, own_file::OwnFile};

const ID: &str = "tuning";
const KIND: &str = "tuning";

/// Directory of the machine's journal, which survives a reboot.
const MACHINE: &str = "/var/lib/vtax/tuning";

/// Returns the directory of the tuning journal. For root it is the machine's, unless another one is named, so that
/// everyone who becomes root finds the same changes. None if the user has no home directory.
pub fn tuning_folder(state: Option<&Path>) -> Option<PathBuf> {
    match state::named(state).is_none() && userns::have_net_admin() {
        true => Some(PathBuf::from(MACHINE)),
        false => Some(state::folder(state)?.join(ID)),
    }
}

/// Errors of reading and writing the journal of changes.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ChangeJournalError {
    #[error(
        "{0}; all settings remain unchanged: `vtax tune revert --force` reverts what is still readable, removes vtax's lines \
         from /etc, and keeps the file"
    )]
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

/// A journal that this process has taken over, to inspect or revert its changes.
#[derive(Debug)]
pub struct PastChanges {
    journal: Journal<Change>,
    host: HostAccess,
}

/// A journal to which changes can be added. Nothing in it is half done, and all of its changes were made since this
/// boot or persist across reboots.
#[derive(Debug)]
pub struct ChangeJournal {
    journal: Journal<Change>,
    host: HostAccess,
}

/// The result of reverting by force.
#[derive(Debug, Default)]
pub struct ForcedRevert {
    /// The changes that could be read.
    pub report: UndoReport,
    /// vtax's lines that were removed from `/etc`, each with its file. They show changes that a damaged journal may
    /// not.
    pub lines: Vec<String>,
    /// The damage of the journal, and the path to which it was moved. None if it was intact.
    pub kept: Option<(JournalError, PathBuf)>,
}

impl ForcedRevert {
    /// Reverts all changes. If the journal is damaged, reverts those that can still be read, removes vtax's files from
    /// `/etc`, and moves the journal aside.
    pub fn carry_out(directory: &Path, mut host: HostAccess) -> Result<ForcedRevert, ChangeJournalError> {
        directory::make_private(directory).map_err(ChangeError::from)?;
        let damaged = match Journal::<Change>::open_any(directory, ID) {
            Err(JournalError::Missing { .. }) => return Ok(ForcedRevert::default()),
            Err(error) => return Err(error.into()),
            Ok(Opened::Whole(journal)) => {
                let report = journal.undo(&mut host)?;
                return Ok(ForcedRevert { report, ..ForcedRevert::default() });
            }
            Ok(Opened::Damaged(damaged)) => damaged,
        };
        let report = damaged.undo_readable::<Change>(&mut host)?;
        let lines = OwnFile::remove_all(&host).map_err(ChangeError::from)?;
        let kept = Some(damaged.set_aside()?);
        Ok(ForcedRevert { report, lines, kept })
    }
}

/// Leftover changes that were undone before further changes.
#[derive(Debug, Default)]
pub struct RecoveredChanges {
    /// The non-persistent changes of an earlier boot.
    pub before_reboot: Option<UndoReport>,
    /// Batches left by a killed process.
    pub interrupted: Vec<(BatchId, UndoReport)>,
}

/// The recorded changes, whether or not a process is working on them.
#[derive(Debug)]
pub struct ChangesSnapshot {
    /// The journal.
    pub snapshot: Snapshot<Change>,
    /// True if the machine was rebooted since, so changes that aren't persisted no longer exist.
    pub rebooted: bool,
}

impl ChangesSnapshot {
    /// Reads the journal without taking it over. None if nothing is changed.
    pub fn read(directory: &Path, host: &mut HostAccess) -> Result<Option<ChangesSnapshot>, ChangeJournalError> {
        directory::make_private(directory).map_err(ChangeError::from)?;
        let snapshot: Snapshot<Change> = match Snapshot::read(directory, ID) {
            Err(JournalError::Missing { .. }) => return Ok(None),
            snapshot => snapshot?,
        };
        let left = batches(&snapshot.records).filter(|batch| batch.state() != BatchState::Undone);
        let rebooted = left.flat_map(|batch| batch.records).any(|record| record.step.is_forgotten(host));
        Ok(Some(ChangesSnapshot { snapshot, rebooted }))
    }
}

impl PastChanges {
    /// Opens the journal. None if there are no changes. Fails if another process has the journal.
    pub fn open(directory: &Path, host: HostAccess) -> Result<Option<PastChanges>, ChangeJournalError> {
        let journal = take_over(directory)?;
        Ok(journal.map(|journal| PastChanges { journal, host }))
    }

    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Batch<'_, Change>> {
        self.journal.batches()
    }

    pub fn revert(&mut self, batch: BatchId) -> Result<UndoReport, ChangeJournalError> {
        Ok(self.journal.undo_batch(batch, &mut self.host)?)
    }

    /// Reverts all changes, and ends the journal.
    pub fn revert_all(mut self) -> Result<UndoReport, ChangeJournalError> {
        Ok(self.journal.undo(&mut self.host)?)
    }

    /// Releases the journal, and ends it if all of its changes are undone.
    pub fn close(mut self) -> Result<(), ChangeJournalError> {
        end_if_undone(self.journal, &mut self.host)
    }
}

impl ChangeJournal {
    /// Opens the journal of this directory, or starts it. First undoes what a killed process or an earlier boot has
    /// left.
    pub fn start(
        directory: &Path,
        mut host: HostAccess,
    ) -> Result<(ChangeJournal, RecoveredChanges), ChangeJournalError> {
        let mut recovered = RecoveredChanges::default();
        let journal = match take_over(directory)? {
            Some(mut journal) => {
                recovered.before_reboot = undo_forgotten(&mut journal, &mut host)?;
                recovered.interrupted = undo_abandoned(&mut journal, &mut host)?;
                journal
            }
            None => create(directory)?,
        };
        let journal = match recovered.before_reboot.is_some() && is_undone(&journal) {
            true => {
                journal.undo(&mut host)?;
                create(directory)?
            }
            false => journal,
        };
        Ok((ChangeJournal { journal, host }, recovered))
    }

    /// Returns the machine, to plan changes with.
    pub fn host(&mut self) -> &mut HostAccess {
        &mut self.host
    }

    /// Makes changes that stay until they are reverted. If one fails, none of them remains.
    pub fn apply(&mut self, changes: Vec<Change>) -> Result<BatchId, ChangeJournalError> {
        let batch = self.try_out(changes)?;
        self.keep(batch)?;
        Ok(batch)
    }

    /// Confirms changes that were tried out. If that cannot be recorded, they are reverted.
    pub fn keep(&mut self, batch: BatchId) -> Result<(), ChangeJournalError> {
        if let Err(error) = self.journal.keep() {
            self.journal.undo_batch(batch, &mut self.host)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Adds changes to those that were tried out last, and confirms all of them. If one fails, none of them remains.
    pub fn keep_with(&mut self, batch: BatchId, added: Vec<Change>) -> Result<(), ChangeJournalError> {
        if let Err(error) = self.journal.extend(added, &mut self.host) {
            self.journal.undo_batch(batch, &mut self.host)?;
            return Err(ChangeJournalError::Failed(Box::new(error)));
        }
        self.keep(batch)
    }

    /// Makes changes that are undone by the next [`ChangeJournal::start`], if this process is killed before it reverts
    /// them or confirms any changes: that confirms all changes of the journal.
    pub fn try_out(&mut self, changes: Vec<Change>) -> Result<BatchId, ChangeJournalError> {
        self.journal.execute(changes, &mut self.host).map_err(|error| ChangeJournalError::Failed(Box::new(error)))
    }

    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Batch<'_, Change>> {
        self.journal.batches()
    }

    pub fn revert(&mut self, batch: BatchId) -> Result<UndoReport, ChangeJournalError> {
        Ok(self.journal.undo_batch(batch, &mut self.host)?)
    }

    /// Releases the journal, and ends it if all of its changes are undone.
    pub fn close(mut self) -> Result<(), ChangeJournalError> {
        end_if_undone(self.journal, &mut self.host)
    }
}

fn create(directory: &Path) -> Result<Journal<Change>, ChangeJournalError> {
    Ok(Journal::create(directory, ID, KIND, &())?)
}

/// Takes over the journal, if there is one.
fn take_over(directory: &Path) -> Result<Option<Journal<Change>>, ChangeJournalError> {
    directory::make_private(directory).map_err(ChangeError::from)?;
    match Journal::open(directory, ID) {
        Err(JournalError::Missing { .. }) => Ok(None),
        journal => Ok(Some(journal?)),
    }
}

/// Undoes the batches of earlier boots that aren't persistent. None if there is no such batch.
fn undo_forgotten(
    journal: &mut Journal<Change>,
    host: &mut HostAccess,
) -> Result<Option<UndoReport>, ChangeJournalError> {
    let standing = || journal.batches().filter(|batch| batch.state() != BatchState::Undone);
    let kept: Vec<&Change> =
        standing().flat_map(|batch| batch.records).filter_map(|record| record.step.keeps()).collect();
    let is_forgotten = |batch: &Batch<'_, Change>| {
        batch.records.iter().all(|record| record.step.is_forgotten(host) && !kept.contains(&&record.step))
    };
    let forgotten: Vec<BatchId> = standing().rev().filter(is_forgotten).map(|batch| batch.id).collect();
    let mut reports = Vec::new();
    for batch in forgotten {
        match journal.undo_batch(batch, host) {
            // A persistent batch depends on it. Both are undone together.
            Err(UndoBatchError::Later { .. }) => {}
            report => reports.push(report?),
        }
    }
    Ok((!reports.is_empty()).then(|| reports.into_iter().sum()))
}

/// Undoes the last batch first: an earlier one may have changed the same value.
fn undo_abandoned(
    journal: &mut Journal<Change>,
    host: &mut HostAccess,
) -> Result<Vec<(BatchId, UndoReport)>, ChangeJournalError> {
    let abandoned: Vec<BatchId> = journal.batches().rev().filter(Batch::is_abandoned).map(|batch| batch.id).collect();
    abandoned.into_iter().map(|batch| Ok((batch, journal.undo_batch(batch, host)?))).collect()
}

fn end_if_undone(journal: Journal<Change>, host: &mut HostAccess) -> Result<(), ChangeJournalError> {
    if is_undone(&journal) {
        journal.undo(host)?;
    }
    Ok(())
}

fn is_undone(journal: &Journal<Change>) -> bool {
    journal.batches().all(|batch| batch.state() == BatchState::Undone)
}

impl From<JournalError> for ChangeJournalError {
    fn from(error: JournalError) -> ChangeJournalError {
        match error {
            error if error.is_damage() => ChangeJournalError::Damaged(error),
            error => ChangeJournalError::Journal(error),
        }
    }
}
