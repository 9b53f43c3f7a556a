//! Execution and undo of a job's steps.

use std::{fs, ops::Range, path::Path};

use serde::Serialize;
use vtax_sys::record::{self, RecordUse};

use crate::{
    batch::{Batch, BatchId, BatchState, batches},
    damaged::{DamagedJournal, Opened},
    directory::{self, Directory},
    error::{ExecuteError, JournalError, StepCause, UndoBatchError, UndoError, UndoErrors},
    line::{Contents, FORMAT, Header, JournalLine, LONGEST},
    log::Log,
    owner::Owner,
    record::{Record, StepProgress},
    report::UndoReport,
    snapshot::Snapshot,
    step::{Step, Undone},
};

/// Length in bytes from which a journal is compacted. A shorter one is read in a fraction of a second.
const LONG: u64 = 1 << 20;

/// Journal that this process has locked.
///
/// If it is dropped before [`Journal::undo`] or [`Journal::keep`], or if its process dies, it is abandoned: the next
/// recovery undoes it.
#[derive(Debug)]
pub struct Journal<S: Step> {
    log: Log<S>,
    records: Vec<Record<S>>,
    /// Set if the undo of the whole journal has begun, perhaps in a process that was killed.
    undoing: bool,
}

impl<S: Step> Journal<S> {
    /// Creates the journal `id` for a job of this `kind`. `about` is data that the owner can read from it later.
    ///
    /// # Errors
    /// [`JournalError::Taken`] if a journal with this name exists, whether alive, kept or abandoned.
    pub fn create(directory: &Path, id: &str, kind: &str, about: &impl Serialize) -> Result<Self, JournalError> {
        let entered = Directory::enter(directory)?;
        let path = entered.file(id)?;
        if fs::symlink_metadata(&path).is_ok() {
            return Err(taken::<S>(&entered, id));
        }
        let about = serde_json::to_value(about).map_err(|error| directory::io("write", &path)(error.into()))?;
        let (id, kind) = (id.to_owned(), kind.to_owned());
        let header = Header { format: FORMAT, id, kind, owner: Owner::current(), about };
        let log = Log::create(&entered, path, header)?;
        Ok(Journal { log, records: Vec::new(), undoing: false })
    }

    /// Takes over a journal that no living process holds, to undo it.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Busy`], or an error that describes the damage of the file.
    pub fn open(directory: &Path, id: &str) -> Result<Self, JournalError> {
        match Journal::open_any(directory, id)? {
            Opened::Whole(journal) => Ok(journal),
            Opened::Damaged(damaged) => Err(damaged.error),
        }
    }

    /// Like [`Journal::open`], but also takes over a damaged journal.
    pub fn open_any(directory: &Path, id: &str) -> Result<Opened<S>, JournalError> {
        let entered = Directory::enter(directory)?;
        let path = entered.file(id)?;
        let missing = || JournalError::Missing { id: id.to_owned(), directory: directory.to_owned() };
        let file = match record::open(&path, RecordUse::Append) {
            Err(error) if error.is_damage() => {
                return Ok(Opened::Damaged(DamagedJournal { file: None, path, error: error.into() }));
            }
            file => file?.ok_or_else(missing)?,
        };
        if let Err(by) = directory::take_over(&file, &path)? {
            return Err(JournalError::Busy { id: id.to_owned(), by });
        }
        let read = record::read_open(&file, &path, LONGEST).map_err(JournalError::from);
        let read = read.and_then(|bytes| Ok((Contents::<S>::parse(&path, &bytes)?, bytes)));
        let (contents, bytes) = match read {
            Err(error) if error.is_damage() => {
                return Ok(Opened::Damaged(DamagedJournal { file: Some(file), path, error }));
            }
            read => read?,
        };
        let log = Log::resume(file, path, &contents, &bytes)?;
        Ok(Opened::Whole(Journal { log, records: contents.records, undoing: contents.undoing }))
    }

    /// Returns the header, the first line of the file.
    pub fn header(&self) -> &Header {
        self.log.header()
    }

    /// Returns the steps so far, with their states.
    pub fn records(&self) -> &[Record<S>] {
        &self.records
    }

    /// Returns the batches so far, with their states.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Batch<'_, S>> {
        batches(&self.records)
    }

    /// Runs all `steps`, in order, as a new batch.
    ///
    /// All of them are written to the file, which is synced once, before the first one runs. An empty list leaves no
    /// trace, so the next batch gets the same number.
    ///
    /// # Errors
    /// If a step fails, this batch is undone, including the failed step, which may be half done. Earlier batches are
    /// unchanged, and the journal remains usable. The error contains the cause and every failure of the undo.
    pub fn execute(&mut self, steps: Vec<S>, world: &mut S::World) -> Result<BatchId, ExecuteError<S::Error>> {
        let batch = self.next_batch();
        self.run(batch, steps, world).map(|()| batch)
    }

    /// Runs further steps as a part of the last batch. The whole batch is undone if this process is killed before the
    /// journal is kept.
    ///
    /// # Errors
    /// As for [`Journal::execute`], but only the additional steps are undone.
    pub fn extend(&mut self, steps: Vec<S>, world: &mut S::World) -> Result<(), ExecuteError<S::Error>> {
        let batch = self.records.last().map_or(BatchId::FIRST, |record| record.batch);
        self.run(batch, steps, world)
    }

    fn run(&mut self, batch: BatchId, steps: Vec<S>, world: &mut S::World) -> Result<(), ExecuteError<S::Error>> {
        self.compact();
        let first = self.records.len();
        self.intend(batch, steps).map_err(|error| ExecuteError {
            step: "write the journal".to_owned(),
            index: first,
            cause: StepCause::Journal(error),
            left: None,
        })?;
        for index in first..self.records.len() {
            if let Err(cause) = self.take(index, world) {
                return Err(self.give_up(first, index, cause, world));
            }
        }
        Ok(())
    }

    /// Drops undone batches from a long journal once they are most of it. Otherwise, the journal of a domain that lives
    /// for months while its devices come and go would grow until it could no longer be read.
    ///
    /// The last batch stays because it numbers the next one, and the first because owners read it. If the file can't be
    /// written, the journal is unchanged: the caller writes to it next, and reports the error.
    fn compact(&mut self) {
        let (Some(first), Some(last)) = (self.records.first(), self.records.last()) else { return };
        if self.log.length() < LONG || self.undoing || !self.header().is_sealed() {
            return;
        }
        let ends = [first.batch, last.batch];
        let is_past = |batch: &Batch<'_, S>| !ends.contains(&batch.id) && batch.state() == BatchState::Undone;
        let past: Vec<BatchId> = self.batches().filter(is_past).map(|batch| batch.id).collect();
        let stays = |record: &Record<S>| past.binary_search(&record.batch).is_err();
        let left: Vec<&Record<S>> = self.records.iter().filter(|record| stays(record)).collect();
        if left.len() * 2 <= self.records.len() && self.log.rewrite(lines(&left)).is_ok() {
            self.records.retain(stays);
        }
    }

    fn next_batch(&self) -> BatchId {
        self.records.last().map_or(BatchId::FIRST, |record| record.batch.next())
    }

    fn intend(&mut self, batch: BatchId, steps: Vec<S>) -> Result<(), JournalError> {
        let first = self.records.len();
        let line = |(index, what)| JournalLine::Intend { step: first + index, batch, what };
        self.log.intend(steps.iter().enumerate().map(line))?;
        self.records.extend(steps.into_iter().map(|step| Record::new(step, batch)));
        Ok(())
    }

    fn take(&mut self, index: usize, world: &mut S::World) -> Result<(), StepCause<S::Error>> {
        let record = &mut self.records[index];
        let receipt = record.step.apply(world).map_err(StepCause::Apply)?;
        let seen = record.step.read_back(&receipt, world).map_err(StepCause::ReadBack);
        let written =
            self.log.append([JournalLine::Done { step: index, receipt: &receipt }]).map_err(StepCause::Journal);
        // A step that failed its check is also undone, with its receipt.
        record.progress = StepProgress::Done(receipt);
        seen.and(written)
    }

    /// Undoes the steps of the last batch from `first` to the failed one. Later ones have not begun.
    fn give_up(
        &mut self,
        first: usize,
        failed: usize,
        cause: StepCause<S::Error>,
        world: &mut S::World,
    ) -> ExecuteError<S::Error> {
        for index in failed + 1..self.records.len() {
            self.record_undone(index, Undone::AlreadyGone);
        }
        let (_, steps) = self.undo_steps(first..failed + 1, world);
        let left = self.left(steps, None).map(Box::new);
        ExecuteError { step: self.records[failed].step.describe(), index: failed, cause, left }
    }

    /// Marks the job as one that may outlive this process until someone undoes it by name. This applies to the batches
    /// so far.
    pub fn keep(&mut self) -> Result<(), JournalError> {
        self.log.seal([JournalLine::Kept])?;
        self.records.iter_mut().for_each(|record| record.kept = true);
        self.undoing = false;
        Ok(())
    }

    /// Undoes the steps of one batch in reverse order. The journal and its other batches stay, and a kept journal stays
    /// kept. A batch that is already undone is left as it is.
    ///
    /// # Errors
    /// [`UndoBatchError::Later`] if a later batch has changed the same object. Nothing is undone in this case; the
    /// later batch must be undone first. [`UndoBatchError::Steps`] lists every step that failed; another call continues
    /// from there.
    pub fn undo_batch(&mut self, batch: BatchId, world: &mut S::World) -> Result<UndoReport, UndoBatchError<S::Error>> {
        let first = self.records.partition_point(|record| record.batch < batch);
        let steps = first..self.records.partition_point(|record| record.batch <= batch);
        if steps.is_empty() {
            return Err(UndoBatchError::Missing { id: self.log.id(), batch });
        }
        self.check_last_of_its_objects(steps.clone())?;
        let (report, errors) = self.undo_steps(steps, world);
        // If the disk is full, a later recovery undoes these steps once more, which is harmless.
        let _ = self.log.seal([]);
        self.left(errors, None).map_or(Ok(report), |errors| Err(UndoBatchError::Steps(errors)))
    }

    /// Refuses to undo steps whose objects a later batch has changed. The value found would be neither the previous one
    /// nor that of the step, so it would stay, and undoing the later batch would restore an obsolete value.
    fn check_last_of_its_objects(&self, steps: Range<usize>) -> Result<(), UndoBatchError<S::Error>> {
        let is_there = |record: &&Record<S>| !matches!(record.progress, StepProgress::Undone(_));
        let (own, later) = (&self.records[steps.clone()], &self.records[steps.end..]);
        for record in own.iter().filter(is_there) {
            let again = later.iter().filter(is_there).find(|later| later.step.changes_the_same(&record.step));
            if let Some(again) = again {
                let (batch, step) = (record.batch, record.step.describe());
                return Err(UndoBatchError::Later { id: self.log.id(), batch, step, later: again.batch });
            }
        }
        Ok(())
    }

    /// Undoes all steps in reverse order, and removes the file. A kept journal is no longer kept.
    ///
    /// Steps without a `done` line are also undone, because they may have begun. The report includes the steps that an
    /// interrupted earlier call has undone, but not the batches undone individually before that.
    ///
    /// # Errors
    /// Lists every step that failed. The file stays, and another undo continues from there.
    pub fn undo(mut self, world: &mut S::World) -> Result<UndoReport, UndoErrors<S::Error>> {
        // From here on the journal is not kept: if this process is killed, the next recovery continues. If the disk is
        // full, the line is lost, and a kept journal stays kept.
        let _ = self.log.append([JournalLine::Undoing]);
        if !self.undoing {
            self.records.iter_mut().for_each(Record::settle);
        }
        let (report, steps) = self.undo_steps(0..self.records.len(), world);
        let mut file = None;
        if steps.is_empty() {
            S::finish(world);
            file = self.log.remove().err();
        }
        self.left(steps, file).map_or(Ok(report), Err)
    }

    /// Undoes these steps in reverse order, and continues after an error.
    fn undo_steps(&mut self, steps: Range<usize>, world: &mut S::World) -> (UndoReport, Vec<UndoError<S::Error>>) {
        let mut report = UndoReport::default();
        let mut errors = Vec::new();
        for index in steps.rev() {
            match self.undo_one(index, world) {
                Ok(_) if self.records[index].settled => {}
                Ok(how) => report.add(&self.records[index].step, how),
                Err(error) => errors.push(UndoError { step: self.records[index].step.describe(), error }),
            }
        }
        (report, errors)
    }

    fn left(&self, steps: Vec<UndoError<S::Error>>, file: Option<JournalError>) -> Option<UndoErrors<S::Error>> {
        let id = self.log.id();
        (!steps.is_empty() || file.is_some()).then_some(UndoErrors { id, steps, file })
    }

    /// Removes the journal if it has no steps. Returns `true` if it was removed.
    pub fn discard_if_empty(self) -> Result<bool, JournalError> {
        let empty = self.records.is_empty();
        if empty {
            self.log.remove()?;
        }
        Ok(empty)
    }

    fn undo_one(&mut self, index: usize, world: &mut S::World) -> Result<Undone, S::Error> {
        let record = &self.records[index];
        if let StepProgress::Undone(how) = &record.progress {
            return Ok(how.clone());
        }
        let how = record.step.undo(record.progress.receipt(), world)?;
        self.record_undone(index, how.clone());
        Ok(how)
    }

    /// Records an undo. If the disk is full, the line is lost; a later recovery then undoes this step once more, which
    /// is harmless.
    fn record_undone(&mut self, index: usize, how: Undone) {
        let _ = self.log.append([JournalLine::Undone { step: index, how: how.clone() }]);
        self.records[index].progress = StepProgress::Undone(how);
    }
}

/// Returns the lines of a journal that isn't being undone and has only these records.
fn lines<'a, S: Step>(records: &[&'a Record<S>]) -> Vec<JournalLine<&'a S, &'a S::Receipt>> {
    let kept = records.partition_point(|record| record.kept);
    let mut lines = Vec::new();
    for (step, record) in records.iter().enumerate() {
        if step == kept && kept > 0 {
            lines.push(JournalLine::Kept);
        }
        lines.push(JournalLine::Intend { step, batch: record.batch, what: &record.step });
        match &record.progress {
            StepProgress::Intended => {}
            StepProgress::Done(receipt) => lines.push(JournalLine::Done { step, receipt }),
            StepProgress::Undone(how) => lines.push(JournalLine::Undone { step, how: how.clone() }),
        }
    }
    if kept == records.len() {
        lines.push(JournalLine::Kept);
    }
    lines
}

/// Returns the error that names the process using the name, even if its journal is unreadable.
fn taken<S: Step>(directory: &Directory, id: &str) -> JournalError {
    match Snapshot::<S>::read_in(directory, id) {
        Ok(Snapshot { state, header, .. }) => {
            JournalError::Taken { id: id.to_owned(), state, owner: Some(Box::new(header.owner)) }
        }
        Err(error) => error,
    }
}
