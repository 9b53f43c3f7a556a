//! JSON of `migrate-domain`.

use serde::Serialize;
use vtax_domain::Migrated;
use vtax_model::topology::Name;

use super::MigrationPlan;

const SCHEMA: &str = "vtax.migration/v1";

/// A migration that is complete, for programs.
#[derive(Debug, Serialize)]
pub(super) struct MigrationDocument<'a> {
    schema: &'static str,
    domain: &'a Name,
    new_name: &'a Name,
    target: &'a str,
    encrypted: bool,
    total_ms: f64,
    /// Suspend time according to QEMU.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_qemu_ms: Option<f64>,
    /// Suspend time between the events of both QEMUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_events_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MovedMemory>,
}

/// Memory of a domain that moved while it ran.
#[derive(Debug, Serialize)]
struct MovedMemory {
    total_bytes: u64,
    sent_bytes: u64,
    passes: u64,
    dirty_bytes_per_second: u64,
}

impl<'a> MigrationDocument<'a> {
    pub(super) fn of(moved: &Migrated, plan: &'a MigrationPlan<'_>, target: &'a str) -> MigrationDocument<'a> {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let ram = moved.info.as_ref().and_then(|info| info.ram.as_ref());
        let memory = ram.map(|ram| MovedMemory {
            total_bytes: ram.total,
            sent_bytes: ram.transferred,
            passes: ram.dirty_sync_count,
            dirty_bytes_per_second: ram.dirty_rate().0,
        });
        MigrationDocument {
            schema: SCHEMA,
            domain: &plan.moved.domain,
            new_name: &plan.moved.new_name,
            target,
            encrypted: moved.info.is_some() && !plan.how.plain,
            total_ms: ms(moved.total),
            suspended_qemu_ms: moved.suspend.by_qemu.map(ms),
            suspended_events_ms: moved.suspend.by_events.map(ms),
            memory,
        }
    }
}
