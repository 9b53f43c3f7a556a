//! Waiting for a lock on a file (flock(2)) or on bytes of one (fcntl(2)), and the process that holds it.
//!
//! A longer wait is reported with the holder: a suspended process holds its locks for hours.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::process::{Pid, ProcessId};

/// Waits below this are not reported.
const MOMENT: Duration = Duration::from_secs(1);
/// Interval between attempts to take a lock during that time.
const PAUSE: Duration = Duration::from_millis(5);

/// Callback that reports a wait. Libraries print nothing, so the program provides it.
static TELL: OnceLock<fn(&LockWait)> = OnceLock::new();

/// Sets the callback for a process that has waited for a lock for a second. Only the first call counts.
pub fn tell_waits(tell: fn(&LockWait)) {
    let _ = TELL.set(tell);
}

/// Locks a file for this process alone. Waits as long as another process holds the lock.
///
/// # Errors
/// The errors of flock(2).
pub fn wait(file: &File, path: &Path) -> io::Result<()> {
    let mut patience = LockPatience::new();
    while !patience.is_told {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => patience.pause(path, || LockHolder::of(path)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    file.lock()
}

/// Returns whether another open file has a lock on this byte of a file, as fcntl(2) sets it (`F_SETLK`, `F_OFD_SETLK`).
///
/// # Errors
/// The errors of fcntl(2).
pub fn is_byte_locked(file: &File, byte: u64) -> io::Result<bool> {
    // SAFETY: flock is plain data, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte.try_into().map_err(io::Error::other)?;
    lock.l_len = 1;
    // SAFETY: the descriptor is open as long as `file` is, and `lock` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(i32::from(lock.l_type) != libc::F_UNLCK),
    }
}

/// Repeated attempts to take a lock, reported once.
#[derive(Debug, Clone, Copy)]
pub struct LockPatience {
    begun: Instant,
    is_told: bool,
}

impl LockPatience {
    /// Starts a wait.
    #[expect(clippy::new_without_default, reason = "a wait begins at a moment")]
    pub fn new() -> LockPatience {
        LockPatience { begun: Instant::now(), is_told: false }
    }

    /// Returns how long it has been waiting.
    pub fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits a moment before the next attempt. After a second it reports the wait, with the `holder` of the lock.
    pub fn pause(&mut self, path: &Path, holder: impl FnOnce() -> Option<LockHolder>) {
        if !self.is_told && self.waited() >= MOMENT {
            self.is_told = true;
            if let Some(tell) = TELL.get() {
                tell(&LockWait { path: path.to_owned(), holder: holder() });
            }
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// A wait for a lock, which displays as a line for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    /// The locked file.
    pub path: PathBuf,
    /// None if the kernel names no existing process: the holder is in another pid namespace, or was started by a
    /// process that took the lock and has ended.
    pub holder: Option<LockHolder>,
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.holder {
            Some(holder) => {
                let runs =
                    holder.running_for().map_or(String::new(), |runs| format!(", running for {} s", runs.as_secs()));
                let state = if holder.is_suspended() { ", suspended" } else { "" };
                write!(f, "waiting for {path}, which is locked by {holder}{runs}{state}")
            }
            None => write!(f, "waiting for {path}, which is locked; `fuser {path}` names the process that has it open"),
        }
    }
}

/// The process that holds a lock. The process that created the file may have ended long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: u32,
    pub command: String,
}

impl LockHolder {
    /// Returns the holder according to `/proc/locks`. None if it isn't listed there, e.g. a process in another pid
    /// namespace.
    pub fn of(path: &Path) -> Option<LockHolder> {
        LockHolder::found(path, |lock| lock.kind == "FLOCK" && lock.is_exclusive)
    }

    /// Returns another process that has locked some of these bytes of a file (`F_SETLK` of fcntl(2)), preferably one
    /// with an exclusive lock.
    pub fn of_bytes(path: &Path, bytes: &RangeInclusive<u64>) -> Option<LockHolder> {
        let others = |lock: &KernelLock<'_>| lock.kind == "POSIX" && lock.pid != std::process::id() && lock.has(bytes);
        LockHolder::found(path, |lock| lock.is_exclusive && others(lock)).or_else(|| LockHolder::found(path, others))
    }

    fn found(path: &Path, is_wanted: impl Fn(&KernelLock<'_>) -> bool) -> Option<LockHolder> {
        let about = fs::metadata(path).ok()?;
        let (file, locks) = (KernelLock::name_of(about.dev(), about.ino()), fs::read_to_string("/proc/locks").ok()?);
        let mut of_file = locks.lines().filter_map(KernelLock::parse).filter(|lock| lock.file == file);
        let pid = of_file.find(is_wanted)?.pid;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        // A process may have any name; one with a line break would look like a line of vtax's output.
        let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
        let words = words.map(|word| String::from_utf8_lossy(word).chars().map(visible).collect::<String>());
        Some(LockHolder { pid, command: words.collect::<Vec<_>>().join(" ") })
    }

    /// Returns how long the process has been running.
    fn running_for(&self) -> Option<Duration> {
        let started =
            ProcessId::of(Pid(self.pid)).ok()?.start_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let now = Duration::from_nanos(clock::boottime_ns()).as_secs_f64();
        Duration::try_from_secs_f64(now - started).ok()
    }

    /// Returns whether a signal has stopped the process (state `T` of proc_pid_stat(5)).
    fn is_suspended(&self) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let after_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
        after_name.trim_ascii_start().first() == Some(&b'T')
    }
}

/// A held lock, as in proc_locks(5).
struct KernelLock<'a> {
    kind: &'a str,
    is_exclusive: bool,
    pid: u32,
    file: &'a str,
    first: u64,
    last: u64,
}

impl KernelLock<'_> {
    /// Parses a line: `3: FLOCK  ADVISORY  WRITE 1862 fd:01:1443 0 EOF`.
    fn parse(line: &str) -> Option<KernelLock<'_>> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [kind, _, access, pid, file, first, last] = *fields.get(1..8)? else { return None };
        let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
        let (pid, first) = (pid.parse().ok()?, first.parse().ok()?);
        Some(KernelLock { kind, is_exclusive: access == "WRITE", pid, file, first, last })
    }

    /// Returns the name of a file there: its device, packed like in makedev(3), and its inode.
    fn name_of(device: u64, inode: u64) -> String {
        let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
        let minor = (device & 0xff) | (device >> 12 & !0xff);
        format!("{major:02x}:{minor:02x}:{inode}")
    }

    fn has(&self, bytes: &RangeInclusive<u64>) -> bool {
        self.first <= *bytes.end() && *bytes.start() <= self.last
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, `{}`", self.pid, self.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_locked_byte_is_seen_through_another_open_file() {
        let path = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(path.path()).expect("a file");
        let (holder, other) = (open(), open());
        // SAFETY: flock is plain data, for which zeros are valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_start, lock.l_len) = (libc::F_RDLCK as libc::c_short, 100, 1);
        // SAFETY: the descriptor is open, and `lock` outlives the call.
        let status = unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        assert_eq!(status, 0, "nobody has it");
        let is_locked = |byte| is_byte_locked(&other, byte).expect("any file has such locks");
        assert_eq!([99, 100, 101].map(is_locked), [false, true, false]);
        assert!(!is_byte_locked(&holder, 100).expect("it is open"), "it is its own lock");
        drop(holder);
        assert!(!is_locked(100));
    }

    #[test]
    fn a_lock_is_of_a_file_and_a_process() {
        let lock = KernelLock::parse("3: FLOCK  ADVISORY  WRITE 1862 fd:01:1443 0 EOF").expect("a lock");
        assert_eq!((lock.kind, lock.is_exclusive, lock.pid), ("FLOCK", true, 1862));
        let device = 0xfd << 8 | 1;
        assert_eq!(lock.file, KernelLock::name_of(device, 1443));
        assert_ne!(lock.file, KernelLock::name_of(device, 1444));
        assert_ne!(lock.file, KernelLock::name_of(device + 1, 1443));
        let of_bytes = KernelLock::parse("3: POSIX  ADVISORY  READ 1 fd:01:1443 123 124").expect("a lock");
        assert!(of_bytes.kind == "POSIX" && !of_bytes.is_exclusive);
        assert_eq!(
            [120..=122, 120..=123, 124..=127, 125..=127].map(|bytes| of_bytes.has(&bytes)),
            [false, true, true, false]
        );
        for line in
            ["", "3: -> FLOCK  ADVISORY  WRITE 2 fd:01:1443 0 EOF", "3: OFDLCK ADVISORY  WRITE -1 fd:01:1 0 EOF"]
        {
            assert!(KernelLock::parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn this_process_is_the_holder_of_its_locks() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(LockHolder::of(file.path()), None);
        file.as_file().lock().expect("nobody else has it");
        let holder = LockHolder::of(file.path()).expect("this process");
        assert!(holder.pid == std::process::id() && !holder.command.is_empty(), "{holder}");
    }

    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_waiter_is_informed_once_about_the_holder() {
        tell_waits(|wait| TOLD.lock().expect("nobody panics with it").push(wait.to_string()));
        let held = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::open(held.path()).expect("it is there");
        wait(&open(), held.path()).expect("nobody has it");
        let told = || TOLD.lock().expect("nobody panics with it").clone();
        assert_eq!(told(), [""; 0], "nobody had to wait");
        held.as_file().lock().expect("the one before has let go");
        let path = held.path().to_owned();
        let other = open();
        let waiting = thread::spawn(move || wait(&other, &path));
        while told().is_empty() {
            thread::sleep(PAUSE);
        }
        assert!(!waiting.is_finished());
        held.as_file().unlock().expect("it is ours");
        waiting.join().expect("no panic").expect("it is free");
        let own = format!("locked by pid {}, `", std::process::id());
        assert!(told().len() == 1 && told()[0].contains(&own) && told()[0].contains("running for "), "{:?}", told());
    }
}
