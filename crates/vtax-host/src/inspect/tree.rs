//! Reading the small text files of `/proc` and `/sys`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use super::unusable::{UnusableFile, UnusableFiles};

/// Maximum size of a file. Those of sysfs have one page; a process's arguments may be longer.
const LONGEST: u64 = 4 << 20;
/// It has about 11 bytes per interrupt and CPU.
const LARGEST: (&str, u64) = ("proc/interrupts", 64 << 20);

/// The files of a machine below `proc` and `sys`.
#[derive(Debug, Clone)]
pub struct SystemRoot {
    files: Files,
    unusable: UnusableFiles,
}

#[derive(Debug, Clone)]
enum Files {
    /// Files in a directory.
    Below {
        root: PathBuf,
        /// Replaces the `sys` below it.
        sys: Option<PathBuf>,
    },
    /// Files of an invented machine, by path. Some can't be read.
    Invented(BTreeMap<String, Option<String>>),
}

impl SystemRoot {
    /// The root directory of the running machine.
    pub fn live() -> SystemRoot {
        SystemRoot::at(Path::new("/"))
    }

    /// Another directory, with files copied from a machine.
    pub fn at(root: &Path) -> SystemRoot {
        SystemRoot::of(Files::Below { root: root.to_owned(), sys: None })
    }

    /// The running machine, with another `/sys`: one that shows the links of another network namespace.
    pub fn live_with_sys(sys: &Path) -> SystemRoot {
        SystemRoot::of(Files::Below { root: PathBuf::from("/"), sys: Some(sys.to_owned()) })
    }

    /// A machine with these files, for a test. It has no links: `..` is the directory named by the path itself.
    pub fn invented<P: AsRef<str>, T: Into<String>>(files: impl IntoIterator<Item = (P, T)>) -> SystemRoot {
        let file = |(path, text): (P, T)| (plain(path.as_ref()), Some(text.into()));
        SystemRoot::of(Files::Invented(files.into_iter().map(file).collect()))
    }

    /// The same invented machine, plus an unreadable file.
    pub fn with_unreadable(mut self, path: &str) -> SystemRoot {
        if let Files::Invented(files) = &mut self.files {
            files.insert(plain(path), None);
        }
        self
    }

    fn of(files: Files) -> SystemRoot {
        SystemRoot { files, unusable: UnusableFiles::default() }
    }

    /// The unusable files found since the last call.
    pub(super) fn take_unusable(&self) -> Vec<UnusableFile> {
        self.unusable.take()
    }

    /// The file's text without surrounding white space; `None` if unreadable.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(self.whole(path)?.trim().to_owned())
    }

    /// The file's whole text; `None` if unreadable or longer than any file of the kernel.
    pub(crate) fn whole(&self, path: &str) -> Option<String> {
        let read = match &self.files {
            Files::Below { root, sys } => {
                let most = if path == LARGEST.0 { LARGEST.1 } else { LONGEST };
                read(&place(root, sys.as_deref(), path), most)
            }
            Files::Invented(files) => match files.get(&plain(path))? {
                Some(text) => Ok(text.clone()),
                None => Err(io::ErrorKind::PermissionDenied.into()),
            },
        };
        read.inspect_err(|error| self.unreadable(path, error)).ok()
    }

    /// Parses a file's contents.
    pub(crate) fn parsed<T: FromStr>(&self, path: &str) -> Option<T> {
        self.read_as(path, |text| text.parse().ok())
    }

    /// Parses a file's contents with `read`. The kernel writes -1 for a number that it doesn't know.
    pub(crate) fn read_as<T>(&self, path: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.text(path)?;
        let value = read(&text);
        if value.is_none() && text != "-1" {
            self.unusable.add_odd(path, &text);
        }
        value
    }

    /// Records a file with unexpected contents.
    pub(crate) fn odd(&self, path: &str, text: &str) {
        self.unusable.add_odd(path, text);
    }

    /// The number in the file.
    pub(crate) fn number(&self, path: &str) -> Option<u32> {
        self.parsed(path)
    }

    fn unreadable(&self, path: &str, error: &io::Error) {
        if !error.raw_os_error().is_some_and(|number| ABSENT.contains(&number)) {
            self.unusable.add(path, error.to_string());
        }
    }

    /// The names in a directory, sorted; empty if there is no such directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        match &self.files {
            Files::Below { root, sys } => {
                let opened = fs::read_dir(place(root, sys.as_deref(), path));
                let entries = opened.inspect_err(|error| self.unreadable(path, error)).into_iter().flatten().flatten();
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

/// Errors of the kernel for an object without such a value: no file (ENOENT, ENOTDIR), no process or device any more
/// (ESRCH, ENODEV, ENXIO), or a driver that doesn't report it (EINVAL, EOPNOTSUPP).
const ABSENT: [i32; 7] = [2, 20, 3, 19, 6, 22, 95];

fn read(path: &Path, most: u64) -> io::Result<String> {
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a text file"));
    }
    let mut text = Vec::new();
    let read = File::open(path)?.take(most + 1).read_to_end(&mut text)?;
    if read as u64 > most {
        return Err(io::Error::other(format!("it has more than {} MiB", most >> 20)));
    }
    Ok(String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The path with `..` resolved.
fn plain(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            ".." => drop(names.pop()),
            "" => {}
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_files_behave_like_those_of_a_directory() {
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
