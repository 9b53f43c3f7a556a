//! Reading the small text files of `/proc` and `/sys`.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

/// Bytes of the longest file. The largest is `/proc/interrupts`, with some 11 bytes for each interrupt on each CPU.
const LONGEST: u64 = 16 << 20;

/// The directory that contains `proc` and `sys`.
#[derive(Debug, Clone)]
pub struct SystemRoot {
    root: PathBuf,
    /// In place of the `sys` below it.
    sys: Option<PathBuf>,
}

impl SystemRoot {
    /// The root directory of the running machine.
    pub fn live() -> SystemRoot {
        SystemRoot::at(Path::new("/"))
    }

    /// Another directory, for a test or for the copied files of a machine.
    pub fn at(root: &Path) -> SystemRoot {
        SystemRoot { root: root.to_owned(), sys: None }
    }

    /// The running machine, with another `/sys`: one that shows the links of another network namespace.
    pub fn live_with_sys(sys: &Path) -> SystemRoot {
        SystemRoot { sys: Some(sys.to_owned()), ..SystemRoot::live() }
    }

    fn path(&self, path: &str) -> PathBuf {
        match (&self.sys, path.strip_prefix("sys/")) {
            (Some(sys), Some(below)) => sys.join(below),
            _ => self.root.join(path),
        }
    }

    /// The file's text without white space at its ends; none if it can't be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(self.whole(path)?.trim().to_owned())
    }

    /// All of the file's text; none if it can't be read, or is longer than a file of the kernel's can be.
    pub(crate) fn whole(&self, path: &str) -> Option<String> {
        let mut text = Vec::new();
        let read = File::open(self.path(path)).ok()?.take(LONGEST + 1).read_to_end(&mut text).ok()?;
        (read as u64 <= LONGEST).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// The number in the file.
    pub(crate) fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted; empty if there is no such directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A machine with these files. They are deleted with the directory.
    #[cfg(test)]
    pub(crate) fn invented<P: AsRef<str>, T: AsRef<str>>(files: &[(P, T)]) -> (tempfile::TempDir, SystemRoot) {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path.as_ref());
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder of the test");
            fs::write(path, text.as_ref()).expect("a file of the test");
        }
        let tree = SystemRoot::at(root.path());
        (root, tree)
    }
}
