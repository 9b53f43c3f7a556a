//! The directory for run-time files: journals, pins of namespaces, the keeper's name.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use vtax_sys::{SysError, directory, lock, record};

use crate::error::LabError;

const ROOT: &str = "/run/vtax";
/// Variable that selects another directory, so that labs in it neither see nor disturb those of the usual one.
const VARIABLE: &str = "VTAX_RUN";

/// Held by the only process of this user that may reserve names and addresses for a lab.
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
    let file = record::open_lock(&path)?;
    lock::wait(&file, &path).map_err(LabError::file("lock", &path))?;
    Ok(Admission { _lock: file })
}

fn prepare(path: PathBuf) -> Result<PathBuf, LabError> {
    directory::make_private(&path).map_err(|error| match error {
        SysError::NotPrivate { path, why } => LabError::RunDirectory { path, why },
        error => LabError::kernel(path.display())(error),
    })?;
    for part in ["labs", "journals"] {
        let part = path.join(part);
        directory::create_private(&part).map_err(LabError::file("create", &part))?;
    }
    Ok(path)
}

fn own_uid() -> Result<u32, LabError> {
    let own = Path::new("/proc/self");
    Ok(fs::metadata(own).map_err(LabError::file("access", own))?.uid())
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
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
        let error = prepare(path).expect_err("anybody's").to_string();
        assert!(error.contains("is writable by others; remove it, or set XDG_RUNTIME_DIR"), "{error}");
    }
}
