//! Waits for another process's transaction, with a report that names the process.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use vtax_sys::lock::{LockHolder, LockPatience};

use crate::error::StoreLocation;

/// Time limit for another vtax's transaction, which takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Bytes that a writer of the database locks if there is no log: `PENDING_BYTE` and `RESERVED_BYTE` of SQLite's `os.h`.
const WRITERS: RangeInclusive<u64> = 0x4000_0000..=0x4000_0001;
/// Bytes of the log's index that writers, readers and the checkpointer lock (<https://www.sqlite.org/walformat.html>,
/// "WAL Locks"). The last one on that page is omitted: everyone who has the database open holds it.
const LOG_USERS: RangeInclusive<u64> = 120..=127;

/// Wait of a connection for a lock of the database.
pub(crate) struct BusyWait {
    files: DatabaseFiles,
    patience: LockPatience,
}

impl BusyWait {
    pub(crate) fn new(place: &StoreLocation) -> BusyWait {
        BusyWait { files: DatabaseFiles::of(place), patience: LockPatience::new() }
    }

    /// Waits a moment after a failed attempt, and returns `true` if another one should follow. `attempts` is the number
    /// of earlier ones for the same lock.
    pub(crate) fn keeps_waiting(&mut self, attempts: i32) -> bool {
        if attempts == 0 {
            self.patience = LockPatience::new();
        }
        self.patience.pause(&self.files.database, || self.files.holder());
        self.patience.waited() < LIMIT
    }
}

/// Files that SQLite locks.
pub(crate) struct DatabaseFiles {
    database: PathBuf,
    index: PathBuf,
}

impl DatabaseFiles {
    pub(crate) fn of(place: &StoreLocation) -> DatabaseFiles {
        DatabaseFiles { database: place.file(), index: place.beside("-shm") }
    }

    /// Returns another process that currently uses the database.
    pub(crate) fn holder(&self) -> Option<LockHolder> {
        LockHolder::of_bytes(&self.database, &WRITERS).or_else(|| LockHolder::of_bytes(&self.index, &LOG_USERS))
    }
}
