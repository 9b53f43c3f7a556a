//! The log of a console: the last that its domain has printed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A file is no longer than this; then it becomes the older one, and the older one goes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// The log of a console.
#[derive(Debug)]
pub(crate) struct ConsoleLog {
    path: PathBuf,
    file: Option<File>,
    length: u64,
}

impl ConsoleLog {
    pub(crate) fn new(path: &Path) -> ConsoleLog {
        ConsoleLog { path: path.to_owned(), file: None, length: 0 }
    }

    /// Appends bytes. If the disk is full, the console goes on without a log.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.append(bytes).is_err() {
            self.file = None;
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length + bytes.len() as u64 > LONGEST {
            self.file = None;
            fs::rename(&self.path, self.older())?;
        }
        if self.file.is_none() {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
            self.length = file.metadata()?.len();
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_all(bytes)?;
            self.length += bytes.len() as u64;
        }
        Ok(())
    }

    fn older(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        PathBuf::from(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_one_older_file_and_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mars.log");
        let mut log = ConsoleLog::new(&path);
        for _ in 0..40 {
            log.write(&[b'x'; 100 << 10]);
        }
        let files: Vec<u64> = fs::read_dir(folder.path())
            .expect("ours")
            .map(|entry| entry.expect("ours").metadata().expect("ours").len())
            .collect();
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|length| *length <= LONGEST && *length > 0), "{files:?}");
    }
}
