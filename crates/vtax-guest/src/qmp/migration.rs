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

/// The largest percentage by which auto-converge may throttle the vCPUs.
pub const CPU_THROTTLE_MOST: u32 = 99;
/// QEMU has no value for unlimited bandwidth. This exceeds any memory bandwidth.
const NO_LIMIT: u64 = 1 << 42;
/// Timeout for adding a key.
const TLS_PATIENCE: Duration = Duration::from_secs(60);
/// Pages per GiB that QEMU samples to measure a dirty rate. Its default of 512 means a standard error of 4 % of the
/// memory for a guest of 256 MiB; this value means 1 to 2 %, and reads 16 MiB.
const DIRTY_SAMPLES: u32 = 4096;
/// Polling interval for a dirty rate.
const PAUSE: Duration = Duration::from_millis(100);

/// Migration capabilities. Both ends must have the same, except for those that concern only the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigrationCapabilities {
    /// The target reports whether it has loaded the guest. Otherwise "completed" would only mean that everything was
    /// sent.
    pub return_path: bool,
    /// The source waits before the switchover, with its vCPUs stopped.
    pub pause_before_switchover: bool,
    /// The source throttles the vCPUs until less memory is dirtied than can be sent.
    pub auto_converge: bool,
    /// Memory is sent over several connections.
    pub multifd: bool,
    /// The guest may continue at the target before all of its memory has arrived.
    pub postcopy: bool,
}

impl MigrationCapabilities {
    /// All capabilities are sent, including disabled ones: an earlier attempt may have left them enabled.
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

/// Settings of auto-converge: percentages of time that the vCPUs don't run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttling {
    pub initial: u32,
    pub increment: u32,
    /// At most [`CPU_THROTTLE_MOST`].
    pub most: u32,
}

impl Default for Throttling {
    /// QEMU's defaults.
    fn default() -> Throttling {
        Throttling { initial: 20, increment: 10, most: CPU_THROTTLE_MOST }
    }
}

/// Settings of a migration. Absent values keep QEMU's defaults, except that absent bandwidth means no limit and absent
/// TLS no encryption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigrationParameters<'a> {
    /// The longest expected suspend time at which the source switches over.
    pub downtime_limit: Option<Duration>,
    /// Bandwidth limit of the source in bytes per second.
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

    /// Starts migrating the guest to an address in QEMU's form, and returns immediately.
    pub fn migrate(&mut self, uri: &str) -> Result<(), GuestError> {
        self.command("migrate", json!({ "uri": uri }))
    }

    /// Starts listening for a guest at an address in QEMU's form, if QEMU was started for that
    /// ([`Launch::incoming`](crate::launch::Launch::incoming)), and returns immediately.
    pub fn migrate_incoming(&mut self, uri: &str) -> Result<(), GuestError> {
        self.command("migrate-incoming", json!({ "uri": uri }))
    }

    /// Switches over after the pause.
    pub fn continue_migration(&mut self) -> Result<(), GuestError> {
        self.command("migrate-continue", json!({ "state": "pre-switchover" }))
    }

    /// Asks the source to cancel. Only [`Monitor::migration`] shows whether that was in time.
    pub fn cancel_migration(&mut self) -> Result<(), GuestError> {
        self.command("migrate_cancel", json!({}))
    }

    /// Lets the guest continue at the target now, before all of its memory has arrived.
    pub fn start_postcopy(&mut self) -> Result<(), GuestError> {
        self.command("migrate-start-postcopy", json!({}))
    }

    /// State and progress of a migration to or from this QEMU.
    pub fn migration(&mut self) -> Result<MigrationInfo, GuestError> {
        self.query("query-migrate")
    }

    /// Measures for this many seconds, at most 60, how fast the running guest dirties its memory.
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

    /// Adds an object with the shared key of both ends of a TLS connection, from the file `keys.psk` in this directory.
    /// The server reads the file at each handshake.
    pub fn add_tls_key(&mut self, id: &str, endpoint: TlsEndpoint, directory: &str) -> Result<(), GuestError> {
        let endpoint: &str = endpoint.into();
        let object = json!({ "qom-type": "tls-creds-psk", "id": id, "endpoint": endpoint, "dir": directory });
        // A server may have to generate Diffie-Hellman parameters first.
        self.ask::<Value>("object-add", object, Instant::now() + TLS_PATIENCE).map(|_| ())
    }

    pub fn remove_object(&mut self, id: &str) -> Result<(), GuestError> {
        self.command("object-del", json!({ "id": id }))
    }
}
