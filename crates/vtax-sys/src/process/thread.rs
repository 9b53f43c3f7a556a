//! One thread of a process.

use std::fmt;
use std::fs;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::{Pid, ProcessId, start_ticks};
use crate::error::{Result, SysError};

/// One thread, for as long as the machine runs: its process, its number and its start time. Written as
/// `PID@START/TID@START`. The kernel also reuses thread numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct ThreadId {
    /// Process of the thread, by pid and start time.
    pub process: ProcessId,
    /// Number in `/proc/PID/task`.
    pub tid: Pid,
    /// Clock ticks from boot to the start of the thread, as in [`ProcessId`].
    pub start_ticks: u64,
}

impl ThreadId {
    /// Returns the thread of a process that currently has this number. None if one of the two no longer exists.
    pub fn of(process: ProcessId, tid: Pid) -> Result<Option<Self>> {
        let path = format!("/proc/{}/task/{tid}/stat", process.pid);
        let stat = match fs::read(&path) {
            Err(e) if is_gone(&e) => return Ok(None),
            stat => stat.map_err(|e| SysError::os("read", &path, e))?,
        };
        let start_ticks =
            start_ticks(&stat).ok_or_else(|| SysError::malformed("read", &path, "no start time in field 22"))?;
        // The process is compared afterwards, so the data read belongs to this process.
        Ok(process.exists().then_some(Self { process, tid, start_ticks }))
    }

    /// Returns whether it is still running.
    pub fn exists(self) -> bool {
        Self::of(self.process, self.tid).is_ok_and(|now| now == Some(self))
    }
}

/// Recognizes a missing thread. One that ends while its file is read gives `ESRCH`.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.process, self.tid, self.start_ticks)
    }
}

impl FromStr for ThreadId {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (process, thread) = text.split_once('/')?;
            let ProcessId { pid: tid, start_ticks } = thread.parse().ok()?;
            Some(Self { process: process.parse().ok()?, tid, start_ticks })
        };
        parse().ok_or_else(|| SysError::invalid("thread identity", text, "use PID@START/TID@START, four numbers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_start_too() {
        let own = ProcessId::of(Pid::own()).unwrap();
        let main = ThreadId::of(own, own.pid).unwrap().unwrap();
        assert!(main.exists());
        assert_eq!(main.start_ticks, own.start_ticks);
        assert_eq!(main.to_string().parse::<ThreadId>().unwrap(), main);
        assert!(!ThreadId { start_ticks: main.start_ticks + 1, ..main }.exists());
        let recycled = ProcessId { start_ticks: own.start_ticks + 1, ..own };
        assert!(!ThreadId { process: recycled, ..main }.exists());
        assert_eq!(ThreadId::of(own, Pid(u32::MAX)).unwrap(), None);
        assert!("1@2".parse::<ThreadId>().is_err());
    }
}
