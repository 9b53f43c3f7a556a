//! Removal of an agent that vtax has copied to a machine.
//!
//! At its start, the agent removes its file and the directory that was made for it. A running program doesn't need its
//! file, so nothing is left behind, however the program ends later.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

/// Prefix of a copy's directory name; the copy's key follows.
const FOLDER: &str = ".vtax-";

/// Reasons why a copy cannot remove itself.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum CarriedError {
    #[error("{} was not removed: its directory was not created by vtax; omit --carried", path.display())]
    #[diagnostic(code("not-a-copy"))]
    NotOurs { path: PathBuf },
    #[error("cannot remove {}: {source}", path.display())]
    #[diagnostic(code("file"))]
    Stays { path: PathBuf, source: io::Error },
}

/// Removes the running program and its directory.
pub fn remove_self() -> Result<(), CarriedError> {
    let own = env::current_exe().map_err(|source| CarriedError::Stays { path: "/proc/self/exe".into(), source })?;
    remove(&own)
}

fn remove(program: &Path) -> Result<(), CarriedError> {
    let is_made_for_it = |name: &OsStr| name.as_encoded_bytes().starts_with(FOLDER.as_bytes());
    let folder = program.parent().filter(|folder| folder.file_name().is_some_and(is_made_for_it));
    let folder = folder.ok_or_else(|| CarriedError::NotOurs { path: program.to_owned() })?;
    let stays = |path: &Path| {
        let path = path.to_owned();
        |source| CarriedError::Stays { path, source }
    };
    fs::remove_file(program).map_err(stays(program))?;
    fs::remove_dir(folder).map_err(stays(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_removed_only_with_its_directory() {
        let tree = tempfile::tempdir().expect("made");
        let [folder, other] = [".vtax-1", "bin"].map(|name| tree.path().join(name));
        for folder in [&folder, &other] {
            fs::create_dir(folder).expect("made");
            fs::write(folder.join("vtax-agent"), "").expect("written");
        }
        remove(&folder.join("vtax-agent")).expect("removed");
        assert!(!folder.exists() && tree.path().exists());
        let refused = remove(&other.join("vtax-agent")).expect_err("somebody's");
        assert!(matches!(refused, CarriedError::NotOurs { .. }) && other.join("vtax-agent").exists());
    }
}
