//! A guest's memory, as measured before a migration.

use serde::{Deserialize, Serialize};

use crate::{foreign::ForeignText, guest::Accelerator, units::ByteSize};

/// Result of measuring a domain's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MemoryMeasurement {
    /// The domain isn't running, so it has no memory to move.
    NotRunning,
    Unknown {
        why: ForeignText,
    },
    Measured(GuestMemory),
}

/// Memory of a running guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestMemory {
    pub size: ByteSize,
    /// Memory that the guest has used since its start. The rest is zero, and only its addresses are sent.
    pub used: ByteSize,
    pub changed: ChangedMemory,
    /// Under TCG, QEMU sends memory with the host CPU time that the guest's processors leave.
    pub accel: Accelerator,
}

/// Memory changed in one second and in two, measured in sequence. Each page counts once, so the second second adds less
/// than the first if the same pages change repeatedly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangedMemory {
    pub in_one_second: ByteSize,
    pub in_two_seconds: ByteSize,
}

/// Memory that changes in a time, as modelled: `hot + rate * seconds`, but at most `most`. All are bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DirtyMemory {
    pub(super) hot: f64,
    /// Per second.
    pub(super) rate: f64,
    pub(super) most: f64,
}

impl ChangedMemory {
    /// Factor by which the guest may change more or less memory during the migration than during the measurement. It
    /// includes QEMU's sampling error, because it samples only some pages.
    pub(super) const UNCERTAINTY: f64 = 1.5;

    /// Returns the bytes changed per second, on average over two seconds.
    pub fn rate(self) -> ByteSize {
        ByteSize(self.in_two_seconds.0 / 2)
    }

    /// Returns the line through both measurements, which no concave curve exceeds outside of them, times the
    /// uncertainty.
    pub(super) fn most(self, size: f64) -> DirtyMemory {
        let (one, two) = self.bytes(size);
        let hot = (2.0 * one - two).max(0.0);
        DirtyMemory { hot, rate: (two - hot) / 2.0, most: size }.times(ChangedMemory::UNCERTAINTY)
    }

    /// Returns the likely curve. Time that QEMU needs in addition to a measurement looks like a hot set, so there is
    /// one only if the second second has added less than half of the first.
    pub(super) fn likely(self, size: f64) -> DirtyMemory {
        let (one, two) = self.bytes(size);
        let hot = (3.0 * one - 2.0 * two).max(0.0);
        DirtyMemory { hot, rate: (two - hot) / 2.0, most: size }
    }

    /// Returns the least: no hot set, and no pages beyond those of two seconds, reduced by the
    /// uncertainty.
    pub(super) fn least(self, size: f64) -> DirtyMemory {
        let (_, two) = self.bytes(size);
        DirtyMemory { hot: 0.0, rate: two / 2.0, most: two }.times(1.0 / ChangedMemory::UNCERTAINTY)
    }

    /// At most the whole memory changes, and in two seconds at least as much as in one and at most twice as much.
    fn bytes(self, size: f64) -> (f64, f64) {
        let one = (self.in_one_second.0 as f64).min(size);
        let two = (self.in_two_seconds.0 as f64).min(size);
        (one.clamp(two / 2.0, two.max(one)), two.max(one))
    }
}

impl DirtyMemory {
    fn times(self, factor: f64) -> DirtyMemory {
        let most = if factor < 1.0 { self.most * factor } else { self.most };
        DirtyMemory { hot: self.hot * factor, rate: self.rate * factor, most }
    }

    pub(super) fn within(self, seconds: f64) -> f64 {
        (self.hot + self.rate * seconds).min(self.most)
    }
}
