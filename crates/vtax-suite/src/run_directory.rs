//! The run-time directory for labs of tests that have none of their own.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
};

use serde::Deserialize;

use super::error::SuiteError;

/// Parent of each suite's directory, next to that of the user's labs.
const ALL: &str = "/run/vtax-suite";
/// Variable that passes the directory to vtax.
const VARIABLE: &str = "VTAX_RUN";

/// The directory of one suite. A lock on it distinguishes a running suite from a killed one.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    _lives: File,
}

impl RunDirectory {
    /// Removes leftovers of killed suites and creates a directory for this one. Returns `None` without privileges;
    /// tests that need a directory then fail.
    pub(crate) fn make() -> Result<Option<RunDirectory>, SuiteError> {
        let all = Path::new(ALL);
        match fs::create_dir_all(all) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            made => made.map_err(SuiteError::file("create", all))?,
        }
        // This lock prevents other suites from creating a directory while this one searches for abandoned ones.
        let admission = File::open(all).and_then(|all| all.lock().map(|()| all));
        let _admission = admission.map_err(SuiteError::file("lock", all))?;
        for entry in fs::read_dir(all).map_err(SuiteError::file("read", all))?.flatten() {
            remove_abandoned(&entry.path());
        }
        let path = all.join(process::id().to_string());
        fs::create_dir_all(&path).map_err(SuiteError::file("create", &path))?;
        let lives = File::open(&path).and_then(|lives| lives.try_lock().map(|()| lives).map_err(Into::into));
        Ok(Some(RunDirectory { _lives: lives.map_err(SuiteError::file("lock", &path))?, path }))
    }

    /// Returns the variable that passes the directory to a job.
    pub(crate) fn variable(&self) -> (String, OsString) {
        (VARIABLE.into(), self.path.clone().into())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove_abandoned(path: &Path) {
    let Ok(lives) = File::open(path) else { return };
    if lives.try_lock().is_ok() {
        println!("removing leftovers of a killed suite in {}", path.display());
        remove(path);
    }
}

/// Takes down the labs in the directory. Leftovers that cannot be removed are reported but fail no test, because each
/// suite has a separate directory.
fn remove(path: &Path) {
    #[derive(Deserialize)]
    struct Held {
        name: String,
    }
    vtax(path, &["lab", "clean"]);
    let list = vtax(path, &["lab", "list", "--json"]).map(|output| output.stdout).unwrap_or_default();
    for held in serde_json::from_slice::<Vec<Held>>(&list).unwrap_or_default() {
        vtax(path, &["lab", "down", &held.name]);
    }
    if let Err(error) = fs::remove_dir_all(path) {
        println!("cannot remove {}: {error}", path.display());
    }
}

/// Runs the vtax that was built next to this program.
fn vtax(directory: &Path, arguments: &[&str]) -> Option<Output> {
    let program = env::current_exe().ok()?.with_file_name("vtax");
    Command::new(program).args(arguments).env(VARIABLE, directory).stdin(Stdio::null()).output().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_abandoned_suite_has_left_is_removed() {
        let base = env::temp_dir().join(format!("vtax-suite-test-{}", process::id()));
        let [living, killed] = ["living", "killed"].map(|name| base.join(name));
        [&living, &killed].into_iter().for_each(|path| fs::create_dir_all(path).expect("a directory"));
        let lives = File::open(&living).expect("just made");
        lives.lock().expect("nobody else knows it");
        [&living, &killed].into_iter().for_each(|path| remove_abandoned(path));
        assert!(living.exists() && !killed.exists());
        fs::remove_dir_all(&base).expect("ours");
    }
}
