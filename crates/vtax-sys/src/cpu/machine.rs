//! Use of the time of all CPUs, from the first line of `/proc/stat`.

use std::fs;
use std::time::Duration;

use crate::error::{Result, SysError};

const STAT: &str = "/proc/stat";

/// Time of all CPUs together since boot, or over a span after [`MachineTimes::since`]. The parts don't overlap, so they
/// can be added.
///
/// Source: proc_stat(5). The kernel also counts `guest` in `user` and `guest_nice` in `nice` (`account_guest_time`), so
/// both are subtracted here. Tools that don't subtract them count the time of a host's guests twice. Columns that an
/// old kernel lacks are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineTimes {
    /// Programs, without guests.
    pub user: Duration,
    /// Programs of lowered priority, without guests.
    pub nice: Duration,
    /// The kernel, without interrupts.
    pub system: Duration,
    /// Time without a task to run.
    pub idle: Duration,
    /// Idle while waiting for a disk. The man page calls it unreliable.
    pub iowait: Duration,
    /// Hardware interrupts.
    pub irq: Duration,
    /// Software interrupts: most of the network stack's receive path.
    pub softirq: Duration,
    /// Steal time: a CPU had work, but the hypervisor below ran another machine on it.
    pub steal: Duration,
    /// Virtual CPUs of our guests.
    pub guest: Duration,
    /// Virtual CPUs of our guests of lowered priority.
    pub guest_nice: Duration,
}

/// Reads the account of the whole machine, in ticks of usually 10 ms. For the time in which the machine worked, see
/// [`MachineMeter`](super::MachineMeter).
pub fn machine_times() -> Result<MachineTimes> {
    let text = fs::read_to_string(STAT).map_err(|e| SysError::os("read", STAT, e))?;
    let hertz = rustix::param::clock_ticks_per_second();
    parse(&text, hertz).ok_or_else(|| SysError::malformed("read", STAT, "no line 'cpu' in it"))
}

/// Returns the number of interrupts of all CPUs since boot, including those without a number. This is the first column
/// of the line `intr`: the sum over `/proc/interrupts`, at a fraction of its cost.
///
/// Source: proc_stat(5).
pub fn interrupts() -> Result<u64> {
    let text = fs::read_to_string(STAT).map_err(|e| SysError::os("read", STAT, e))?;
    parse_interrupts(&text).ok_or_else(|| SysError::malformed("read", STAT, "no line 'intr' in it"))
}

pub(super) fn parse_interrupts(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("intr "))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

impl MachineTimes {
    /// Returns the time used since `earlier`. On some kernels `idle`, `iowait` and `steal` can go backwards; then they
    /// count as zero.
    pub fn since(self, earlier: Self) -> Self {
        let (now, then) = (self.parts(), earlier.parts());
        Self::from_parts(std::array::from_fn(|i| now[i].saturating_sub(then[i])))
    }

    /// Returns the parts in the order of `/proc/stat`.
    fn parts(self) -> [Duration; 10] {
        [
            self.user,
            self.nice,
            self.system,
            self.idle,
            self.iowait,
            self.irq,
            self.softirq,
            self.steal,
            self.guest,
            self.guest_nice,
        ]
    }

    fn from_parts(parts: [Duration; 10]) -> Self {
        let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = parts;
        Self { user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice }
    }
}

pub(super) fn parse(text: &str, ticks_per_second: u64) -> Option<MachineTimes> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = [0_u64; 10];
    let mut columns = 0;
    for (slot, column) in ticks.iter_mut().zip(line.split_ascii_whitespace()) {
        *slot = column.parse().ok()?;
        columns += 1;
    }
    // user, nice, system and idle exist on every kernel.
    if columns < 4 || ticks_per_second == 0 {
        return None;
    }
    let [user, nice, .., guest, guest_nice] = &mut ticks;
    *user = user.saturating_sub(*guest);
    *nice = nice.saturating_sub(*guest_nice);
    // The sum must also fit a Duration; no machine has such large values.
    let most = u64::MAX / 10;
    Some(MachineTimes::from_parts(ticks.map(|ticks| duration(ticks.min(most), ticks_per_second))))
}

/// Converts ticks. `per_second` must not be zero.
pub(super) fn duration(ticks: u64, per_second: u64) -> Duration {
    let nanos = u128::from(ticks % per_second) * 1_000_000_000 / u128::from(per_second);
    // The remainder is less than one second's ticks, so this is below 10^9.
    Duration::new(ticks / per_second, nanos as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.x, a KVM host: 500000 ticks of guests are inside `user`.
    const KVM_HOST: &str = "cpu  600100 250 74608 10072412 1200 0 4101 77 500000 200\ncpu0 300050 125 37304 5036206 600 0 2050 38 250000 100\nintr 1\n";
    /// Linux 2.4 had four columns, 2.6.0 seven, 2.6.11 added steal.
    const LINUX_2_4: &str = "cpu  1132 34 1441 11311\ncpu0 1132 34 1441 11311\n";
    const LINUX_2_6_0: &str = "cpu  2255 34 2290 22625 6290 127 456\n";
    const LINUX_2_6_11: &str = "cpu  2255 34 2290 22625 6290 127 456 5\n";

    #[test]
    fn guests_are_not_counted_twice() {
        let times = parse(KVM_HOST, 100).unwrap();
        assert_eq!(times.user, Duration::from_secs(1001));
        assert_eq!(times.guest, Duration::from_secs(5000));
        assert_eq!(times.nice, Duration::from_millis(500));
        assert_eq!(times.steal, Duration::from_millis(770));
        let once = 600_100 + 250 + 74_608 + 10_072_412 + 1200 + 4101 + 77;
        assert_eq!(times.parts().iter().sum::<Duration>(), Duration::from_millis(once * 10));
    }

    #[test]
    fn old_kernels_with_fewer_columns_are_read() {
        let times = parse(LINUX_2_4, 100).unwrap();
        assert_eq!(times.idle, Duration::from_millis(113_110));
        assert_eq!(times.softirq, Duration::ZERO);
        assert_eq!(parse(LINUX_2_6_0, 100).unwrap().softirq, Duration::from_millis(4560));
        assert_eq!(parse(LINUX_2_6_11, 100).unwrap().steal, Duration::from_millis(50));
    }

    #[test]
    fn columns_of_future_kernels_are_ignored() {
        assert!(parse("cpu  1 2 3 4 5 6 7 8 0 0 11 12\n", 100).is_some());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "cpu0 1 2 3 4", "cpu  1 2 3", "cpu  1 2 x 4", "cpu  1 2 3 -4"] {
            assert!(parse(text, 100).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_span_in_which_a_part_went_backwards_has_none_of_it() {
        let early = parse("cpu  10 0 0 500 0 0 0\n", 100).unwrap();
        let late = parse("cpu  30 0 0 499 0 0 0\n", 100).unwrap();
        let span = late.since(early);
        assert_eq!(span.user, Duration::from_millis(200));
        assert_eq!(span.idle, Duration::ZERO);
    }

    #[test]
    fn interrupts_are_the_first_column() {
        assert_eq!(parse_interrupts("cpu  1 2 3 4\nintr 31415 1 0 9 26\nctxt 5\n"), Some(31_415));
        assert_eq!(parse_interrupts("intr"), None);
        assert_eq!(parse_interrupts("intr x 1\n"), None);
        assert!(interrupts().unwrap() > 0);
    }

    #[test]
    fn this_machine_has_an_account() {
        assert!(machine_times().unwrap().idle > Duration::ZERO);
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "cpu  [0-9 ]{0,200}|\\PC*", hertz in 0..2000_u64) {
            if let Some(times) = parse(&text, hertz) {
                let _ = times.since(times);
            }
        }

        #[test]
        fn any_ticks_are_counted(ticks in proptest::collection::vec(any::<u64>(), 10)) {
            let columns: Vec<_> = ticks.iter().map(u64::to_string).collect();
            let times = parse(&format!("cpu  {}", columns.join(" ")), 1).unwrap();
            let _: Duration = times.parts().iter().sum();
        }
    }
}
