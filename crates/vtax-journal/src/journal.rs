//! Runs the steps of a job, and undoes them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    damaged::{DamagedJournal, Opened},
    directory::{self, Directory},
    error::{ExecuteError, JournalError, StepCause, UndoError, UndoErrors},
    line::{Contents, FORMAT, Header, JournalLine, LineForm},
    owner::Owner,
    snapshot::{Record, Snapshot, StepProgress},
    step::{Step, Undone},
};

/// A journal that this process has locked.
///
/// If it is dropped before [`Journal::undo`] or [`Journal::keep`], or if its process dies, it is abandoned:
/// the next recovery undoes it.
#[derive(Debug)]
pub struct Journal<S: Step> {
    log: Log<S>,
    header: Option<Header>,
    records: Vec<Record<S>>,
}

/// How the steps of a journal were undone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndoCounts {
    /// Steps whose change was there and was undone.
    pub reverted: usize,
    /// Steps that had nothing to undo.
    pub already_gone: usize,
    /// Steps whose change disappeared with the object that contained it.
    pub contained: usize,
}

impl<S: Step> Journal<S> {
    /// Starts the journal `id` for a job of this `kind`. `about` is what the owner wants to find again later.
    ///
    /// # Errors
    /// [`JournalError::Taken`] if a journal with this name exists: alive, kept or abandoned.
    pub fn create(directory: &Path, id: &str, kind: &str, about: &impl Serialize) -> Result<Self, JournalError> {
        let entered = Directory::enter(directory)?;
        let path = entered.file(id)?;
        let file =
            OpenOptions::new().append(true).create_new(true).open(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => taken::<S>(&entered, id),
                _ => directory::io("create", &path)(error),
            })?;
        let log = Log { file, path, form: LineForm::Checked, steps: PhantomData };
        let started = Self::start(log, id, kind, about);
        // Nothing was done yet, so a half-written journal is removed.
        started.inspect_err(|_| {
            let _ = entered.file(id).map(fs::remove_file);
        })
    }

    fn start(mut log: Log<S>, id: &str, kind: &str, about: &impl Serialize) -> Result<Self, JournalError> {
        directory::claim(&log.file, &log.path)?;
        let about = serde_json::to_value(about).map_err(|error| log.unwritable(error))?;
        let header =
            Header { format: FORMAT, id: id.to_owned(), kind: kind.to_owned(), owner: Owner::current(), about };
        log.append([JournalLine::Header(header.clone())])?;
        Ok(Journal { log, header: Some(header), records: Vec::new() })
    }

    /// Takes over a journal that no living process holds, to undo it.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Busy`], or an error that says what is wrong with the file.
    pub fn open(directory: &Path, id: &str) -> Result<Self, JournalError> {
        match Journal::open_any(directory, id)? {
            Opened::Whole(journal) => Ok(journal),
            Opened::Damaged(damaged) => Err(damaged.error),
        }
    }

    /// As [`Journal::open`], but a damaged journal is taken over too.
    pub fn open_any(directory: &Path, id: &str) -> Result<Opened<S>, JournalError> {
        let entered = Directory::enter(directory)?;
        let path = entered.file(id)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => JournalError::Missing { id: id.to_owned(), directory: directory.to_owned() },
            _ => directory::io("open", &path)(error),
        })?;
        let free = directory::claim(&file, &path)?;
        let bytes = fs::read(&path).map_err(directory::io("read", &path))?;
        let contents = Contents::<S>::parse(&path, &bytes);
        if !free {
            let owner = contents.ok().and_then(|contents| contents.header).map(|header| Box::new(header.owner));
            return Err(JournalError::Busy { id: id.to_owned(), owner });
        }
        let contents = match contents {
            Err(error @ JournalError::Corrupt { .. }) => {
                return Ok(Opened::Damaged(DamagedJournal { file, path, error }));
            }
            contents => contents?,
        };
        // The last line may be incomplete. A new line must not be appended to it.
        file.set_len(contents.whole).map_err(directory::io("truncate", &path))?;
        let log = Log { file, path, form: contents.form, steps: PhantomData };
        Ok(Opened::Whole(Journal { log, header: contents.header, records: contents.records }))
    }

    /// The first line. None if the owner died before it wrote the line.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// The steps so far, and what happened to each.
    pub fn records(&self) -> &[Record<S>] {
        &self.records
    }

    /// Runs all `steps`, in order, after those of earlier calls.
    ///
    /// Writes all of them to the file and syncs it once, before it runs the first.
    ///
    /// # Errors
    /// If a step fails, everything in this journal is undone. This includes the failed step, which may be
    /// half done. The error has the cause and every failure of the undoing.
    pub fn execute(mut self, steps: Vec<S>, world: &mut S::World) -> Result<Self, ExecuteError<S::Error>> {
        let first = self.records.len();
        if let Err(error) = self.intend(steps) {
            return Err(self.give_up(first, first, StepCause::Journal(error), world));
        }
        for index in first..self.records.len() {
            if let Err(cause) = self.take(index, world) {
                return Err(self.give_up(index, index + 1, cause, world));
            }
        }
        Ok(self)
    }

    fn intend(&mut self, steps: Vec<S>) -> Result<(), JournalError> {
        let first = self.records.len();
        let lines = steps.iter().enumerate().map(|(index, what)| JournalLine::Intend { step: first + index, what });
        self.log.append(lines)?;
        self.records.extend(steps.into_iter().map(|step| Record { step, progress: StepProgress::Intended }));
        self.log.file.sync_all().map_err(directory::io("sync", &self.log.path))?;
        self.log.directory()?.sync()
    }

    fn take(&mut self, index: usize, world: &mut S::World) -> Result<(), StepCause<S::Error>> {
        let record = &mut self.records[index];
        let receipt = record.step.apply(world).map_err(StepCause::Apply)?;
        let seen = record.step.read_back(&receipt, world).map_err(StepCause::ReadBack);
        let written =
            self.log.append([JournalLine::Done { step: index, receipt: &receipt }]).map_err(StepCause::Journal);
        // A step that failed its check is undone as well, with its receipt.
        record.progress = StepProgress::Done(receipt);
        seen.and(written)
    }

    /// Undoes the first `attempted` steps. Later ones have not begun.
    fn give_up(
        mut self,
        index: usize,
        attempted: usize,
        cause: StepCause<S::Error>,
        world: &mut S::World,
    ) -> ExecuteError<S::Error> {
        let step =
            self.records.get(index).map_or_else(|| "write the journal".to_owned(), |record| record.step.describe());
        self.records.truncate(attempted);
        let left = self.undo(world).err().map(Box::new);
        ExecuteError { step, index, cause, left }
    }

    /// Marks the job as one that may outlive this process, until somebody undoes it by name.
    pub fn keep(&mut self) -> Result<(), JournalError> {
        self.log.append([JournalLine::Kept])?;
        self.log.file.sync_all().map_err(directory::io("sync", &self.log.path))
    }

    /// Undoes all steps, the last first, and removes the file. A kept journal isn't kept any more.
    ///
    /// Steps without a `done` line are undone as well, because they may have begun.
    ///
    /// # Errors
    /// Lists every step that failed. The file stays; another undo continues from there.
    pub fn undo(mut self, world: &mut S::World) -> Result<UndoCounts, UndoErrors<S::Error>> {
        // From here on nobody keeps it: if this process is killed, the next recovery goes on. If the disk is full, the
        // line is lost, which leaves a kept journal kept. A file without its first line has nothing to be undone.
        if self.header.is_some() {
            let _ = self.log.append([JournalLine::Undoing]);
        }
        let mut tally = UndoCounts::default();
        let mut errors = Vec::new();
        for index in (0..self.records.len()).rev() {
            match self.undo_one(index, world) {
                Ok(how) => tally.count(how),
                Err(error) => errors.push(UndoError { step: self.records[index].step.describe(), error }),
            }
        }
        let mut file = None;
        if errors.is_empty() {
            S::finish(world);
            file = self.log.remove().err();
        }
        if errors.is_empty() && file.is_none() {
            return Ok(tally);
        }
        Err(UndoErrors { id: self.log.id(), steps: errors, file })
    }

    /// Removes a journal without steps. One with steps stays. Returns whether the journal was removed.
    pub fn discard_if_empty(self) -> Result<bool, JournalError> {
        let empty = self.records.is_empty();
        if empty {
            self.log.remove()?;
        }
        Ok(empty)
    }

    fn undo_one(&mut self, index: usize, world: &mut S::World) -> Result<Undone, S::Error> {
        let record = &mut self.records[index];
        if let StepProgress::Undone(how) = record.progress {
            return Ok(how);
        }
        let how = record.step.undo(record.progress.receipt(), world)?;
        record.progress = StepProgress::Undone(how);
        // If the disk is full, this line is lost. Then a later recovery looks at this step once more, which
        // does no harm.
        let _ = self.log.append([JournalLine::Undone { step: index, how }]);
        Ok(how)
    }
}

/// A line to be written for a step that is stored elsewhere.
type Entry<'a, S> = JournalLine<&'a S, &'a <S as Step>::Receipt>;

/// The open file.
#[derive(Debug)]
struct Log<S> {
    file: File,
    path: PathBuf,
    form: LineForm,
    steps: PhantomData<S>,
}

impl<S: Step> Log<S> {
    /// Writes all lines with one `write`.
    fn append<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<(), JournalError>
    where
        S: 'a,
    {
        let mut buffer = Vec::new();
        for line in lines {
            line.write_to(&mut buffer, self.form).map_err(|error| self.unwritable(error))?;
        }
        self.file.write_all(&buffer).map_err(directory::io("write", &self.path))
    }

    fn unwritable(&self, error: serde_json::Error) -> JournalError {
        directory::io("write", &self.path)(error.into())
    }

    fn directory(&self) -> Result<Directory, JournalError> {
        Directory::enter(self.path.parent().expect("a journal's path is made by joining a directory"))
    }

    fn remove(&self) -> Result<(), JournalError> {
        let _entered = self.directory()?;
        fs::remove_file(&self.path).map_err(directory::io("remove", &self.path))
    }

    fn id(&self) -> String {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl UndoCounts {
    fn count(&mut self, how: Undone) {
        match how {
            Undone::Reverted => self.reverted += 1,
            Undone::AlreadyGone => self.already_gone += 1,
            Undone::Contained => self.contained += 1,
        }
    }
}

/// The error that says which process uses the name. It works for a journal that can't be read, too.
fn taken<S: Step>(directory: &Directory, id: &str) -> JournalError {
    match Snapshot::<S>::read_in(directory, id) {
        Ok(Snapshot { state, header, .. }) => {
            JournalError::Taken { id: id.to_owned(), state, owner: header.map(|header| Box::new(header.owner)) }
        }
        Err(error) => error,
    }
}
