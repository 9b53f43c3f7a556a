//! One course of a migration, with all rates known.

use super::{ChangedMemory, GuestMemory, MigrationSettings, SenderSpeed, memory::DirtyMemory};

/// Bytes of unused memory per second that QEMU recognizes as zero: assumed. Each such page takes 9 bytes on the wire.
const SCAN: f64 = 4e9;
/// Seconds to save the devices' state, load it and resume: assumed. QEMU 10.0 needed 5 to 16 ms in all with an idle guest.
const SWITCH: [f64; 3] = [0.005, 0.02, 0.1];
/// Factor by which the rest may take longer than QEMU expected when it suspended the guest: 509 ms were seen at a limit of
/// 300 ms, and 609 ms with encryption.
const OVERSHOOT: f64 = 2.0;
/// Seconds for which QEMU sends between two checks of whether the rest fits (`MAX_WAIT` in its migration/ram.c).
const LOOK: f64 = 0.05;
/// QEMU counts its limit in milliseconds, and with 0 it would wait until nothing is left.
const LEAST_SUSPEND: f64 = 0.001;

/// Bound of the interval that a case is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Best,
    Likely,
    Worst,
}

/// Bytes, bytes per second and seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct MigrationCase {
    used: f64,
    size: f64,
    changes: DirtyMemory,
    pub(super) bandwidth: f64,
    scan: f64,
    switch: f64,
    max_suspend: f64,
    time: f64,
}

/// Passes until the switchover.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Passes {
    /// Time of all passes, including the last one, for which the guest is suspended.
    pub(super) seconds: f64,
    pub(super) count: u32,
}

impl MigrationCase {
    pub(super) fn new(memory: &GuestMemory, settings: &MigrationSettings, edge: Edge) -> MigrationCase {
        let (size, changed) = (memory.size.0 as f64, memory.changed);
        let (changes, speed, switch) = match edge {
            Edge::Best => (ChangedMemory::least(changed, size), SenderSpeed::UNCERTAINTY, SWITCH[0]),
            Edge::Likely => (ChangedMemory::likely(changed, size), 1.0, SWITCH[1]),
            Edge::Worst => (ChangedMemory::most(changed, size), 1.0 / SenderSpeed::UNCERTAINTY, SWITCH[2]),
        };
        let sender = SenderSpeed::new(memory.accel, settings).likely * speed;
        let limit = settings.bandwidth.map_or(f64::INFINITY, |limit| limit.bits() as f64 / 8.0);
        MigrationCase {
            used: (memory.used.0 as f64).min(size),
            size,
            changes,
            bandwidth: sender.min(limit),
            scan: SCAN * speed,
            switch,
            max_suspend: settings.max_suspend.as_secs_f64().max(LEAST_SUSPEND),
            time: settings.time.as_secs_f64(),
        }
    }

    pub(super) fn with_bandwidth(self, bandwidth: f64) -> MigrationCase {
        MigrationCase { bandwidth, ..self }
    }

    pub(super) fn with_max_suspend(self, max_suspend: f64) -> MigrationCase {
        MigrationCase { max_suspend, ..self }
    }

    fn first_pass(&self) -> f64 {
        self.used / self.bandwidth + (self.size - self.used) / self.scan
    }

    /// Returns the time of the pass that follows one of this length.
    fn pass_after(&self, seconds: f64) -> f64 {
        self.changes.within(seconds) / self.bandwidth
    }

    /// Returns true if the passes eventually become short enough.
    pub(super) fn converges(&self) -> bool {
        let DirtyMemory { hot, rate, .. } = self.changes;
        let shrink_to = if rate < self.bandwidth { hot / (self.bandwidth - rate) } else { f64::INFINITY };
        shrink_to < self.max_suspend || self.pass_after(self.first_pass()) <= self.max_suspend
    }

    /// Returns the passes; none if they don't become short enough, or not in time.
    pub(super) fn passes(&self) -> Option<Passes> {
        if !self.converges() {
            return None;
        }
        let mut passes = Passes { seconds: self.first_pass(), count: 1 };
        let mut rest = self.pass_after(passes.seconds);
        // Each round adds more than the limit, which isn't zero, so the time ends it.
        while rest > self.max_suspend && passes.seconds <= self.time {
            passes = Passes { seconds: passes.seconds + rest, count: passes.count.saturating_add(1) };
            rest = self.pass_after(rest);
        }
        passes.seconds += rest;
        Some(passes).filter(|passes| passes.seconds <= self.time)
    }

    pub(super) fn total(&self) -> Option<f64> {
        Some(self.passes()?.seconds + self.switch)
    }

    /// Returns the shortest suspension: QEMU suspends the guest as soon as it finds that the rest fits. So the rest is
    /// at least what has changed since its last check.
    pub(super) fn shortest_suspension(&self) -> f64 {
        self.switch + self.least_rest()
    }

    /// Returns the longest suspension: the rest is at most what fits into the limit.
    pub(super) fn longest_suspension(&self) -> f64 {
        self.switch + self.all().min(self.max_suspend * OVERSHOOT)
    }

    /// Returns the geometric mean of the minimum and the maximum of the rest.
    pub(super) fn likely_suspension(&self) -> f64 {
        self.switch + (self.least_rest() * self.all().min(self.max_suspend)).sqrt()
    }

    fn least_rest(&self) -> f64 {
        self.pass_after(self.first_pass()).min(self.pass_after(LOOK.min(self.max_suspend)))
    }

    /// Returns the time to send everything that remains at the end of the first pass, if none of it was sent.
    fn all(&self) -> f64 {
        (self.used + self.changes.within(self.first_pass())).min(self.size) / self.bandwidth
    }
}
