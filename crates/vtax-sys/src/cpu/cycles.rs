//! CPU cycles of the calling thread, from the CPU's counters (perf_event_open(2)).

use std::{
    fs::File,
    io::{self, Read},
    mem,
    os::fd::{FromRawFd, OwnedFd},
};

use crate::error::{Result, SysError};

/// Counter of the cycles that the thread that opened it executes in user space and in the kernel.
///
/// Cycles don't depend on the clock frequency as CPU time does. Many virtual machines have no such counter.
#[derive(Debug)]
pub struct CycleCounter(File);

/// Reading of a [`CycleCounter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CycleReading {
    counted: u64,
    /// Nanoseconds for which the thread ran.
    enabled: u64,
    /// Nanoseconds for which its cycles were counted: the kernel shares the CPU's counters among all events.
    running: u64,
}

/// `struct perf_event_attr` in its first version, which all kernels accept; PERF_ATTR_SIZE_VER0.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

const _: () = assert!(mem::size_of::<EventAttributes>() == 64, "PERF_ATTR_SIZE_VER0");

/// Type and number of an event.
#[derive(Clone, Copy)]
struct Event(u32, u64);

/// PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES.
const CPU_CYCLES: Event = Event(0, 0);
/// PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
const WITH_TIMES: u64 = 1 | 2;
/// The bit `exclude_hv`: a hypervisor's cycles aren't the thread's.
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

impl CycleCounter {
    /// Starts counting for the calling thread.
    ///
    /// # Errors
    /// If this machine has no cycle counter, or this user may not count cycles in the kernel.
    pub fn open() -> Result<CycleCounter> {
        CycleCounter::of(CPU_CYCLES).map_err(|errno| {
            let remedy = match errno.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "run as root, or set kernel.perf_event_paranoid to 1",
                _ => "this machine has no counter that can be read; virtual machines need a virtual PMU for it",
            };
            SysError::refused("count", "CPU cycles of a thread", errno, Some(remedy))
        })
    }

    fn of(Event(kind, config): Event) -> io::Result<CycleCounter> {
        const CALLING_THREAD: libc::pid_t = 0;
        const ANY_CPU: libc::c_int = -1;
        const NO_GROUP: libc::c_int = -1;
        let attributes = EventAttributes {
            kind,
            size: mem::size_of::<EventAttributes>() as u32,
            config,
            read_format: WITH_TIMES,
            flags: EXCLUDE_HYPERVISOR,
            ..EventAttributes::default()
        };
        // SAFETY: the pointer is valid for as many bytes as `size` says, and the kernel only reads them.
        let fd = unsafe {
            let call = libc::SYS_perf_event_open;
            libc::syscall(call, &raw const attributes, CALLING_THREAD, ANY_CPU, NO_GROUP, CLOSE_ON_EXEC)
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just opened it for this call alone.
        Ok(CycleCounter(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Returns the cycles so far; none if the kernel can no longer count them.
    pub fn read(&self) -> Option<CycleReading> {
        let mut bytes = [0; 24];
        (&self.0).read_exact(&mut bytes).ok()?;
        let [counted, enabled, running] =
            [0, 8, 16].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes")));
        Some(CycleReading { counted, enabled, running })
    }
}

impl CycleReading {
    /// Returns the cycles since `earlier`; none if not all were counted, because other events used the counter.
    pub fn since(self, earlier: CycleReading) -> Option<u64> {
        let [counted, enabled, running] = [
            self.counted.checked_sub(earlier.counted)?,
            self.enabled.checked_sub(earlier.enabled)?,
            self.running.checked_sub(earlier.running)?,
        ];
        // The times differ slightly even then, because the kernel reads its clock once for each.
        let is_complete = running >= enabled - enabled / 1000;
        (is_complete && counted > 0).then_some(counted)
    }
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, time::Instant};

    use super::*;

    /// PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK: nanoseconds of the thread, which every machine counts.
    const TASK_CLOCK: Event = Event(1, 1);

    fn spin(milliseconds: u128) {
        let begun = Instant::now();
        while begun.elapsed().as_millis() < milliseconds {
            black_box(0);
        }
    }

    #[test]
    fn a_thread_counts_only_its_own_cycles() {
        let counter = CycleCounter::of(TASK_CLOCK).expect("every kernel with perf events has it");
        let opened = counter.read().expect("open");
        std::thread::spawn(|| spin(30)).join().expect("it ends");
        let idle = counter.read().expect("open").since(opened).expect("complete");
        assert!(idle < 20_000_000, "{idle} ns, of which the other thread's are 30 ms");
        let (begun, cpu) = (Instant::now(), super::super::thread_cpu_ns());
        let opened = counter.read().expect("open");
        spin(20);
        let used = counter.read().expect("open").since(opened).expect("complete");
        let (cpu, elapsed) = (super::super::thread_cpu_ns() - cpu, begun.elapsed().as_nanos() as u64);
        // On a virtual CPU, the counter includes the time that the host took away, and a thread's CPU time may not. Two
        // clocks differ by at most 500 ppm (adjtimex(2)).
        let most = elapsed + elapsed / 2_000;
        assert!(used > cpu / 2 && used <= most, "{used} ns, of {cpu} ns of CPU time in {elapsed} ns");
    }

    #[test]
    fn cycles_are_counted_or_the_machine_has_no_counter() {
        match CycleCounter::open() {
            Ok(counter) => {
                let opened = counter.read().expect("open");
                spin(20);
                let cycles = counter.read().expect("open").since(opened);
                assert!(cycles.is_none_or(|cycles| cycles > 1_000_000), "{cycles:?} in 20 ms");
            }
            Err(error) => {
                let known = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::EOPNOTSUPP].map(Some);
                assert!(known.contains(&error.errno()) && error.remedy().is_some(), "{error}");
            }
        }
    }

    #[test]
    fn shared_counters_have_no_figure() {
        let at = |counted, enabled, running| CycleReading { counted, enabled, running };
        let opened = at(1_000, 1_000_000, 1_000_000);
        assert_eq!(at(4_000, 3_000_000, 3_000_000).since(opened), Some(3_000));
        assert_eq!(at(4_000, 3_000_000, 2_999_000).since(opened), Some(3_000));
        assert_eq!(at(4_000, 3_000_000, 2_000_000).since(opened), None);
        assert_eq!(at(1_000, 3_000_000, 3_000_000).since(opened), None);
        assert_eq!(opened.since(at(4_000, 3_000_000, 3_000_000)), None);
    }
}
