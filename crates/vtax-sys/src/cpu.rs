//! CPU affinity, priority and CPU cycles of threads, and the CPU time of threads, processes and the machine.

mod account;
mod affinity;
mod cycles;
#[cfg(test)]
mod fuzz;
mod machine;
mod others;
mod priority;
mod task;

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use vtax_model::cpus::CpuSet;

use crate::clock;
use crate::error::{Result, SysError};
use crate::process::Pid;

pub use account::{MachineMeter, MachineReading, MachineSpan};
pub use cycles::{CycleCounter, CycleReading};
pub use machine::{MachineTimes, interrupts, machine_times};
pub use others::OtherProgramsMeter;
pub use priority::{run_first, runs_before_others};
pub use task::{TaskTimes, kvm_exits, process_time, task_times};

/// The value by which sched_setaffinity(2) denotes the calling thread.
const CALLING: libc::pid_t = 0;
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// CPU time used by a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Time in the program itself. The kernel knows the *split* into user and system only from its timer tick, unless
    /// it is built with precise accounting (`VIRT_CPU_ACCOUNTING_GEN`). So for short spans, only `total` is exact.
    pub user: Duration,
    /// Time in the kernel for the program.
    pub system: Duration,
    /// The sum of both in nanoseconds, from the scheduler's own account.
    pub total: Duration,
}

impl CpuTimes {
    /// Returns the CPU time since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            total: self.total.saturating_sub(earlier.total),
        }
    }
}

/// Returns the CPUs that the calling thread may run on: its mask, within the cpuset of its cgroup. A bandwidth limit
/// (`cpu.max`) is not visible here.
pub fn allowed_cpus() -> Result<CpuSet> {
    affinity::allowed(CALLING).map_err(|e| SysError::os("read", "the CPU mask of this thread", e))
}

/// Returns the online CPUs of this machine, whether this process may use them or not.
pub fn online_cpus() -> Result<CpuSet> {
    let text = fs::read_to_string(ONLINE).map_err(|e| SysError::os("read", ONLINE, e))?;
    text.trim().parse().map_err(|error| SysError::malformed("read", ONLINE, error))
}

/// Pins the calling thread to these CPUs and reads the mask back, because the kernel silently omits those that are
/// offline or outside the cpuset.
///
/// # Errors
/// If not *all* of them were granted. The thread may then be pinned to some.
pub fn pin_current_thread(cpus: &[u32]) -> Result<()> {
    let wanted: CpuSet = cpus.iter().copied().collect();
    let fail = |e: io::Error| SysError::os("pin this thread to CPU", &wanted, e);
    affinity::pin(CALLING, &wanted).map_err(fail)?;
    if affinity::allowed(CALLING).map_err(fail)? == wanted {
        Ok(())
    } else {
        // The error that sched_setaffinity(2) returns if none of them is online.
        Err(fail(io::Error::from_raw_os_error(libc::EINVAL)))
    }
}

/// Returns the CPUs that a thread may run on, like [`allowed_cpus`]. None if the thread doesn't exist.
pub fn thread_cpus(tid: Pid) -> Result<Option<CpuSet>> {
    match affinity::allowed(raw(tid)?) {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        cpus => cpus.map(Some).map_err(|e| SysError::os("read the CPU mask of thread", tid, e)),
    }
}

/// Pins a thread to these CPUs. Read the mask back: the kernel silently omits CPUs that are offline or outside the
/// cpuset.
pub fn pin_thread(tid: Pid, cpus: &CpuSet) -> Result<()> {
    affinity::pin(raw(tid)?, cpus).map_err(|e| SysError::os("pin thread", format!("{tid} to CPU {cpus}"), e))
}

/// Converts a thread number. Refuses 0, which the kernel takes for the calling thread.
fn raw(tid: Pid) -> Result<libc::pid_t> {
    let number = libc::pid_t::try_from(tid.0).ok().filter(|number| *number > 0);
    number.ok_or_else(|| SysError::invalid("thread number", tid, "use a whole number from 1"))
}

/// Returns the CPU time of the calling thread.
pub fn thread_times() -> CpuTimes {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for a rusage.
    let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(status, 0, "getrusage fails only for a bad argument");
    // SAFETY: the call succeeded, so the rusage is filled in.
    let usage = unsafe { usage.assume_init() };
    CpuTimes {
        user: timeval(usage.ru_utime),
        system: timeval(usage.ru_stime),
        total: clock::to_duration(clock::read(libc::CLOCK_THREAD_CPUTIME_ID)),
    }
}

/// Returns the CPU time of the calling thread in nanoseconds, with one system call.
pub fn thread_cpu_ns() -> u64 {
    let total = clock::to_duration(clock::read(libc::CLOCK_THREAD_CPUTIME_ID));
    u64::try_from(total.as_nanos()).unwrap_or(u64::MAX)
}

fn timeval(time: libc::timeval) -> Duration {
    // The kernel keeps both parts non-negative and the second below 10^6.
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::time::Instant;

    #[test]
    fn a_pin_is_read_back_and_the_old_mask_returns() {
        let before = allowed_cpus().unwrap();
        let first = before.iter().next().unwrap();
        pin_current_thread(&[first]).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [first].into_iter().collect());
        pin_current_thread(&before.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(allowed_cpus().unwrap(), before);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused_even_next_to_one_that_does() {
        let first = allowed_cpus().unwrap().iter().next().unwrap();
        let error = pin_current_thread(&[first, 8000]).unwrap_err();
        assert!(error.to_string().contains("8000"), "{error}");
        assert!(pin_current_thread(&[]).is_err());
    }

    #[test]
    fn another_thread_is_pinned_and_one_that_has_ended_has_no_mask() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Pid(child.id());
        let before = thread_cpus(tid).unwrap().unwrap();
        assert_eq!(before, allowed_cpus().unwrap());
        let first: CpuSet = before.iter().take(1).collect();
        pin_thread(tid, &first).unwrap();
        assert_eq!(thread_cpus(tid).unwrap(), Some(first));
        assert_eq!(allowed_cpus().unwrap(), before);
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(thread_cpus(tid).unwrap(), None);
        assert!(thread_cpus(Pid(0)).is_err() && pin_thread(Pid(0), &before).is_err());
    }

    #[test]
    fn allowed_cpus_are_online() {
        let online = online_cpus().unwrap();
        assert!(allowed_cpus().unwrap().iter().all(|cpu| online.contains(cpu)));
    }

    #[test]
    fn work_is_charged_to_the_thread() {
        let thread = thread_times();
        let end = Instant::now() + Duration::from_millis(30);
        while Instant::now() < end {
            black_box(0);
        }
        let used = thread_times().since(thread).total;
        assert!(used > Duration::ZERO && used < Duration::from_secs(5), "{used:?}");
    }
}
