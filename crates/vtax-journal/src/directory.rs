//! Directory of the journals.
//!
//! To check whether a journal's owner is alive, a process tries to take the journal's lock, and so holds it for a
//! moment. A second lock, on the file `.lock` of the directory, makes checking and acting atomic. A process holds it
//! while it creates, opens, reads or removes a journal, but never while steps run. So no process mistakes a new file
//! without a lock for an abandoned one, and no two processes take over the same journal.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use vtax_sys::{
    directory,
    lock::{self, LockHolder},
    record,
};

use crate::error::JournalError;

const SUFFIX: &str = "journal";
/// Time within which the kernel closes the descriptors of a program that it executes, also on a busy machine.
const EXECUTED: Duration = Duration::from_secs(1);

/// Directory, locked against other processes.
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Waits for the directory's lock, which no process holds for long.
    pub(crate) fn enter(path: &Path) -> Result<Directory, JournalError> {
        directory::create_private(path).map_err(io("create", path))?;
        let name = path.join(".lock");
        let file = record::open_lock(&name)?;
        lock::wait(&file, &name).map_err(io("lock", &name))?;
        let directory = Directory { path: path.to_owned(), _lock: file };
        // Leftover of a killed process: a living writer holds the lock.
        let _ = fs::remove_file(directory.draft());
        Ok(directory)
    }

    /// Returns the path of the draft, of which there is one at a time.
    fn draft(&self) -> PathBuf {
        self.path.join(".new.draft")
    }

    /// Creates a file that will be renamed to the name of a journal.
    pub(crate) fn begin_draft(&self) -> Result<(File, PathBuf), JournalError> {
        Ok(record::draft(&self.path.join("new"))?)
    }

    /// Returns the path of the journal with this name, whether it exists or not.
    pub(crate) fn file(&self, id: &str) -> Result<PathBuf, JournalError> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if id.is_empty() || !id.chars().all(good) {
            return Err(JournalError::BadId { id: id.to_owned() });
        }
        Ok(self.path.join(format!("{id}.{SUFFIX}")))
    }

    /// Returns the names of all journals, sorted.
    pub(crate) fn ids(&self) -> Result<Vec<String>, JournalError> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io("read", &self.path))? {
            let path = entry.map_err(io("read", &self.path))?.path();
            if path.extension().is_some_and(|extension| extension == SUFFIX) {
                ids.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Syncs the directory, so that new names survive a crash.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let directory = File::open(&self.path).map_err(io("open", &self.path))?;
        directory.sync_all().map_err(io("sync", &self.path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes the lock of a journal. Returns `false` if a living process has it.
pub(crate) fn claim(file: &File, path: &Path) -> Result<bool, JournalError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(io("lock", path)(source)),
    }
}

/// Takes the lock of a journal whose owner may have just ended; otherwise returns its holder, if known.
///
/// A program that the owner has started also holds the lock, until the kernel closes its descriptors. That is a moment
/// after execve(2) has let the owner go on (vfork(2)), so a lock without another living holder is waited for.
pub(crate) fn take_over(file: &File, path: &Path) -> Result<Result<(), Option<LockHolder>>, JournalError> {
    let begun = Instant::now();
    loop {
        if claim(file, path)? {
            return Ok(Ok(()));
        }
        let holder = LockHolder::of(path);
        let is_other = holder.as_ref().is_some_and(|holder| holder.pid != std::process::id());
        if is_other || begun.elapsed() >= EXECUTED {
            return Ok(Err(holder));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_a_started_program_still_holds_is_waited_for() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("lock");
        let open = || File::options().create(true).append(true).open(&path).expect("a file of the test");
        let (owner, next) = (open(), open());
        assert!(claim(&owner, &path).expect("a lock"));
        assert!(take_over(&next, &path).expect("a lock").is_err(), "its owner is alive");
        let of_program = owner.try_clone().expect("the same lock");
        drop(owner);
        let closed = thread::spawn(move || {
            thread::sleep(EXECUTED / 10);
            drop(of_program);
        });
        assert!(take_over(&next, &path).expect("a lock").is_ok());
        closed.join().expect("it ends");
    }
}
