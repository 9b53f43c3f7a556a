//! Commands for migration.

use std::{
    num::NonZeroU8,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use strum::IntoStaticStr;
use vtax_model::units::ByteSize;

use super::{
    Monitor, PATIENCE,
    migration_info::{DirtyRate, DirtyRateInfo, MigrationInfo},
};
use crate::error::GuestError;

/// The largest percentage that auto-converge may take from the vCPUs.
pub const CPU_THROTTLE_MOST: u32 = 99;
/// QEMU has no word for a bandwidth without a limit. It divides the limit, so the largest number would do, too; this is more
/// than any memory has.
const NO_LIMIT: u64 = 1 << 42;
/// Timeout for a key.
const TLS_PATIENCE: Duration = Duration::from_secs(60);
/// The pages of each GiB that QEMU compares to measure a dirty rate. Its default is 512, which is a standard error of 4 %
/// of the memory for a guest of 256 MiB; this is 1 to 2 %, and reads 16 MiB.
const DIRTY_SAMPLES: u32 = 4096;
/// The pause between two questions for a dirty rate.
const PAUSE: Duration = Duration::from_millis(100);

/// Features of a migration. Both ends must have the same, except for what concerns only the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigrationCapabilities {
    /// The target reports whether it has loaded the guest. Otherwise "completed" would only mean that all was sent.
    pub return_path: bool,
    /// The source waits before the switchover, when its vCPUs are stopped.
    pub pause_before_switchover: bool,
    /// The source slows the vCPUs down until less memory changes than can be sent.
    pub auto_converge: bool,
    /// Memory is sent over several connections.
    pub multifd: bool,
    /// The guest may go on at the target before all of its memory is there.
    pub postcopy: bool,
}

impl MigrationCapabilities {
    /// Every capability is said, also those that are off: an earlier attempt may have left them on.
    fn json(self) -> Value {
        let states = [
            ("events", true),
            ("return-path", self.return_path),
            ("pause-before-switchover", self.pause_before_switchover),
            ("auto-converge", self.auto_converge),
            ("multifd", self.multifd),
            ("postcopy-ram", self.postcopy),
        ];
        states.iter().map(|(name, state)| json!({ "capability": name, "state": state })).collect()
    }
}

/// Settings of auto-converge: percentages of their time that the vCPUs do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttling {
    pub initial: u32,
    pub increment: u32,
    /// At most [`CPU_THROTTLE_MOST`].
    pub most: u32,
}

impl Default for Throttling {
    /// QEMU's own.
    fn default() -> Throttling {
        Throttling { initial: 20, increment: 10, most: CPU_THROTTLE_MOST }
    }
}

/// Settings of a migration. What is absent stays as QEMU has it, except for a bandwidth and TLS: without them there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigrationParameters<'a> {
    /// The longest expected suspend time with which the source switches over.
    pub downtime_limit: Option<Duration>,
    /// The bytes per second that the source sends at most.
    pub bandwidth: Option<ByteSize>,
    /// The object with the key ([`Monitor::add_tls_key`]).
    pub tls_creds: Option<&'a str>,
    pub throttling: Option<Throttling>,
    /// The number of connections with multifd.
    pub channels: Option<NonZeroU8>,
}

impl MigrationParameters<'_> {
    fn json(&self) -> Value {
        let mut all = Map::new();
        let mut set = |name: &str, value: Value| all.insert(name.to_owned(), value);
        set("max-bandwidth", self.bandwidth.map_or(NO_LIMIT, |limit| limit.0).into());
        set("tls-creds", self.tls_creds.unwrap_or_default().into());
        if let Some(limit) = self.downtime_limit {
            set("downtime-limit", u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).into());
        }
        if let Some(channels) = self.channels {
            set("multifd-channels", channels.get().into());
        }
        if let Some(Throttling { initial, increment, most }) = self.throttling {
            set("cpu-throttle-initial", initial.into());
            set("cpu-throttle-increment", increment.into());
            set("max-cpu-throttle", most.into());
        }
        all.into()
    }
}

/// The role in a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum TlsEndpoint {
    /// The source of a migration.
    Client,
    /// The target of a migration.
    Server,
}

impl Monitor {
    pub fn set_migration_capabilities(&mut self, capabilities: MigrationCapabilities) -> Result<(), GuestError> {
        self.command("migrate-set-capabilities", json!({ "capabilities": capabilities.json() }))
    }

    pub fn set_migration_parameters(&mut self, parameters: &MigrationParameters<'_>) -> Result<(), GuestError> {
        self.command("migrate-set-parameters", parameters.json())
    }

    /// Starts to migrate the guest to an address in QEMU's form, and returns at once.
    pub fn migrate(&mut self, uri: &str) -> Result<(), GuestError> {
        self.command("migrate", json!({ "uri": uri }))
    }

    /// Awaits a guest at an address in QEMU's form, if QEMU was started for that
    /// ([`Launch::incoming`](crate::launch::Launch::incoming)), and returns at once.
    pub fn migrate_incoming(&mut self, uri: &str) -> Result<(), GuestError> {
        self.command("migrate-incoming", json!({ "uri": uri }))
    }

    /// Switches over after the pause before that.
    pub fn continue_migration(&mut self) -> Result<(), GuestError> {
        self.command("migrate-continue", json!({ "state": "pre-switchover" }))
    }

    /// Asks the source to cancel. Only [`Monitor::migration`] says whether that came in time.
    pub fn cancel_migration(&mut self) -> Result<(), GuestError> {
        self.command("migrate_cancel", json!({}))
    }

    /// Lets the guest go on at the target now, before all of its memory is there.
    pub fn start_postcopy(&mut self) -> Result<(), GuestError> {
        self.command("migrate-start-postcopy", json!({}))
    }

    /// State and progress of a migration to or from this QEMU.
    pub fn migration(&mut self) -> Result<MigrationInfo, GuestError> {
        self.query("query-migrate")
    }

    /// Measures for this many seconds, at most 60, how fast the running guest changes its memory.
    pub fn measure_dirty_rate(&mut self, seconds: u8) -> Result<Option<DirtyRate>, GuestError> {
        self.command("calc-dirty-rate", json!({ "calc-time": seconds, "sample-pages": DIRTY_SAMPLES }))?;
        let deadline = Instant::now() + Duration::from_secs(seconds.into()) + PATIENCE;
        loop {
            thread::sleep(PAUSE);
            let rate = self.query::<DirtyRateInfo>("query-dirty-rate")?.rate();
            if rate.is_some() || Instant::now() >= deadline {
                return Ok(rate);
            }
        }
    }

    /// Adds an object with a key that both ends of a TLS connection know, from the file `keys.psk` in this directory. The
    /// server reads the file at each handshake.
    pub fn add_tls_key(&mut self, id: &str, endpoint: TlsEndpoint, directory: &str) -> Result<(), GuestError> {
        let endpoint: &str = endpoint.into();
        let object = json!({ "qom-type": "tls-creds-psk", "id": id, "endpoint": endpoint, "dir": directory });
        // A server may first make Diffie-Hellman parameters.
        self.ask::<Value>("object-add", object, Instant::now() + TLS_PATIENCE).map(|_| ())
    }

    pub fn remove_object(&mut self, id: &str) -> Result<(), GuestError> {
        self.command("object-del", json!({ "id": id }))
    }
}
