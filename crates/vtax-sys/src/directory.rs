//! Directories that only this user can write. What is in one need not be doubted as what a stranger may have put there.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use crate::error::{Result, SysError};

/// Makes a directory that only this user can read and write, unless it is there. The directories above it are made as
/// usual.
///
/// # Errors
/// [`SysError::NotPrivate`] if something else is there, or if others can write it.
pub fn make_private(path: &Path) -> Result<()> {
    let fail = |e| SysError::os("create", path.display(), e);
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(fail)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(path),
        Err(error) => Err(fail(error)),
    }
}

fn check(path: &Path) -> Result<()> {
    let found = fs::symlink_metadata(path).map_err(|e| SysError::os("look at", path.display(), e))?;
    let why = match () {
        () if !found.is_dir() => "is no directory",
        () if found.uid() != rustix::process::geteuid().as_raw() => "belongs to somebody else",
        () if found.mode() & 0o022 != 0 => "can be written by others",
        () => return Ok(()),
    };
    Err(SysError::NotPrivate { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn refused(path: &Path) -> &'static str {
        match make_private(path) {
            Err(SysError::NotPrivate { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lib/vtax");
        make_private(&path).unwrap();
        make_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refused(&path), "can be written by others");
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| base.path().join(name));
        symlink(base.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!([refused(&link), refused(&file)], ["is no directory"; 2]);
    }
}
