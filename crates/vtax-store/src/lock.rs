//! Lock of a run's writer, which ends with its process.
//!
//! It uses flock(2) through the standard library: the kernel releases it when the last descriptor is closed, and our
//! descriptors are closed on exec, so no agent keeps a dead run locked.

use std::{
    fs::{self, File, Metadata, TryLockError},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use vtax_sys::record::{self, RecordUse};

use crate::{StoreError, error::StoreLocation};

/// Exclusive right to write a run, held until dropped.
#[derive(Debug)]
pub(crate) struct RunLock {
    _file: File,
    path: PathBuf,
}

/// Number of attempts, because a process that only checks the lock holds it for some microseconds.
const TRIES: u32 = 10;

impl RunLock {
    /// Takes the lock. Fails if another process, or another writer of this one, holds it.
    pub(crate) fn take(place: &StoreLocation, id: &str) -> Result<RunLock, StoreError> {
        let path = path(place, id);
        for _ in 0..TRIES {
            let file = record::open_lock(&path).map_err(|error| place.record("opening a lock", error))?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(RunLock { _file: file, path }),
                // Another process completed the run, and removed the file after it was opened here.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::Error(error)) => return Err(place.io("locking", &path, error)),
            }
        }
        Err(StoreError::InUse { id: id.to_owned() })
    }

    /// Returns `true` if a live process writes the run.
    pub(crate) fn is_held(place: &StoreLocation, id: &str) -> Result<bool, StoreError> {
        let path = path(place, id);
        // A reader may not have write permission there. If the file is missing, nobody holds the lock.
        let found = record::open(&path, RecordUse::Read);
        let Some(file) = found.map_err(|error| place.record("opening a lock", error))? else { return Ok(false) };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(place.io("looking for a lock", &path, error)),
        }
    }

    /// Releases the lock of a complete run, and removes its file.
    pub(crate) fn retire(self, place: &StoreLocation) -> Result<(), StoreError> {
        std::fs::remove_file(&self.path).map_err(|error| place.io("removing a lock", &self.path, error))
    }
}

/// Returns `true` if the open file still has this name: a lock on any other file excludes nobody.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let found = file.metadata().ok().map(identity).zip(fs::metadata(path).ok().map(identity));
    found.is_some_and(|(open, named)| open == named)
}

fn path(place: &StoreLocation, id: &str) -> PathBuf {
    place.locks().join(format!("{id}.lock"))
}
