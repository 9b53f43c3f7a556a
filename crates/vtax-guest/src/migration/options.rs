//! Options of a migration.

use std::{num::NonZeroU8, time::Duration};

use vtax_model::units::ByteSize;

use super::MigrationKey;
use crate::qmp::{MigrationCapabilities, MigrationParameters, Throttling};

/// Options of a migration. Both ends require the same [key](MigrationOptions::key) and
/// [method](MigrationOptions::method).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationOptions {
    /// Encrypts the connection. Without it, anyone on the path can read the guest's memory.
    pub key: Option<MigrationKey>,
    pub method: MigrationMethod,
    pub limits: MigrationLimits,
    /// True if the target was started with its processors stopped, and is resumed only after the source has completed.
    /// The source may then cancel even during the switchover; otherwise both could run.
    pub held_target: bool,
}

/// Limits observed by the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationLimits {
    /// The expected suspend time below which the source switches over.
    pub suspend: Duration,
    /// Bytes per second on the connection; unlimited if absent.
    pub bandwidth: Option<ByteSize>,
    /// The time until the switchover. If absent, only [silence](super::SILENCE_MOST) ends a migration that does not
    /// converge.
    pub time: Option<Duration>,
}

impl Default for MigrationLimits {
    /// QEMU's default suspend time, and ten minutes.
    fn default() -> MigrationLimits {
        MigrationLimits { suspend: Duration::from_millis(300), bandwidth: None, time: Some(Duration::from_secs(600)) }
    }
}

/// Method of sending memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigrationMethod {
    /// The number of connections for memory, in addition to the main one. It requires [`MigrationWire::Channels`] or an
    /// address: a connected socket is one connection. With TLS, each has an encrypting thread.
    ///
    /// [`MigrationWire::Channels`]: super::MigrationWire::Channels
    pub channels: Option<NonZeroU8>,
    /// If the guest dirties memory faster than it can be sent, its vCPUs are throttled.
    pub auto_converge: Option<Throttling>,
    /// Once all memory was sent, the guest continues at the target, and what it has changed since follows (post-copy). From
    /// then on nothing can be cancelled, and **a broken connection stops the guest on both sides**. A guest that changes
    /// little has migrated by then.
    pub postcopy: bool,
}

impl MigrationOptions {
    pub(super) fn capabilities(&self) -> MigrationCapabilities {
        MigrationCapabilities {
            return_path: true,
            pause_before_switchover: true,
            auto_converge: self.method.auto_converge.is_some(),
            multifd: self.method.channels.is_some(),
            postcopy: self.method.postcopy,
        }
    }

    pub(super) fn parameters(&self, key: Option<&'static str>) -> MigrationParameters<'static> {
        MigrationParameters {
            downtime_limit: Some(self.limits.suspend),
            bandwidth: self.limits.bandwidth,
            tls_creds: key,
            throttling: self.method.auto_converge,
            channels: self.method.channels,
        }
    }
}
