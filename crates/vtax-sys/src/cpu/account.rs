//! Time for which the CPUs of this machine worked: the time in which they were not idle, did not wait for a disk, and
//! were not taken away by the hypervisor (steal time).
//!
//! The busy columns of `/proc/stat` cannot simply be added up. The kernel counts a whole tick for whatever runs when
//! the tick comes. Work that begins with a wake-up and ends before the next tick is never counted
//! (Documentation/admin-guide/cpu-load.rst). In request/response tests, a third to two fifths of the work is missed.
//! Idle time is known exactly, from two accounts. Each has a weakness:
//!
//! - The kernel counts the idle time of `/proc/stat` in nanoseconds (`get_cpu_idle_time_us`, NO_HZ). It
//!   excludes the interrupts served by an idle CPU, and includes an idle period that isn't over. But it prints
//!   the sum in ticks of 10 ms.
//! - `cpuidle/state*/time` is in µs, but the kernel updates it only when an idle period ends. If the CPU is
//!   halted with interrupts on (HLT: haltpoll, ACPI C1), it includes their work. It excludes the time to
//!   enter and leave a state: 0.4 to 2.3 µs each time on a virtual machine with haltpoll. This time counts as
//!   work in this account and as idle in the first.
//!
//! So the second account is used, but limited to what the first allows: its value, plus or minus the error of its
//! ticks. Over a second the result is the first, to within 1 %; over 20 ms it is the second. A machine without cpuidle,
//! such as many guests, has only the first. Without NO_HZ (`nohz=off`), the first counts only whole ticks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::machine::{MachineTimes, machine_times};
use super::online_cpus;
use crate::clock::now_ns;
use crate::error::Result;

const CPUS: &str = "/sys/devices/system/cpu";

/// Limit on the number of states over all CPUs, above which reading them costs too much: each takes half a µs.
const STATES_MOST: usize = 4096;

/// Reads the machine's account at the beginning and the end of a span, with the files opened once.
#[derive(Debug)]
pub struct MachineMeter {
    cpus: u32,
    states: Vec<File>,
}

/// The machine's account at one moment.
#[derive(Debug, Clone, Copy)]
pub struct MachineReading {
    cpus: u32,
    at: u64,
    times: MachineTimes,
    /// Sum over the idle states of all CPUs; none if it isn't known.
    in_states: Option<Duration>,
}

/// Use of the time of all CPUs between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineSpan {
    /// Number of online CPUs.
    pub cpus: u32,
    /// Length of the span by the clock.
    pub wall: Duration,
    /// Columns of `/proc/stat`. The busy ones are sampled at ticks, so they give shares of the work, not its time.
    pub times: MachineTimes,
    in_states: Option<Duration>,
}

impl MachineMeter {
    /// Opens the files of the CPUs that are online now.
    pub fn open() -> Result<MachineMeter> {
        let online: Vec<u32> = online_cpus()?.iter().collect();
        let states: Option<Vec<Vec<File>>> = online.iter().map(|cpu| states(*cpu)).collect();
        let states: Vec<File> = states.unwrap_or_default().into_iter().flatten().collect();
        let states = if states.len() > STATES_MOST { Vec::new() } else { states };
        Ok(MachineMeter { cpus: u32::try_from(online.len()).unwrap_or(u32::MAX), states })
    }

    /// Reads `/proc/stat`, and makes one system call for each idle state of each CPU.
    pub fn read(&self) -> Result<MachineReading> {
        let at = now_ns();
        let in_states = self.in_states();
        Ok(MachineReading { cpus: self.cpus, at, times: machine_times()?, in_states })
    }

    /// Returns the sum of the idle states. None without cpuidle, with too many states, or if a CPU has gone offline.
    fn in_states(&self) -> Option<Duration> {
        let sum = self.states.iter().try_fold(0_u64, |sum, state| Some(sum.saturating_add(read_us(state)?)))?;
        (!self.states.is_empty()).then(|| Duration::from_micros(sum))
    }
}

/// Opens the files with the times of one CPU's idle states; none if there are no such files.
fn states(cpu: u32) -> Option<Vec<File>> {
    let entries = fs::read_dir(format!("{CPUS}/cpu{cpu}/cpuidle")).ok()?;
    let files: Vec<File> = entries.filter_map(|entry| File::open(entry.ok()?.path().join("time")).ok()).collect();
    (!files.is_empty()).then_some(files)
}

fn read_us(state: &File) -> Option<u64> {
    let mut text = [0; 24];
    let len = state.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

impl MachineReading {
    /// Returns the use of the time since `earlier`.
    pub fn since(&self, earlier: &MachineReading) -> MachineSpan {
        let states = self.in_states.zip(earlier.in_states);
        MachineSpan {
            cpus: self.cpus,
            wall: Duration::from_nanos(self.at.saturating_sub(earlier.at)),
            times: self.times.since(earlier.times),
            in_states: states.and_then(|(now, then)| now.checked_sub(then)),
        }
    }
}

impl MachineSpan {
    /// Returns the time in which the CPUs worked for this machine and its guests: everything except idle time, waiting
    /// for a disk, and steal time.
    pub fn busy(&self) -> Duration {
        self.all().saturating_sub(self.idle() + self.times.steal)
    }

    /// Returns the time with nothing to do, or with nothing to do but wait for a disk.
    pub fn idle(&self) -> Duration {
        let told = self.times.idle + self.times.iowait;
        // Each column loses less than a tick at the beginning and at the end.
        let hidden = 2 * tick();
        let idle = self.in_states.map_or(told, |states| states.clamp(told.saturating_sub(hidden), told + hidden));
        idle.min(self.all())
    }

    fn all(&self) -> Duration {
        self.wall * self.cpus
    }
}

fn tick() -> Duration {
    Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns a span of 300 ms on two CPUs.
    fn span(idle: u64, in_states: Option<u64>) -> MachineSpan {
        let times = MachineTimes { user: ms(30), system: ms(40), idle: ms(idle), ..MachineTimes::default() };
        MachineSpan { cpus: 2, wall: ms(150), times, in_states: in_states.map(ms) }
    }

    #[test]
    fn time_missed_by_ticks_counts_as_busy() {
        // By ticks, the result would be 70 ms.
        assert_eq!(span(120, None).busy(), ms(180));
        assert_eq!(span(120, Some(124)).busy(), ms(176));
    }

    #[test]
    fn idle_states_are_believed_as_far_as_ticks_allow() {
        // A third CPU that is idle all the time has not updated its file yet.
        assert_eq!(span(250, Some(100)).idle(), ms(230));
        // Interrupts served by a CPU while it was halted.
        assert_eq!(span(100, Some(180)).idle(), ms(120));
        assert_eq!(span(100, Some(95)).idle(), ms(95));
    }

    #[test]
    fn others_take_their_part_and_nothing_is_below_zero() {
        let stolen = MachineTimes { steal: ms(20), iowait: ms(10), ..span(120, None).times };
        assert_eq!(MachineSpan { times: stolen, ..span(120, None) }.busy(), ms(150));
        assert_eq!(span(400, None).busy(), Duration::ZERO);
        assert_eq!(span(400, None).idle(), ms(300));
    }

    #[test]
    fn the_accounted_time_is_that_of_all_cpus() {
        let meter = MachineMeter::open().unwrap();
        let opened = meter.read().unwrap();
        std::thread::sleep(ms(50));
        let span = meter.read().unwrap().since(&opened);
        assert!(span.wall >= ms(50) && span.cpus > 0);
        assert!(span.busy() + span.idle() <= span.wall * span.cpus);
    }
}
