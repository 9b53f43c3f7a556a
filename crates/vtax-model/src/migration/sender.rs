//! Assumptions about the connection between two hosts.

use std::time::Duration;

use crate::{guest::Accelerator, units::BitRate};

/// Settings of a migration that determine its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationSettings {
    pub encrypted: bool,
    /// Connections for memory, each with a thread that encrypts.
    pub channels: u8,
    /// Bandwidth limit, or the speed of the slowest link if known.
    pub bandwidth: Option<BitRate>,
    /// Suspend time at which the source switches over, by its own estimate.
    pub max_suspend: Duration,
    /// Time after which a migration that does not converge is cancelled.
    pub time: Duration,
}

impl Default for MigrationSettings {
    /// QEMU's default suspend time, and ten minutes.
    fn default() -> MigrationSettings {
        let (max_suspend, time) = (Duration::from_millis(300), Duration::from_secs(600));
        MigrationSettings { encrypted: true, channels: 1, bandwidth: None, max_suspend, time }
    }
}

/// Bytes per second that QEMU sends.
///
/// All of this is assumed. One thread reads, encrypts and sends all of the memory; with several channels, as many threads
/// encrypt, at most as fast as one sends without encryption: whether there are CPUs for more is unknown. Under TCG, QEMU 10.0 on two busy
/// cores sent 100 to 270 MB/s, and 35 to 110 MB/s encrypted; for KVM, server processors of the last ten years are
/// assumed, which encrypt 100 to 900 MB/s per core with AES-GCM. Slower links are not included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SenderSpeed {
    pub likely: f64,
}

impl SenderSpeed {
    /// Factor by which the sender's speed is uncertain.
    pub const UNCERTAINTY: f64 = 3.0;

    pub fn new(accel: Accelerator, settings: &MigrationSettings) -> SenderSpeed {
        let (plain, encrypted) = match accel {
            Accelerator::Kvm => (1_000.0, 300.0),
            Accelerator::Tcg => (200.0, 70.0_f64),
        };
        let encrypted = (encrypted * f64::from(settings.channels)).min(plain);
        SenderSpeed { likely: if settings.encrypted { encrypted } else { plain } * 1e6 }
    }
}
