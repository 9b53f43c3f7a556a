//! Which process has a journal.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path};

/// The process that has a lock. The one that made a journal may have ended long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LockHolder {
    pub pid: u32,
    pub command: String,
}

impl LockHolder {
    /// As `/proc/locks` tells it. None if it doesn't, as for a process in another pid namespace.
    pub fn of(path: &Path) -> Option<LockHolder> {
        let about = fs::metadata(path).ok()?;
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let pid = locks.lines().find_map(|line| holder(line, about.dev(), about.ino()))?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        Some(LockHolder { pid, command: words.join(" ") })
    }
}

/// A line of proc_locks(5): `3: FLOCK  ADVISORY  WRITE 1862 fd:01:1443 0 EOF`.
fn holder(line: &str, device: u64, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let ["FLOCK", _, "WRITE", pid, file] = fields.get(1..6)? else { return None };
    // As makedev(3) packs them.
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    (*file == format!("{major:02x}:{minor:02x}:{inode}")).then(|| pid.parse().ok())?
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, `{}`", self.pid, self.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_of_a_file_and_a_process() {
        let line = "3: FLOCK  ADVISORY  WRITE 1862 fd:01:1443 0 EOF";
        let device = 0xfd << 8 | 1;
        assert_eq!(holder(line, device, 1443), Some(1862));
        assert_eq!((holder(line, device, 1444), holder(line, device + 1, 1443)), (None, None));
        for line in
            ["", "3: POSIX  ADVISORY  WRITE 1 fd:01:1443 0 EOF", "3: -> FLOCK  ADVISORY  WRITE 2 fd:01:1443 0 EOF"]
        {
            assert_eq!(holder(line, device, 1443), None, "{line}");
        }
    }

    #[test]
    fn this_process_holds_what_it_has_locked() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(LockHolder::of(file.path()), None);
        file.as_file().lock().expect("nobody else has it");
        let holder = LockHolder::of(file.path()).expect("this process");
        assert!(holder.pid == std::process::id() && !holder.command.is_empty(), "{holder}");
    }
}
