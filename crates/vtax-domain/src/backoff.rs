//! Delays before a domain that reboots repeatedly boots again.

use std::time::Duration;

/// A reboot of a system that ran for less than this counts as immediate.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Delay before each boot in a row after immediate reboots. A first reboot is common, for instance after an
/// installation.
const PAUSES: [Duration; 8] = {
    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }
    [seconds(0), seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), seconds(30), seconds(30)]
};

/// Maximum number of immediate reboots in a row. Like systemd's start limit (systemd.unit(5)), it ends an unattended
/// loop.
#[derive(Debug, Default)]
pub(crate) struct RebootLimit {
    in_a_row: usize,
}

impl RebootLimit {
    /// Returns the delay before the domain boots again, after its system has run for this long. None if it must stay
    /// stopped.
    pub(crate) fn pause(&mut self, ran: Duration) -> Option<Duration> {
        if ran >= AT_ONCE {
            self.in_a_row = 0;
            return Some(Duration::ZERO);
        }
        self.in_a_row += 1;
        PAUSES.get(self.in_a_row - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_of_reboots_is_slowed_down_and_ends() {
        let mut limit = RebootLimit::default();
        let quick = Duration::from_secs(1);
        let pauses: Vec<_> = std::iter::from_fn(|| limit.pause(quick)).take(100).collect();
        assert_eq!(pauses.len(), PAUSES.len());
        assert_eq!(pauses[0], Duration::ZERO, "one reboot is common");
        assert!(pauses.is_sorted() && pauses.iter().sum::<Duration>() > Duration::from_secs(60));
    }

    #[test]
    fn a_system_that_runs_for_a_while_resets_the_count() {
        let mut limit = RebootLimit::default();
        for _ in 0..100 {
            assert!((0..5).all(|_| limit.pause(Duration::from_secs(1)).is_some()));
            assert_eq!(limit.pause(AT_ONCE), Some(Duration::ZERO));
        }
    }
}
