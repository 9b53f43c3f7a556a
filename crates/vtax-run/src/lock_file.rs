//! A lock file: one process at a time can hold it, and its PID is in the file.

use std::{
    fs::{File, TryLockError},
    io::{Seek, Write},
    path::Path,
    process,
};

use vtax_model::foreign::ForeignText;
use vtax_sys::record;

use crate::stop::Coded;

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct LockFile {
    _lock: File,
}

impl LockFile {
    /// Takes the lock, or reports the process that holds it.
    pub fn take(path: &Path) -> miette::Result<Result<LockFile, String>> {
        let mut lock = record::open_lock(path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = record::read_open(&lock, path, record::SMALL)?;
                let holder = ForeignText::from(String::from_utf8_lossy(&holder).trim());
                return Ok(Err(format!("process {holder}")));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).coded("file", || format!("locking {}", path.display()));
            }
        }
        let noted = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", process::id()));
        noted.coded("file", || format!("writing {}", path.display()))?;
        Ok(Ok(LockFile { _lock: lock }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_informed_of_the_first_until_that_has_exited() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("in-use.lock");
        std::fs::write(&path, "4194304 of one that died").expect("written");
        let take = || LockFile::take(&path).expect("there is room");
        let first = take().expect("free");
        assert_eq!(take().expect_err("taken"), format!("process {}", process::id()));
        drop(first);
        take().expect("free again");
    }
}
