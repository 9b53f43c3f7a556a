//! Errors of stored results, with a remedy for the user.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rusqlite::{ErrorCode, ffi};
use vtax_model::{cell::Arm, run::ExtendError};
use vtax_stats::histogram::HistogramError;
use vtax_sys::{
    SysError, directory,
    lock::LockHolder,
    record::{self, RecordError},
};

use crate::{busy::DatabaseFiles, reserve};

/// Error in storing or reading results.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StoreError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(RecordError),
    #[error(
        "no space left for results in {dir}: free some, or use another directory with --state DIR; what is stored already is safe, and `vtax run --resume` continues a run that was stopped"
    )]
    #[diagnostic(code("disk-full"))]
    Full { dir: PathBuf },
    #[error("cannot write results to {dir} ({why}): make it writable, or use another directory with --state DIR")]
    #[diagnostic(code("results-not-writable"))]
    ReadOnly { dir: PathBuf, why: String },
    #[error(
        "the results in {file} are damaged ({why}): move the file away and start over, or recover its contents with `sqlite3 {file} .recover`"
    )]
    #[diagnostic(code("results-damaged"))]
    Corrupt { file: PathBuf, why: String },
    #[error(
        "the results in {file} were written by a newer vtax (its schema is {found}, this one knows {known}): use that version, or another directory with --state DIR"
    )]
    #[diagnostic(code("results-newer"))]
    Newer { file: PathBuf, found: i64, known: i64 },
    #[error("{file} is locked by {}", blocker(.by, .file))]
    #[diagnostic(code("results-locked"))]
    Busy { file: PathBuf, by: Option<LockHolder> },
    #[error("another vtax began to write the results in {file} while this one read them: run the command again")]
    #[diagnostic(code("results-changed"))]
    Changed { file: PathBuf },
    #[error("there are no runs in {dir} yet: create one with `vtax demo`, or use another directory with --state DIR")]
    #[diagnostic(code("no-runs"))]
    Empty { dir: PathBuf },
    #[error("there is no run `{id}`{}; list all with `vtax results list`", like(.similar))]
    #[diagnostic(code("no-such-run"))]
    NotFound { id: String, similar: Vec<String> },
    #[error("more than one run begins with `{prefix}`: {}; use more characters of the id", .candidates.join(", "))]
    #[diagnostic(code("ambiguous-run"))]
    Ambiguous { prefix: String, candidates: Vec<String> },
    #[error("the run {id} is being written by another vtax: wait until it exits, or stop it")]
    #[diagnostic(code("run-in-use"))]
    InUse { id: String },
    #[error(
        "the run {id} is complete: print it with `vtax results show {id}`, or extend it to N rounds with `vtax run --resume {id} --samples N`"
    )]
    #[diagnostic(code("run-complete"))]
    Complete { id: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Extend(#[from] ExtendError),
    #[error("the run {id} already exists: run ids must be unique")]
    #[diagnostic(code("defect"))]
    Exists { id: String },
    #[error(
        "cell {cell} of the run {id} already has a sample of arm {arm:?} in round {round}: a sample is stored once"
    )]
    #[diagnostic(code("defect"))]
    Twice { id: String, cell: usize, arm: Arm, round: u32 },
    #[error(
        "cannot read the {what} of the run {id} ({source}): another version of vtax wrote it; export it with that one"
    )]
    #[diagnostic(code("results-damaged"))]
    Unreadable { id: String, what: &'static str, source: serde_json::Error },
    #[error(
        "cannot read the histogram of a sample of the run {id} ({source}): export the run with the vtax that wrote it"
    )]
    #[diagnostic(code("results-damaged"))]
    Histogram { id: String, source: HistogramError },
    #[error("cannot write the {what} of the run {id}: {source}")]
    #[diagnostic(code("defect"))]
    Unwritable { id: String, what: &'static str, source: serde_json::Error },
    #[error("{doing} failed on {path}: {source}")]
    #[diagnostic(code("file"))]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Directory(Box<SysError>),
    #[error("{doing} failed in {file}: {source}")]
    #[diagnostic(code("results-database"))]
    Sqlite { doing: &'static str, file: PathBuf, source: rusqlite::Error },
}

/// Returns the process that blocks a file, and a remedy. The process may be unknown: it has ended in the meantime, or
/// is in another pid namespace.
fn blocker(by: &Option<LockHolder>, file: &Path) -> String {
    match by {
        Some(holder) => format!("{holder}: wait until it is done, or stop it, and try again"),
        None => format!("another process: identify it with `fuser {}` and try again", file.display()),
    }
}

fn like(similar: &[String]) -> String {
    match similar {
        [] => String::new(),
        some => format!(", but {}", some.join(", ")),
    }
}

/// Location of the store, which errors contain.
#[derive(Debug, Clone)]
pub(crate) struct StoreLocation {
    dir: PathBuf,
}

/// Size of SQLite's smallest page, and so of the smallest database that was ever written.
const SMALLEST: u64 = 512;

/// Inode, size and time of the last change of a file.
pub(crate) type FileStamp = (u64, u64, i64, i64);

/// Converts an error of SQLite, adding the operation in progress.
pub(crate) type Doing<'a> = dyn Fn(rusqlite::Error) -> StoreError + 'a;

impl StoreLocation {
    /// Creates the directory if it doesn't exist, accessible only to this user.
    pub(crate) fn new(dir: &Path) -> Result<StoreLocation, StoreError> {
        let place = StoreLocation { dir: dir.to_owned() };
        let locks = place.locks();
        [dir, &locks].into_iter().try_for_each(directory::make_private).map_err(|error| place.sys(error))?;
        Ok(place)
    }

    /// Returns the location of a store to read. The directory need not exist.
    pub(crate) fn to_read(dir: &Path) -> Result<StoreLocation, StoreError> {
        let place = StoreLocation { dir: dir.to_owned() };
        directory::check_readable(dir).map_err(|error| place.sys(error))?;
        Ok(place)
    }

    fn sys(&self, error: SysError) -> StoreError {
        match error.errno().map(io::Error::from_raw_os_error) {
            Some(source) => self.io("creating the directory", &self.dir, source),
            None => StoreError::Directory(Box::new(error)),
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("results.db")
    }

    /// Returns a file next to the database, e.g. SQLite's log or the log's index.
    pub(crate) fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.file().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Returns properties that change with each write to the database file.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        let metadata = std::fs::metadata(self.file()).ok()?;
        Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.dir.join("locks")
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    pub(crate) fn io(&self, doing: &'static str, path: &Path, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { dir: self.dir() },
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                StoreError::ReadOnly { dir: self.dir(), why: source.to_string() }
            }
            _ => StoreError::Io { doing, path: path.to_owned(), source },
        }
    }

    /// Returns `true` if there is a database. Its files are checked first, because SQLite would wait for the writer of
    /// a FIFO, and follow a link.
    pub(crate) fn has_database(&self) -> Result<bool, StoreError> {
        let look = |path: PathBuf| record::exists(&path).map_err(|error| self.record("looking for the results", error));
        ["-wal", "-shm"].into_iter().try_for_each(|ending| look(self.beside(ending)).map(drop))?;
        let exists = look(self.file())?;
        match exists && self.was_emptied() {
            true => Err(StoreError::Corrupt { file: self.file(), why: "it was emptied".to_owned() }),
            false => Ok(exists),
        }
    }

    /// Returns `true` if the database is empty although it was written. SQLite would take it for a new one.
    fn was_emptied(&self) -> bool {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
        let is_empty = size(self.file()) < SMALLEST && size(self.beside("-wal")) == 0;
        is_empty && size(self.beside(reserve::ENDING)) > 0
    }

    pub(crate) fn record(&self, doing: &'static str, error: RecordError) -> StoreError {
        match error {
            RecordError::Io { path, error, .. } => self.io(doing, &path, error),
            damage => StoreError::Record(damage),
        }
    }

    pub(crate) fn doing(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
        move |source| self.sqlite(doing, source)
    }

    fn sqlite(&self, doing: &'static str, source: rusqlite::Error) -> StoreError {
        let (file, why) = (self.file(), source.to_string());
        // SQLITE_IOERR_SHMSIZE: the index of the log could not grow, which only a full disk causes.
        if source.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE) {
            return StoreError::Full { dir: self.dir() };
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full { dir: self.dir() },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::ReadOnly { dir: self.dir(), why }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt { file, why },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Busy { file, by: DatabaseFiles::of(self).holder() }
            }
            _ => StoreError::Sqlite { doing, file, source },
        }
    }
}
