//! The directory in which a user's programs keep their persistent state.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Returns the directory named by the caller or by `VTAX_STATE`. None if neither names one.
pub fn named(by_caller: Option<&Path>) -> Option<PathBuf> {
    by_caller.map(Path::to_owned).or_else(|| variable("VTAX_STATE").map(PathBuf::from))
}

/// Returns vtax's directory: the named one, otherwise the one of the XDG Base Directory Specification. None if no
/// directory is named and the user has no home directory.
pub fn folder(by_caller: Option<&Path>) -> Option<PathBuf> {
    // The specification says that relative paths must be ignored.
    let base = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let xdg = || base("XDG_STATE_HOME").map(|base| base.join("vtax"));
    let home = || base("HOME").map(|home| home.join(".local/state/vtax"));
    named(by_caller).or_else(xdg).or_else(home)
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
