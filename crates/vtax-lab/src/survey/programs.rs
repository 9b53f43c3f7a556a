//! Programs that methods of zones require.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use crate::facts::Facts;

/// Directories of programs for root, which `PATH` of an unprivileged user lacks.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Returns the installed ones, each with its path.
pub(super) fn found() -> BTreeMap<String, PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).chain(OF_ROOT.map(PathBuf::from)).collect();
    let find = |(name, _): (&str, _)| Some((name.to_owned(), find(name, &folders)?));
    Facts::PROGRAMS.into_iter().filter_map(find).collect()
}

fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path: &PathBuf| Path::is_file(path))
}
