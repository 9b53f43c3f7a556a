//! The clock that stamps every sample.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::error::{Result, SysError};

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Nanoseconds of `CLOCK_MONOTONIC`. Without a system call where the clock source
/// allows it (vDSO); see [`clocksource`]. The clock stops while the machine is
/// suspended, and its rate is steered by NTP, but it never jumps.
#[inline]
pub fn now_ns() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    // Neither part is negative for this clock, and 2^64 ns are 584 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The resolution that the kernel claims, usually 1 ns. The step that a reader
/// sees is the cost of a reading, which has to be measured.
pub fn resolution() -> Duration {
    let mut resolution = MaybeUninit::uninit();
    // SAFETY: the pointer is valid for a timespec; the clock always exists.
    let status = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, resolution.as_mut_ptr()) };
    assert_eq!(status, 0, "CLOCK_MONOTONIC exists on every Linux");
    // SAFETY: the call succeeded, so the timespec is filled in.
    to_duration(unsafe { resolution.assume_init() })
}

/// The kernel's clock source, such as `tsc`, `kvm-clock` or `hpet`. The last one,
/// `acpi_pm` and `xen` may cost a system call or more for each reading.
pub fn clocksource() -> Result<String> {
    let name = fs::read_to_string(CLOCKSOURCE).map_err(|e| SysError::os("read", CLOCKSOURCE, e))?;
    Ok(name.trim().to_owned())
}

/// A clock that always exists and that this process may read.
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
}
