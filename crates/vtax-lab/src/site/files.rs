//! Files that a run makes to measure them as disks.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::{
    fs::{FallocateFlags, SeekFrom, fallocate, seek},
    io::Errno,
};
use vtax_journal::Undone;
use vtax_model::units::ByteSize;
use vtax_step::StepReceipt;

use crate::error::LabError;

/// Creates a sparse file of this size. An existing file is an error.
pub(super) fn make_file(path: &Path, size: ByteSize) -> Result<StepReceipt, LabError> {
    let file = File::create_new(path).map_err(LabError::file("create", path))?;
    match fallocate(&file, FallocateFlags::empty(), 0, size.0) {
        // The file system allocates space as blocks are written.
        Err(Errno::OPNOTSUPP) => file.set_len(size.0),
        room => room.map_err(io::Error::from),
    }
    .map_err(LabError::file("allocate", path))?;
    let made = file.metadata().map_err(LabError::file("access", path))?;
    Ok(StepReceipt(Some(identity(&made))))
}

/// Removes the file, unless another one has replaced it.
pub(super) fn remove_file(path: &Path, receipt: Option<&StepReceipt>) -> Result<Undone, LabError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Undone::AlreadyGone),
        found => found.map_err(LabError::file("access", path))?,
    };
    let is_ours = match receipt {
        Some(StepReceipt(made)) => *made == Some(identity(&found)),
        // Its creator was killed before the file had any data.
        None => found.is_file() && !has_data(path).map_err(LabError::file("read", path))?,
    };
    if !is_ours {
        return Ok(Undone::Foreign { found: "another file".to_owned() });
    }
    fs::remove_file(path).map_err(LabError::file("remove", path))?;
    Ok(Undone::Reverted)
}

/// The kernel may reuse the inode number for a new file, which the time then distinguishes.
fn identity(file: &Metadata) -> String {
    let born = file.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{}:{}:{}", file.dev(), file.ino(), born.map_or(0, |born| born.as_nanos()))
}

fn has_data(path: &Path) -> io::Result<bool> {
    match seek(File::open(path)?, SeekFrom::Data(0)) {
        Err(Errno::NXIO) => Ok(false),
        found => Ok(found.map(|_| true)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: ByteSize = ByteSize(1 << 20);

    #[test]
    fn a_file_is_created_at_full_size_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        let receipt = make_file(&path, SIZE).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").len(), SIZE.0);
        fs::write(&path, "measured").expect("written");
        assert_eq!(remove_file(&path, Some(&receipt)).expect("removed"), Undone::Reverted);
        assert_eq!(remove_file(&path, Some(&receipt)).expect("gone"), Undone::AlreadyGone);
    }

    #[test]
    fn an_existing_file_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        let receipt = make_file(&path, SIZE).expect("made");
        make_file(&path, SIZE).expect_err("it is there");
        fs::write(folder.path().join("other"), "a letter").expect("written");
        fs::rename(folder.path().join("other"), &path).expect("renamed");
        for receipt in [Some(&receipt), None] {
            let undone = remove_file(&path, receipt).expect("looked at");
            assert_eq!(undone, Undone::Foreign { found: "another file".to_owned() });
        }
        assert_eq!(fs::read(&path).expect("there"), b"a letter");
    }

    #[test]
    fn a_file_of_which_no_more_is_known_is_removed_if_it_has_no_data() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        make_file(&path, SIZE).expect("made");
        assert_eq!(remove_file(&path, None).expect("removed"), Undone::Reverted);
    }
}
