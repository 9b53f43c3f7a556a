//! The directory for run-time files: journals, pins of namespaces, the keeper's name.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::error::LabError;

const ROOT: &str = "/run/vtax";
/// Names another directory, so that labs in it neither see nor disturb those of the usual one.
const VARIABLE: &str = "VTAX_RUN";

/// Held by the one process of this user that may take names and addresses for a lab.
#[derive(Debug)]
pub(crate) struct Admission {
    _lock: File,
}

pub(super) fn of_root() -> Result<PathBuf, LabError> {
    prepare(named().unwrap_or_else(|| PathBuf::from(ROOT)))
}

fn named() -> Option<PathBuf> {
    env::var_os(VARIABLE).and_then(|path| std::path::absolute(path).ok())
}

/// `VTAX_RUN`, else in the user's run-time directory (XDG), else in `/tmp`, only if it belongs to this user alone.
pub(super) fn of_user() -> Result<PathBuf, LabError> {
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    prepare(match (named(), given) {
        (Some(named), _) => named,
        (None, Some(base)) => base.join("vtax"),
        (None, None) => PathBuf::from(format!("/tmp/vtax-{}", own_uid()?)),
    })
}

pub(super) fn lock(run: &Path) -> Result<Admission, LabError> {
    let path = run.join("admission.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(LabError::file("open", &path))?;
    file.lock().map_err(LabError::file("lock", &path))?;
    Ok(Admission { _lock: file })
}

fn prepare(path: PathBuf) -> Result<PathBuf, LabError> {
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(&path)?,
        Err(error) => return Err(LabError::file("create", &path)(error)),
    }
    for part in ["labs", "journals"] {
        let part = path.join(part);
        fs::create_dir_all(&part).map_err(LabError::file("create", &part))?;
    }
    Ok(path)
}

fn check(path: &Path) -> Result<(), LabError> {
    let found = fs::symlink_metadata(path).map_err(LabError::file("look at", path))?;
    let wrong = match () {
        () if !found.is_dir() => Some("is no directory"),
        () if found.uid() != own_uid()? => Some("belongs to somebody else"),
        () if found.mode() & 0o022 != 0 => Some("can be written by others"),
        () => None,
    };
    match wrong {
        Some(why) => Err(LabError::RunDirectory { path: path.to_owned(), why }),
        None => Ok(()),
    }
}

fn own_uid() -> Result<u32, LabError> {
    let own = Path::new("/proc/self");
    Ok(fs::metadata(own).map_err(LabError::file("look at", own))?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("vtax");
        prepare(path.clone()).expect("ours");
        prepare(path.clone()).expect("ours again");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(matches!(prepare(path), Err(LabError::RunDirectory { .. })));
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("vtax");
        std::os::unix::fs::symlink(base.path(), &path).expect("a link");
        assert!(matches!(prepare(path), Err(LabError::RunDirectory { .. })));
    }
}
