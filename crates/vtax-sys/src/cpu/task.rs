//! CPU time of a thread of any process, from `/proc`, which everyone with the permission may read.
//!
//! A thread's own clock is finer, but the kernel lets only its own process read it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::machine::duration;
use crate::error::{Result, SysError};
use crate::process::stat_field;

const KVM: &str = "/sys/kernel/debug/kvm";

/// CPU time of a thread since it began, or over a span after [`TaskTimes::since`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskTimes {
    /// Time in its program, and in a guest that it runs: the kernel also counts [`TaskTimes::guest`] here
    /// (`account_guest_time`). In ticks of usually 10 ms.
    pub user: Duration,
    /// Time in the kernel on its behalf, in the same ticks.
    pub system: Duration,
    /// Time in which it ran a guest's instructions through KVM, in the same ticks. 0 for a thread that emulates a CPU
    /// itself.
    pub guest: Duration,
    /// Time on a CPU in nanoseconds, from the scheduler's account. For a running thread, it may lag by up to a tick.
    /// None if the kernel keeps no such account.
    pub run: Option<Duration>,
}

impl TaskTimes {
    /// Returns the time used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            guest: self.guest.saturating_sub(earlier.guest),
            run: self.run.zip(earlier.run).map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Returns the whole time: from the scheduler's account if there is one, otherwise in ticks.
    pub fn busy(self) -> Duration {
        self.run.unwrap_or(self.user.saturating_add(self.system))
    }
}

/// Returns the CPU time of one thread of any process, by the thread's number in `/proc`.
pub fn task_times(tid: u32) -> Result<TaskTimes> {
    // A thread's own figures are in its directory below `task`. The directory above has those of its process.
    let folder = format!("/proc/{tid}/task/{tid}");
    let times = stat_times(&folder)?;
    let run = fs::read_to_string(format!("{folder}/schedstat")).ok().and_then(|text| run(&text));
    Ok(TaskTimes { run, ..times })
}

/// Returns the CPU time of the threads that a process has now, as exactly as the kernel reports it. A difference of two
/// readings excludes threads that have ended in between.
pub fn process_time(pid: u32) -> Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&folder).map_err(|e| SysError::os("list", &folder, e))?;
    let threads = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A thread may end before it is read.
    Ok(threads.filter_map(|tid| Some(task_times(tid).ok()?.busy())).sum())
}

fn stat_times(folder: &str) -> Result<TaskTimes> {
    let path = format!("{folder}/stat");
    // Read as bytes, because the program chooses its own name, which need not be UTF-8.
    let stat = fs::read(&path).map_err(|e| SysError::os("read", &path, e))?;
    let hertz = rustix::param::clock_ticks_per_second();
    parse(&stat, hertz).ok_or_else(|| SysError::malformed("read", &path, "no times in fields 14 and 15"))
}

/// Returns how often the guests of the process with this pid have exited to the host since they were created. KVM
/// counts this in debugfs, in one directory `PID-FD` for each guest. None if there are no such counters or they cannot
/// be read.
pub fn kvm_exits(pid: u32) -> Option<u64> {
    exits_below(Path::new(KVM), pid)
}

fn exits_below(kvm: &Path, pid: u32) -> Option<u64> {
    let prefix = format!("{pid}-");
    let entries = fs::read_dir(kvm).ok()?.flatten();
    let own = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)));
    let counts =
        own.filter_map(|entry| fs::read_to_string(entry.path().join("exits")).ok()?.trim().parse::<u64>().ok());
    counts.reduce(u64::saturating_add)
}

/// Parses a line of proc_pid_stat(5). `guest_time` is field 43, since Linux 2.6.24.
pub(super) fn parse(stat: &[u8], ticks_per_second: u64) -> Option<TaskTimes> {
    if ticks_per_second == 0 {
        return None;
    }
    let time = |field: &str| Some(duration(field.parse().ok()?, ticks_per_second));
    let guest = stat_field(stat, 43).map_or(Some(Duration::ZERO), time)?;
    Some(TaskTimes { user: time(stat_field(stat, 14)?)?, system: time(stat_field(stat, 15)?)?, guest, run: None })
}

/// Parses the time on a CPU, the first of the three figures (`proc_pid_schedstat`). The third is how often the thread
/// got a CPU. A kernel that keeps no such account writes zeros for all.
pub(super) fn run(schedstat: &str) -> Option<Duration> {
    let mut figures = schedstat.split_ascii_whitespace().map(|figure| figure.parse::<u64>().ok());
    let (run, _, slices) = (figures.next()??, figures.next()??, figures.next()??);
    (run > 0 || slices > 0).then(|| Duration::from_nanos(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hint::black_box;
    use std::time::Instant;

    fn line(name: &[u8], user: u64, system: u64, guest: u64) -> Vec<u8> {
        let before = "S 1 100 100 0 -1 4194560 900 0 0 0";
        let between = "0 0 20 0 5 0 12345 1000 200 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0";
        let mut line = b"103 (".to_vec();
        line.extend(name);
        line.extend(format!(") {before} {user} {system} {between} {guest} 0 0 0 0 0 0 0 0 0\n").bytes());
        line
    }

    #[test]
    fn the_fields_are_those_of_the_manual() {
        let times = parse(&line(b"CPU 0/KVM", 700, 50, 600), 100).unwrap();
        assert_eq!((times.user, times.system), (Duration::from_secs(7), Duration::from_millis(500)));
        assert_eq!(times.guest, Duration::from_secs(6));
        assert_eq!(times.busy(), Duration::from_millis(7_500), "the guest's time is in the user's");
    }

    #[test]
    fn a_kernel_without_guests_has_no_time_of_theirs() {
        let old = "7 (init) S 0 0 0 0 -1 4194560 900 0 0 0 3 4 0 0 20 0 1 0 12 1000 200";
        let times = parse(old.as_bytes(), 100).unwrap();
        assert_eq!((times.user, times.guest), (Duration::from_millis(30), Duration::ZERO));
    }

    #[test]
    fn the_schedulers_account_goes_before_ticks() {
        assert_eq!(run("1500000 20 3\n"), Some(Duration::from_micros(1500)));
        assert_eq!(run("0 0 0\n"), None, "no account is kept");
        assert_eq!(run("0 0 1\n"), Some(Duration::ZERO), "it has only just begun");
        assert_eq!(run("12\n"), None);
        let at = |run| TaskTimes { user: Duration::from_millis(10), run, ..TaskTimes::default() };
        let span = at(Some(Duration::from_millis(14))).since(at(Some(Duration::from_millis(9))));
        assert_eq!(span.busy(), Duration::from_millis(5));
        assert_eq!(at(None).busy(), Duration::from_millis(10));
    }

    #[test]
    fn exits_are_of_the_guests_of_one_process() {
        let kvm = tempfile::tempdir().unwrap();
        for (guest, exits) in [("100-11", "40\n"), ("100-12", "2\n"), ("1001-11", "7\n"), ("100-13", "")] {
            fs::create_dir_all(kvm.path().join(guest)).unwrap();
            fs::write(kvm.path().join(guest).join("exits"), exits).unwrap();
        }
        let found = [100, 1001, 10].map(|pid| exits_below(kvm.path(), pid));
        assert_eq!(found, [Some(42), Some(7), None]);
        assert_eq!(exits_below(&kvm.path().join("none"), 100), None);
    }

    #[test]
    fn the_time_of_one_thread_excludes_others() {
        let busy = std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let end = Instant::now() + Duration::from_millis(120);
            while Instant::now() < end {
                black_box(0);
            }
            // The account of a running thread lags by up to a tick, so wait until the kernel updates it.
            std::thread::sleep(Duration::from_millis(1));
            task_times(tid).unwrap().busy()
        });
        let used = busy.join().unwrap();
        assert!(used > Duration::from_millis(2) && used < Duration::from_secs(5), "{used:?}");
        assert!(task_times(u32::MAX).is_err());
    }

    #[test]
    fn a_process_is_charged_for_all_its_threads() {
        let before = process_time(std::process::id()).unwrap();
        let work = || {
            let end = Instant::now() + Duration::from_millis(100);
            while Instant::now() < end {
                black_box(0);
            }
            // The account of a running thread lags by up to a tick, so wait until the kernel updates it.
            std::thread::sleep(Duration::from_millis(1));
            let read = process_time(std::process::id()).unwrap();
            (read, crate::cpu::thread_times().total)
        };
        let (after, used) = std::thread::spawn(work).join().unwrap();
        assert!(
            after.saturating_sub(before) + Duration::from_millis(1) >= used,
            "{before:?} to {after:?} for {used:?}"
        );
        assert!(process_time(u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn any_name_is_skipped(
            name in proptest::collection::vec(any::<u8>(), 0..16),
            user in 0..u64::MAX / 100, system in 0..u64::MAX / 100, guest in 0..u64::MAX / 100,
        ) {
            let plain = parse(&line(b"x", user, system, guest), 100);
            prop_assert!(plain.is_some());
            prop_assert_eq!(parse(&line(&name, user, system, guest), 100), plain);
            let mut odd = name;
            odd.extend(b") 9 9 (");
            prop_assert_eq!(parse(&line(&odd, user, system, guest), 100), plain);
        }

        #[test]
        fn hostile_text_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300), hertz in 0..2000_u64) {
            let _ = parse(&text, hertz).map(TaskTimes::busy);
            let _ = run(&String::from_utf8_lossy(&text));
        }
    }
}
