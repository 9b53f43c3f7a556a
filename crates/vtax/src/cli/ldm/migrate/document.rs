//! JSON of `migrate-domain`.

use std::net::IpAddr;

use serde::Serialize;
use vtax_model::topology::Name;
use vtax_run::PeerSilence;

use super::{MigrationPlan, run::ObservedMove};

const SCHEMA: &str = "vtax.migration/v1";

/// A migration that is complete, for programs.
#[derive(Debug, Serialize)]
pub(super) struct MigrationDocument<'a> {
    schema: &'static str,
    domain: &'a Name,
    new_name: &'a Name,
    target: &'a str,
    encrypted: bool,
    /// Connections for memory. None if the domain did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<u8>,
    total_ms: f64,
    /// Suspend time according to QEMU.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_qemu_ms: Option<f64>,
    /// Suspend time between the events of both QEMUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_events_ms: Option<f64>,
    /// Suspend time by the guest's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_guest_clock_ms: Option<f64>,
    /// The most by which that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended_guest_clock_error_ms: Option<f64>,
    /// Silence that the source's host has heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<WatchedDomain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MovedMemory>,
}

/// The longest silence of a domain that was sent an echo request each millisecond.
#[derive(Debug, Serialize)]
struct WatchedDomain {
    address: IpAddr,
    silence_ms: f64,
    /// False if the domain had not answered again when the watch ended: the silence is longer.
    ended: bool,
    requests_lost: u64,
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
    pub(super) fn of(observed: &ObservedMove, plan: &'a MigrationPlan<'_>, target: &'a str) -> MigrationDocument<'a> {
        let ObservedMove { moved, observed } = observed;
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let clock = observed.by_guest_clock;
        let peer = observed.by_peer.as_ref().map(|PeerSilence { address, silence }| WatchedDomain {
            address: *address,
            silence_ms: ms(silence.length()),
            ended: !silence.unended,
            requests_lost: silence.lost,
        });
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
            channels: moved.info.is_some().then_some(plan.how.channels.get()),
            total_ms: ms(moved.total),
            suspended_qemu_ms: moved.suspend.by_qemu.map(ms),
            suspended_events_ms: moved.suspend.by_events.map(ms),
            suspended_guest_clock_ms: clock.map(|found| found.length_ns as f64 / 1e6),
            suspended_guest_clock_error_ms: clock.map(|found| found.uncertainty_ns as f64 / 1e6),
            peer,
            memory,
        }
    }
}
