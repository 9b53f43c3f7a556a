//! The time for which a guest was suspended by its migration.

use std::time::Duration;

/// The suspend time of a migration, measured with two independent clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SuspendTimes {
    /// According to the source's QEMU, in whole milliseconds. It ends when the target has loaded the guest, and so
    /// excludes the time until a target with stopped processors is resumed.
    pub by_qemu: Option<Duration>,
    /// From the stop of the vCPUs at the source to their start at the target, by the timestamps of both events. None if
    /// the guest wasn't running, or if the hosts' clocks disagree.
    pub by_events: Option<Duration>,
}

impl SuspendTimes {
    /// Returns the difference of the two, if both are known.
    pub fn disagreement(&self) -> Option<Duration> {
        Some(self.by_qemu?.abs_diff(self.by_events?))
    }
}
