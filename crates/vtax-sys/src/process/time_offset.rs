//! Offset between the boot time of this process's time namespace and that of the machine.

use std::{fs, path::PathBuf, sync::OnceLock};

/// Nanoseconds in a clock tick of proc(5): USER_HZ is 100 wherever Linux runs vtax.
const TICK_NS: i128 = 10_000_000;

/// Offset that this time namespace adds to the boot time (`boottime` in `/proc/PID/timens_offsets`,
/// time_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeOffset {
    ns: i128,
}

impl TimeOffset {
    /// Returns the offset of this process. The file describes the namespace of its children. If that is another one, as
    /// between unshare(2) and the next program, the offset is taken as 0.
    pub(super) fn own() -> TimeOffset {
        static OWN: OnceLock<TimeOffset> = OnceLock::new();
        *OWN.get_or_init(TimeOffset::read)
    }

    fn read() -> TimeOffset {
        let link = |name: &str| fs::read_link(PathBuf::from("/proc/self/ns").join(name)).ok();
        let is_own = link("time") == link("time_for_children");
        let offsets = fs::read_to_string("/proc/self/timens_offsets").ok().filter(|_| is_own);
        TimeOffset { ns: offsets.and_then(|offsets| boottime(&offsets)).unwrap_or(0) }
    }

    /// Returns a start time as counted by the machine, given the one that `/proc` shows with the offset. It may be a
    /// tick off, see [`TimeOffset::error_ticks`].
    pub(super) fn without(self, shown: u64) -> u64 {
        let ticks = i128::from(shown) - self.ns.div_euclid(TICK_NS);
        u64::try_from(ticks).unwrap_or(0)
    }

    /// Returns the possible error: `/proc` rounds the sum of start and offset, so a tick is lost if the offset isn't a
    /// whole number of ticks.
    pub(super) fn error_ticks(self) -> u64 {
        u64::from(self.ns.rem_euclid(TICK_NS) != 0)
    }
}

/// Parses a line with `boottime`, seconds and nanoseconds.
fn boottime(offsets: &str) -> Option<i128> {
    let fields = offsets.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = fields.into_iter().find(|fields| fields.first() == Some(&"boottime"))?;
    let number = |place: usize| line.get(place)?.parse::<i64>().ok().map(i128::from);
    Some(number(1)? * 1_000_000_000 + number(2)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_time_is_the_same_in_all_time_namespaces() {
        let started_ns: i128 = 9_876_543_210;
        for ns in [0, 1_000_000_000, -5_000_000_000, 86_400_123_456_789, -3_000_000_001] {
            let offset = TimeOffset { ns };
            let shown = u64::try_from((started_ns + ns).div_euclid(TICK_NS)).expect("after the boot");
            let wrong = offset.without(shown).abs_diff(987);
            assert!(wrong <= offset.error_ticks(), "{ns}: {wrong}");
        }
    }

    #[test]
    fn the_offset_of_the_boot_time_is_read() {
        assert_eq!(boottime("monotonic           0         0\nboottime       -3  500000000\n"), Some(-2_500_000_000));
        assert_eq!(boottime("monotonic 0 0\n"), None);
    }
}
