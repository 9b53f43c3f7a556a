//! QEMU's reports about a migration (`query-migrate`, `query-dirty-rate`).

use std::time::Duration;

use serde::Deserialize;
use vtax_model::{foreign::ForeignText, units::ByteSize};

/// Reply to `query-migrate`. QEMU omits unknown values.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MigrationInfo {
    pub status: MigrationStatus,
    /// Milliseconds.
    total_time: Option<u64>,
    /// Milliseconds.
    downtime: Option<u64>,
    /// Milliseconds.
    expected_downtime: Option<u64>,
    /// Milliseconds.
    setup_time: Option<u64>,
    pub ram: Option<MigrationRam>,
    /// The percentage by which auto-converge throttles each vCPU.
    pub cpu_throttle_percentage: Option<u32>,
    /// QEMU's reason for a failure.
    pub error_desc: Option<ForeignText>,
    /// All reasons why this guest cannot migrate now.
    pub blocked_reasons: Vec<ForeignText>,
    /// The sockets on which an incoming migration is awaited.
    pub socket_address: Vec<MigrationSocket>,
}

impl MigrationInfo {
    /// The time since the start, or the total time at the end.
    pub fn total_time(&self) -> Option<Duration> {
        self.total_time.map(Duration::from_millis)
    }

    /// The guest's suspend time according to the source, once the migration is complete.
    pub fn downtime(&self) -> Option<Duration> {
        self.downtime.map(Duration::from_millis)
    }

    /// The suspend time that QEMU expects from the current dirty rate and bandwidth.
    pub fn expected_downtime(&self) -> Option<Duration> {
        self.expected_downtime.map(Duration::from_millis)
    }

    /// The time before the first page was sent.
    pub fn setup_time(&self) -> Option<Duration> {
        self.setup_time.map(Duration::from_millis)
    }
}

/// Progress of the guest's memory.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MigrationRam {
    /// Bytes sent.
    pub transferred: u64,
    /// Bytes not sent yet, or dirtied since.
    pub remaining: u64,
    /// Total bytes of memory.
    pub total: u64,
    /// Pages that the guest dirties per second.
    pub dirty_pages_rate: u64,
    pub page_size: u64,
    /// Throughput in Mbit/s.
    pub mbps: f64,
    /// Number of passes over the memory.
    pub dirty_sync_count: u64,
}

impl MigrationRam {
    /// Bytes that the guest dirties per second. Known to QEMU after the second pass.
    pub fn dirty_rate(&self) -> ByteSize {
        ByteSize(self.dirty_pages_rate.saturating_mul(self.page_size))
    }
}

/// State of a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationStatus {
    /// No migration was started.
    #[default]
    None,
    /// Connecting.
    Setup,
    /// Memory is sent while the guest runs.
    Active,
    /// The vCPUs are stopped at the source, which waits for `migrate-continue`.
    PreSwitchover,
    /// Device state is sent.
    Device,
    /// The guest runs at the target, and the rest of its memory follows.
    PostcopyActive,
    /// The connection was lost during postcopy.
    PostcopyPaused,
    PostcopyRecoverSetup,
    PostcopyRecover,
    Completed,
    /// It was abandoned, and the guest may not be running again yet.
    Failed,
    Cancelling,
    Cancelled,
    /// The guest's system is asked to release a NIC.
    WaitUnplug,
    /// A state unknown to this program.
    #[serde(other)]
    Other,
}

/// A socket on which an incoming migration is awaited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MigrationSocket {
    #[serde(rename = "type")]
    pub kind: String,
    pub host: String,
    pub port: String,
}

/// Reply to `query-dirty-rate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct DirtyRateInfo {
    pub(super) status: DirtyRateStatus,
    /// MiB/s, once measured.
    #[serde(default)]
    dirty_rate: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DirtyRateStatus {
    Unstarted,
    Measuring,
    Measured,
}

impl DirtyRateInfo {
    pub(super) fn rate(self) -> Option<DirtyRate> {
        let measured = self.dirty_rate.filter(|_| self.status == DirtyRateStatus::Measured)?;
        Some(DirtyRate { per_second: ByteSize(u64::try_from(measured).ok()?.saturating_mul(1 << 20)) })
    }
}

/// The rate at which a running guest dirties its memory, estimated by QEMU from a sample of pages. A page that changes
/// several times counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyRate {
    pub per_second: ByteSize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_as_qemu_reports_it() {
        const ACTIVE: &str = r#"{"expected-downtime": 300, "status": "active", "setup-time": 2, "total-time": 1501,
            "ram": {"total": 286277632, "postcopy-requests": 0, "dirty-sync-count": 2, "multifd-bytes": 0,
            "pages-per-second": 28000, "downtime-bytes": 0, "page-size": 4096, "remaining": 1048576, "mbps": 932.25,
            "transferred": 80123, "dirty-sync-missed-zero-copy": 0, "precopy-bytes": 80123, "duplicate": 60,
            "dirty-pages-rate": 25600, "normal-bytes": 77, "normal": 9}}"#;
        let info: MigrationInfo = serde_json::from_str(ACTIVE).expect("as QEMU 10.0 has it");
        let ram = info.ram.as_ref().expect("it is there");
        assert_eq!((info.status, info.total_time()), (MigrationStatus::Active, Some(Duration::from_millis(1501))));
        assert_eq!((ram.remaining, ram.dirty_sync_count, ram.dirty_rate()), (1 << 20, 2, ByteSize(100 << 20)));
        assert_eq!((info.expected_downtime(), info.downtime()), (Some(Duration::from_millis(300)), None));
    }

    #[test]
    fn each_status_has_the_name_that_qemu_gives_it() {
        let read = |name: &str| serde_json::from_str::<MigrationStatus>(&format!("{name:?}")).expect("a status");
        assert_eq!(read("pre-switchover"), MigrationStatus::PreSwitchover);
        assert_eq!(read("postcopy-recover-setup"), MigrationStatus::PostcopyRecoverSetup);
        assert_eq!(read("wait-unplug"), MigrationStatus::WaitUnplug);
        assert_eq!(read("colo"), MigrationStatus::Other);
        assert_eq!(serde_json::from_str::<MigrationInfo>("{}").expect("none yet"), MigrationInfo::default());
    }

    #[test]
    fn a_dirty_rate_is_there_once_it_is_measured() {
        let rate = |text| serde_json::from_str::<DirtyRateInfo>(text).expect("a reply").rate();
        let measured = r#"{"status": "measured", "sample-pages": 512, "dirty-rate": 98, "mode": "page-sampling"}"#;
        assert_eq!(rate(measured), Some(DirtyRate { per_second: ByteSize(98 << 20) }));
        assert_eq!(rate(r#"{"status": "measuring", "dirty-rate": -1}"#), None);
    }
}
