//! Real-time priority of the calling thread; sched(7).

use std::io;

use super::CALLING;
use crate::error::{Result, SysError};

/// The lowest real-time priority: above all threads without one, and never above another real-time thread of the
/// machine.
const LOWEST: libc::c_int = 1;

/// Gives the calling thread precedence over all threads without real-time priority on its CPUs (SCHED_FIFO), until it
/// ends. Of two such threads, the running one continues until it waits. Processes that the thread starts have normal
/// priority.
///
/// # Errors
/// If this process has no CAP_SYS_NICE, or its cgroup has no real-time budget.
pub fn run_first() -> Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // The kernel's structure; the C library's may have more fields. musl's own function always fails.
    let parameter: libc::c_int = LOWEST;
    // SAFETY: the kernel only reads the parameter, which is one number.
    let status = unsafe { libc::syscall(libc::SYS_sched_setscheduler, CALLING, policy, &raw const parameter) };
    match status {
        0 => Ok(()),
        _ => Err(SysError::os("set the priority of", "this thread", io::Error::last_os_error())),
    }
}

/// Returns true if the calling thread takes precedence over all threads without real-time priority. Returns false if
/// the kernel doesn't report its policy.
pub fn runs_before_others() -> bool {
    // SAFETY: the call takes a thread and returns a number. musl's own function always fails.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, CALLING) };
    let real_time = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].map(libc::c_long::from);
    policy >= 0 && real_time.contains(&(policy & !libc::c_long::from(libc::SCHED_RESET_ON_FORK)))
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    /// Returns the policy of the calling thread, field 41 of proc_pid_stat(5).
    fn policy() -> i32 {
        let stat = fs::read_to_string("/proc/thread-self/stat").expect("/proc");
        let (_, after_name) = stat.rsplit_once(") ").expect("a name");
        after_name.split(' ').nth(38).and_then(|policy| policy.parse().ok()).expect("a number")
    }

    #[test]
    fn a_thread_runs_first_and_no_other_does() {
        let first = || (run_first().map_err(|error| error.to_string()), policy(), runs_before_others());
        match thread::spawn(first).join().expect("no panic") {
            (Ok(()), policy, before) => assert_eq!((policy, before), (libc::SCHED_FIFO, true)),
            (Err(error), policy, _) => {
                assert!(error.contains("the priority of this thread"), "{error}");
                assert_eq!(policy, libc::SCHED_OTHER);
            }
        }
        assert_eq!((policy(), runs_before_others()), (libc::SCHED_OTHER, false));
    }
}
