//! The initial inputs of a target.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The workspace directory.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Initial inputs of a target.
pub(crate) struct Corpus {
    pub(crate) name: String,
    /// Seeds from the test itself.
    pub(crate) seeds: Vec<Vec<u8>>,
}

impl Corpus {
    pub(crate) fn of(name: &str, seeds: Vec<Vec<u8>>) -> Corpus {
        Corpus { name: name.to_owned(), seeds }
    }

    /// Returns the directory in the repository.
    pub(crate) fn folder(&self) -> PathBuf {
        Path::new(ROOT).join("tests/corpus").join(&self.name)
    }

    /// Returns a directory for inputs that are not in the repository.
    pub(crate) fn scratch(&self, what: &str) -> PathBuf {
        let folder = Path::new(ROOT).join("target/fuzz").join(what).join(&self.name);
        fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        folder
    }

    /// Returns the contents of the corpus files, in the order of their names. A target may have none.
    #[cfg(not(fuzzing))]
    pub(crate) fn files(&self) -> Vec<Vec<u8>> {
        let Ok(entries) = fs::read_dir(self.folder()) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let read = |path: PathBuf| fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        paths.into_iter().map(read).collect()
    }
}
