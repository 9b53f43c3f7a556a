//! Reading the small text files of `/proc` and `/sys`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

/// Bytes of the longest file. The largest is `/proc/interrupts`, with some 11 bytes for each interrupt on each CPU.
const LONGEST: u64 = 16 << 20;

/// The files of a machine below `proc` and `sys`.
#[derive(Debug, Clone)]
pub struct SystemRoot(Files);

#[derive(Debug, Clone)]
enum Files {
    /// Those in a directory.
    Below {
        root: PathBuf,
        /// In place of the `sys` below it.
        sys: Option<PathBuf>,
    },
    /// Those of a machine that isn't there, by their paths.
    Invented(BTreeMap<String, String>),
}

impl SystemRoot {
    /// The root directory of the running machine.
    pub fn live() -> SystemRoot {
        SystemRoot::at(Path::new("/"))
    }

    /// Another directory, with the copied files of a machine.
    pub fn at(root: &Path) -> SystemRoot {
        SystemRoot(Files::Below { root: root.to_owned(), sys: None })
    }

    /// The running machine, with another `/sys`: one that shows the links of another network namespace.
    pub fn live_with_sys(sys: &Path) -> SystemRoot {
        SystemRoot(Files::Below { root: PathBuf::from("/"), sys: Some(sys.to_owned()) })
    }

    /// A machine with these files, for a test. It has no links: `..` is the folder that a path itself names.
    pub fn invented<P: AsRef<str>, T: Into<String>>(files: impl IntoIterator<Item = (P, T)>) -> SystemRoot {
        let file = |(path, text): (P, T)| (plain(path.as_ref()), text.into());
        SystemRoot(Files::Invented(files.into_iter().map(file).collect()))
    }

    /// The file's text without white space at its ends; none if it can't be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(self.whole(path)?.trim().to_owned())
    }

    /// All of the file's text; none if it can't be read, or is longer than a file of the kernel's can be.
    pub(crate) fn whole(&self, path: &str) -> Option<String> {
        match &self.0 {
            Files::Below { root, sys } => read(&place(root, sys.as_deref(), path)),
            Files::Invented(files) => files.get(&plain(path)).cloned(),
        }
    }

    /// The number in the file.
    pub(crate) fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted; empty if there is no such directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        match &self.0 {
            Files::Below { root, sys } => {
                let entries = fs::read_dir(place(root, sys.as_deref(), path)).into_iter().flatten().flatten();
                let mut names: Vec<String> =
                    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort();
                names
            }
            Files::Invented(files) => {
                let folder = plain(path) + "/";
                let below = files.range(folder.clone()..).map_while(|(path, _)| path.strip_prefix(folder.as_str()));
                let names: BTreeSet<&str> = below.filter_map(|path| path.split('/').next()).collect();
                names.into_iter().map(str::to_owned).collect()
            }
        }
    }
}

fn place(root: &Path, sys: Option<&Path>, path: &str) -> PathBuf {
    match (sys, path.strip_prefix("sys/")) {
        (Some(sys), Some(below)) => sys.join(below),
        _ => root.join(path),
    }
}

fn read(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    let read = File::open(path).ok()?.take(LONGEST + 1).read_to_end(&mut text).ok()?;
    (read as u64 <= LONGEST).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// The path without `..`.
fn plain(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_files_are_found_as_those_of_a_directory() {
        let files = [("sys/a/b/c", "1\n"), ("sys/a/b-d/e", "2"), ("sys/a/f", " 3 ")];
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        for tree in [SystemRoot::at(folder.path()), SystemRoot::invented(files)] {
            assert_eq!(tree.names("sys/a"), ["b", "b-d", "f"]);
            assert_eq!(
                (tree.names("sys/a/b"), tree.names("sys/x"), tree.names("sys/a/f")),
                (vec!["c".into()], vec![], vec![])
            );
            assert_eq!((tree.text("sys/a/b/c").as_deref(), tree.number("sys/a/f")), (Some("1"), Some(3)));
            assert_eq!((tree.text("sys/a/b/../f").as_deref(), tree.text("sys/a/b")), (Some("3"), None));
        }
    }
}
