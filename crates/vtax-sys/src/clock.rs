//! The clock that timestamps every sample, and other clocks.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::error::{Result, SysError};

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Returns nanoseconds of `CLOCK_MONOTONIC`. Needs no system call where the clock source allows it (vDSO); see
/// [`clocksource`]. The clock stops while the machine is suspended, and its rate is steered by NTP, but it never jumps.
#[inline]
pub fn now_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_MONOTONIC))
}

/// Returns nanoseconds since 1970 (`CLOCK_REALTIME`), as used by the kernel's packet timestamps. The clock is set and
/// steered: the difference of two readings is a duration only if the clock wasn't set in between.
#[inline]
pub fn realtime_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_REALTIME))
}

/// Like [`now_ns`], but this clock continues while the machine is suspended (`CLOCK_BOOTTIME`). If the difference of
/// the two clocks grows, the machine was suspended. A guest that its host has stopped for a while doesn't always see
/// that here.
#[inline]
pub fn boottime_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_BOOTTIME))
}

/// Returns an identifier of the clock of [`now_ns`]: the kernel's boot id, followed by a `/` and the time namespace of
/// this process unless that is the first. Empty if the kernel doesn't show these files, as in some containers.
pub fn identity() -> String {
    /// The first time namespace (`PROC_TIME_INIT_INO`, include/linux/proc_ns.h).
    const FIRST: &str = "time:[4026531834]";
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    let namespace = fs::read_link("/proc/self/ns/time").ok();
    match namespace.as_ref().and_then(|namespace| namespace.to_str()) {
        Some(later) if later != FIRST && !boot.is_empty() => format!("{boot}/{later}"),
        _ => boot.to_owned(),
    }
}

/// Returns the resolution that the kernel claims, usually 1 ns. The smallest step that a program can observe is the
/// cost of a reading, which has to be measured.
pub fn resolution() -> Duration {
    let resolution = rustix::time::clock_getres(rustix::time::ClockId::Monotonic);
    Duration::new(resolution.tv_sec as u64, resolution.tv_nsec as u32)
}

/// Returns the steps of the timestamp counter per millisecond, measured over 20 ms. None if the kernel doesn't use the
/// counter as its clock.
#[cfg(target_arch = "x86_64")]
pub fn tsc_khz() -> Option<u32> {
    const WINDOW: Duration = Duration::from_millis(20);
    let reading = || {
        let before = now_ns();
        // SAFETY: every x86-64 has the counter. The kernel lets programs read it if it is the kernel's clock source,
        // which is checked below.
        let steps = unsafe { std::arch::x86_64::_rdtsc() };
        (now_ns() - before, before, steps)
    };
    // The shortest reading was interrupted the least.
    let read = || (0..8).map(|_| reading()).min().expect("eight of them");
    clocksource().ok().filter(|source| ["tsc", "kvm-clock"].contains(&source.as_str()))?;
    let (_, from_ns, from) = read();
    std::thread::sleep(WINDOW);
    let (_, until_ns, until) = read();
    u32::try_from(u128::from(until.checked_sub(from)?) * 1_000_000 / u128::from(until_ns - from_ns)).ok()
}

/// Returns none: other architectures have no such counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn tsc_khz() -> Option<u32> {
    None
}

/// Returns the kernel's clock source, e.g. `tsc`, `kvm-clock` or `hpet`. With `hpet`, `acpi_pm` and `xen`, a reading
/// may cost a system call or more.
pub fn clocksource() -> Result<String> {
    let name = fs::read_to_string(CLOCKSOURCE).map_err(|e| SysError::os("read", CLOCKSOURCE, e))?;
    Ok(name.trim().to_owned())
}

#[inline]
fn nanoseconds(time: libc::timespec) -> u64 {
    // Neither part is negative for these clocks (unless it is set before 1970, which the kernel refuses), and 2^64 ns
    // are 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads a clock that always exists and that this process may read.
#[inline]
pub(crate) fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: the pointer is valid for a timespec.
    let status = unsafe { libc::clock_gettime(clock, now.as_mut_ptr()) };
    assert_eq!(status, 0, "the own clocks exist on every Linux");
    // SAFETY: the call succeeded, so the timespec is filled in.
    unsafe { now.assume_init() }
}

pub(crate) fn to_duration(time: libc::timespec) -> Duration {
    // The kernel keeps both parts non-negative and the second below 10^9.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_counter_has_one_rate() {
        let trusted = clocksource().is_ok_and(|source| source == "tsc" || source == "kvm-clock");
        let both = tsc_khz().zip(tsc_khz());
        assert_eq!(both.is_some(), trusted);
        let off = |(one, other): (u32, u32)| (f64::from(one) / f64::from(other) - 1.0).abs();
        assert!(both.is_none_or(|both| off(both) < 0.02 && both.0 > 100_000), "{both:?}");
    }

    #[test]
    fn the_clock_advances_as_the_standard_one_does() {
        let start = now_ns();
        let started = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let inner = started.elapsed();
        let outer = Duration::from_nanos(now_ns() - start);
        assert!(outer >= inner, "{outer:?} {inner:?}");
        assert!(outer < inner + Duration::from_secs(5), "{outer:?} {inner:?}");
    }

    #[test]
    fn the_resolution_is_that_of_a_high_resolution_timer() {
        assert!(resolution() > Duration::ZERO);
        assert!(resolution() <= Duration::from_millis(10));
    }

    #[test]
    fn the_time_since_1970_is_that_of_the_standard_library() {
        let before = std::time::SystemTime::now();
        let now = std::time::UNIX_EPOCH + Duration::from_nanos(realtime_ns());
        assert!(before <= now && now <= std::time::SystemTime::now());
    }

    #[test]
    fn the_time_since_boot_is_never_behind_the_monotonic_one() {
        let before = now_ns();
        assert!(boottime_ns() >= before);
    }
}
