//! Writing of each block before the first one is read.

use std::{io, path::PathBuf};

use vtax_model::disk::DiskTest;

use crate::{
    job::{FioJob, FioJobError},
    run::{FioError, FioProgram},
    written::{Written, look},
};

/// State of the blocks of a test's disks after preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlocksWritten {
    /// Already written before.
    Before,
    /// Written by fio now.
    Now,
    /// Written by fio, but still read as zeros: the disk keeps no data, like null_blk. It can be measured, but not
    /// verified.
    NotKept,
}

/// Reason why the disks cannot be prepared.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum PrepareError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Job(#[from] FioJobError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fio(#[from] FioError),
    #[error("cannot read {}: {source}", path.display())]
    #[diagnostic(code("disk-unusable"))]
    Unreadable { path: PathBuf, source: io::Error },
}

/// Writes the range of each disk once, unless samples show that it is already written. The disks must have been
/// [checked](crate::target::check).
pub fn prepare(
    fio: &FioProgram,
    test: DiskTest,
    targets: &[PathBuf],
    seed: u64,
) -> Result<BlocksWritten, PrepareError> {
    if are_written(&test, targets)? {
        return Ok(BlocksWritten::Before);
    }
    fio.run(&FioJob::new(test, targets, true, seed)?)?;
    Ok(if are_written(&test, targets)? { BlocksWritten::Now } else { BlocksWritten::NotKept })
}

fn are_written(test: &DiskTest, targets: &[PathBuf]) -> Result<bool, PrepareError> {
    for path in targets {
        match look(path, test.used()) {
            Ok(Written::Whole) => {}
            Ok(Written::NotAt(_) | Written::EndsAt(_)) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(PrepareError::Unreadable { path: path.clone(), source }),
        }
    }
    Ok(true)
}
