//! Log of a console: a file and an older one, of limited size.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

#[derive(Debug)]
pub(crate) struct ConsoleLog {
    path: PathBuf,
    file: File,
    size: u64,
    most: u64,
}

impl ConsoleLog {
    /// Opens the file for appending, and creates it if it doesn't exist. Only the user who runs the server can read it:
    /// a guest's output may be secret.
    pub(crate) fn open(path: &Path, most: u64) -> io::Result<ConsoleLog> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path)?;
        let size = file.metadata()?.len();
        Ok(ConsoleLog { path: path.to_owned(), file, size, most })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a guest's output. If the file has no room for it, that becomes the older log, and a new one begins.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let kept = &bytes[bytes.len().saturating_sub(usize::try_from(self.most).unwrap_or(usize::MAX))..];
        if self.size > 0 && self.size + kept.len() as u64 > self.most {
            fs::rename(&self.path, older(&self.path))?;
            *self = ConsoleLog::open(&self.path, self.most)?;
        }
        self.file.write_all(kept)?;
        self.size += kept.len() as u64;
        Ok(())
    }
}

fn older(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_and_the_older_one_have_a_bounded_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pluto.log");
        let mut log = ConsoleLog::open(&path, 100).expect("a log");
        for number in 0..50 {
            log.add(format!("line {number:02}\n").as_bytes()).expect("space");
        }
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        let both = read(&older(&path)) + &read(&path);
        assert!(both.len() <= 200 && both.len() > 100 && both.ends_with("line 49\n"), "{both}");
        log.add(&[b'x'; 1000]).expect("space");
        assert_eq!(read(&path), "x".repeat(100));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn a_log_goes_on_with_what_is_there_and_follows_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pluto.log");
        ConsoleLog::open(&path, 100).and_then(|mut log| log.add(b"one ")).expect("space");
        ConsoleLog::open(&path, 100).and_then(|mut log| log.add(b"two")).expect("space");
        assert_eq!(fs::read(&path).expect("a file"), b"one two");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(ConsoleLog::open(&link, 100).is_err());
    }
}
