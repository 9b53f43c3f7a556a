//! Processes that vtax may end, and the limits of this process.
//!
//! A pid alone doesn't identify a process: the kernel reuses the number later. A journal that is replayed after a
//! reboot must not kill an unrelated process. So a process is identified by its pid *and* its start time.

mod pid;
mod thread;
mod time_offset;
mod within;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, WaitOptions};

use crate::error::{Result, SysError};

pub use pid::Pid;
pub use rustix::process::Signal;
pub use thread::ThreadId;
use time_offset::TimeOffset;
pub use within::named_within;

/// One process, for as long as the machine runs: its pid and its start time. Written as `PID@START`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// The number, which the kernel reuses after the process has exited.
    pub pid: Pid,
    /// Clock ticks from boot to the start of the process, as counted by the initial time namespace: field 22 of
    /// `/proc/PID/stat` (proc_pid_stat(5)) without the offset of the reader's namespace (time_namespaces(7)).
    pub start_ticks: u64,
}

impl ProcessId {
    /// Returns the process that currently has this pid.
    pub fn of(pid: Pid) -> Result<Self> {
        let (path, stat) = stat(pid)?;
        let shown =
            start_ticks(&stat).ok_or_else(|| SysError::malformed("read", &path, "no start time in field 22"))?;
        Ok(Self { pid, start_ticks: TimeOffset::own().without(shown) })
    }

    /// Returns whether it is still running, or is a zombie that its parent hasn't reaped.
    pub fn exists(self) -> bool {
        let is_same = |now: Self| now.start_ticks.abs_diff(self.start_ticks) <= TimeOffset::own().error_ticks();
        Self::of(self.pid).is_ok_and(is_same)
    }

    /// Returns true if a signal or a debugger has stopped it: state `T` or `t` in proc_pid_stat(5).
    pub fn is_stopped(self) -> bool {
        let state = |stat: Vec<u8>| matches!(stat_field(&stat, 3), Some("T" | "t"));
        self.exists() && stat(self.pid).is_ok_and(|(_, stat)| state(stat))
    }

    /// Sends a signal to this very process, never to another one with the same pid. Returns false if it no longer
    /// exists.
    pub fn signal(self, signal: Signal) -> Result<bool> {
        let Some(handle) = self.open()? else { return Ok(false) };
        match rustix::process::pidfd_send_signal(&handle, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(e) => Err(SysError::os("signal process", self.pid, e)),
        }
    }

    /// Waits until the process has ended; a zombie has ended. Returns false if the time runs out first. Works for any
    /// process, not only for children.
    pub fn wait_end(self, patience: Duration) -> Result<bool> {
        let Some(handle) = self.open()? else { return Ok(true) };
        let deadline = Instant::now() + patience;
        loop {
            match readable(&handle, deadline) {
                Ok(ended) => return Ok(ended),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(SysError::os("wait for process", self.pid, e)),
            }
        }
    }

    /// Returns the exit status if the process has exited and is an unreaped child of this process.
    pub fn ending(self) -> Option<ExitStatus> {
        let asked = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(self.known()?), asked).ok()??;
        let raw = status.exit_status().map(|code| code << 8).or(status.terminating_signal())?;
        Some(ExitStatus::from_raw(raw))
    }

    /// Reaps a child that has ended.
    pub fn reap(self) {
        if let Some(pid) = self.known() {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    fn known(self) -> Option<rustix::process::Pid> {
        self.raw().filter(|_| self.exists())
    }

    fn raw(self) -> Option<rustix::process::Pid> {
        i32::try_from(self.pid.0).ok().and_then(rustix::process::Pid::from_raw)
    }

    /// Returns a handle that stays with the process even if its pid is reused. The start time is compared *after*
    /// opening, so the check holds for the handle.
    fn open(self) -> Result<Option<OwnedFd>> {
        let Some(pid) = self.raw() else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Ok(self.exists().then_some(handle)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(e) => Err(SysError::os("open process", self.pid, e)),
        }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_ticks)
    }
}

impl FromStr for ProcessId {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (pid, start) = text.split_once('@')?;
            Some(Self { pid: Pid(pid.parse().ok()?), start_ticks: start.parse().ok()? })
        };
        parse().ok_or_else(|| SysError::invalid("process identity", text, "use PID@START, two numbers"))
    }
}

/// Raises this process's limit on open files to `wanted`, or as near to it as the hard limit allows. Never lowers the
/// limit. Returns the current limit.
pub fn raise_open_files(wanted: u64) -> Result<u64> {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let reachable = now.maximum.map_or(wanted, |hard| wanted.min(hard));
    match now.current {
        None => return Ok(u64::MAX),
        Some(current) if current >= reachable => return Ok(current),
        Some(_) => {}
    }
    let raised = Rlimit { current: Some(reachable), maximum: now.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .map_err(|e| SysError::os("raise the limit on open files to", reachable, e))?;
    Ok(reachable)
}

/// Returns the bytes that an unprivileged user may still write to the file system of `path`: the blocks that statvfs(3)
/// calls available, which exclude those reserved for root.
pub fn disk_free(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path).map_err(|e| SysError::os("read the free space of", path.display(), e))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Kills processes, and waits for each until it has ended or `patience` is over. All of them get the signal before the
/// first wait.
pub fn kill_all(processes: &[ProcessId], patience: Duration) -> Result<()> {
    processes.iter().try_for_each(|process| process.signal(Signal::KILL).map(drop))?;
    processes.iter().try_for_each(|process| process.wait_end(patience).map(drop))
}

/// Returns the pids of all processes.
pub fn all_pids() -> Result<Vec<Pid>> {
    let fail = |e: io::Error| SysError::os("list", "/proc", e);
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse().ok()).map(Pid));
    }
    Ok(pids)
}

/// Waits until a pidfd is readable, which it is once its process has ended (pidfd_open(2)). Returns false on a timeout.
fn readable(handle: &OwnedFd, deadline: Instant) -> rustix::io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(|_| rustix::io::Errno::INVAL)?;
    let mut fds = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    Ok(rustix::event::poll(&mut fds, Some(&timeout))? > 0)
}

/// Reads the file as bytes, because the program chooses its own name, which need not be UTF-8.
fn stat(pid: Pid) -> Result<(String, Vec<u8>)> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read(&path).map_err(|e| SysError::os("read", &path, e))?;
    Ok((path, stat))
}

fn start_ticks(stat: &[u8]) -> Option<u64> {
    stat_field(stat, 22)?.parse().ok()
}

/// Returns a field of proc_pid_stat(5) after the program's name. The name is field 2, is in parentheses, and may itself
/// contain spaces and parentheses.
pub(crate) fn stat_field(stat: &[u8], number: usize) -> Option<&str> {
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    std::str::from_utf8(&stat[behind_name..]).ok()?.split_ascii_whitespace().nth(number.checked_sub(3)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    const STAT: &str =
        "(sleep) S 1 4242 4242 0 -1 4194304 112 0 0 0 0 0 0 0 20 0 1 0 987654 3133440 195 18446744073709551615";

    #[test]
    fn the_start_time_is_field_22() {
        assert_eq!(start_ticks(format!("4242 {STAT}").as_bytes()), Some(987_654));
    }

    #[test]
    fn a_name_with_parentheses_and_bad_utf8_does_not_shift_fields() {
        let mut stat = b"4242 (a) S 1 (\xff".to_vec();
        stat.extend_from_slice(STAT.as_bytes());
        assert_eq!(start_ticks(&stat), Some(987_654));
    }

    #[test]
    fn a_killed_process_no_longer_exists() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(Pid(child.id())).unwrap();
        assert!(!id.wait_end(Duration::ZERO).unwrap());
        assert!(id.signal(Signal::KILL).unwrap());
        assert!(id.wait_end(Duration::from_secs(5)).unwrap());
        child.wait().unwrap();
        assert!(!id.exists());
        assert!(!id.signal(Signal::KILL).unwrap());
    }

    #[test]
    fn a_recycled_pid_is_not_signalled() {
        let own = ProcessId::of(Pid::own()).unwrap();
        let earlier = ProcessId { start_ticks: own.start_ticks - 1, ..own };
        // If this sent the signal, the test itself would die.
        assert!(!earlier.signal(Signal::KILL).unwrap());
        assert!(earlier.wait_end(Duration::ZERO).unwrap());
    }

    #[test]
    fn identity_survives_being_written_down() {
        let own = ProcessId::of(Pid::own()).unwrap();
        assert_eq!(own.to_string().parse::<ProcessId>().unwrap(), own);
        assert!("12".parse::<ProcessId>().is_err());
    }

    #[test]
    fn the_limit_on_files_is_never_lowered() {
        let before = raise_open_files(0).unwrap();
        // Other tests of this process raise the limit in the meantime.
        assert!(raise_open_files(1).unwrap() >= before);
        assert!(raise_open_files(before.saturating_add(1)).unwrap() >= before);
    }

    #[test]
    fn the_limit_on_files_can_be_raised_as_far_as_the_hard_one() {
        let limit = || rustix::process::getrlimit(Resource::Nofile);
        let hard = limit().maximum.expect("fs.nr_open bounds it");
        assert_eq!(raise_open_files(u64::MAX).unwrap(), hard);
        assert_eq!(limit().current, Some(hard));
    }

    #[test]
    fn free_space_of_a_missing_path_is_an_error_that_names_it() {
        assert!(disk_free(Path::new("/")).is_ok());
        let error = disk_free(Path::new("/no/such/place")).unwrap_err();
        assert!(error.to_string().contains("/no/such/place"));
    }

    proptest! {
        #[test]
        fn hostile_stat_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = start_ticks(&bytes);
        }
    }
}
