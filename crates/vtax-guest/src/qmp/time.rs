//! The time of an event, as QEMU reports it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time on a host's clock (`CLOCK_REALTIME`), in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostTime(i64);

impl HostTime {
    /// Returns the time elapsed from `earlier` to this time on the same clock. None if `earlier` is later.
    pub fn since(self, earlier: HostTime) -> Option<Duration> {
        u64::try_from(self.0.checked_sub(earlier.0)?).ok().map(Duration::from_micros)
    }

    /// Converts this time to a clock that is this many microseconds behind.
    pub fn by_clock_behind(self, microseconds: i64) -> HostTime {
        HostTime(self.0.saturating_sub(microseconds))
    }
}

/// Both numbers are -1 if QEMU cannot read its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct QmpTimestamp {
    seconds: i64,
    microseconds: i64,
}

impl QmpTimestamp {
    pub(super) fn time(self) -> Option<HostTime> {
        let time = self.seconds.checked_mul(1_000_000)?.checked_add(self.microseconds)?;
        (self.seconds >= 0 && self.microseconds >= 0).then_some(HostTime(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, microseconds: i64) -> Option<HostTime> {
        QmpTimestamp { seconds, microseconds }.time()
    }

    #[test]
    fn times_are_compared_by_one_clock() {
        let (stop, resume) = (at(9, 999_000).expect("a time"), at(10, 41_500).expect("a time"));
        assert_eq!(resume.since(stop), Some(Duration::from_micros(42_500)));
        assert_eq!(stop.since(resume), None);
        assert_eq!(resume.by_clock_behind(2_500).since(stop), Some(Duration::from_millis(40)));
    }

    #[test]
    fn an_unreadable_clock_gives_no_time() {
        assert_eq!(at(-1, -1), None);
        assert_eq!(at(i64::MAX, 1), None);
    }
}
