//! Host cost of guests over the samples of a cell, and drift of their clocks.

use serde::{Deserialize, Serialize};

use super::Estimate;
use crate::{foreign::ForeignText, guest::Accelerator};

/// Host CPU time: per transaction, or per 1,024 bytes of a stream or a file. Times are µs of
/// CPU. The host's stack overlaps with the others: see [`HostCpu`](crate::run::HostCpu).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostCpuSummary {
    /// Accelerator of the guests; absent for a row without guests: of zones, or the host's own disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accel: Option<Accelerator>,
    /// Instructions of the guests in which endpoints are: under TCG their emulation.
    pub guest: Estimate,
    /// Instructions of the guests that serve switches; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Estimate>,
    /// vhost's workers.
    pub vhost: Estimate,
    /// Threads of QEMU that only serve the row's disks; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iothread: Option<Estimate>,
    /// The storage daemons of the row's disks; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Estimate>,
    /// The rest of QEMU.
    pub qemu: Estimate,
    /// The programs that carry the traffic of zones; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Estimate>,
    /// Part of the time of vhost, iothreads, daemons and QEMU spent in the host's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Estimate>,
    /// Interrupts of the machine, hardware and software.
    pub host_stack: Estimate,
    /// Exits of the guests; absent without KVM's counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_exits: Option<Estimate>,
    /// Interrupts that the machine took.
    pub interrupts: Estimate,
    /// True if whole samples were observed, with their warm-up, instead of the measured time.
    #[serde(default)]
    pub whole_samples: bool,
}

/// Drift of a guest's clock relative to its host's, from its first sample to its last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestClock {
    /// Name of the guest, which has an entry for each boot in which its clock was read at least twice.
    pub guest: ForeignText,
    /// Seconds between the two readings.
    pub seconds: f64,
    /// Rate above the host's, in parts per million.
    pub drift_ppm: f64,
    /// Bound of the error of this rate, in parts per million.
    pub uncertainty_ppm: f64,
}

impl GuestClock {
    /// In ppm: NTP corrects no clock that is worse than 500 (RFC 5905, section 11); a guest's clock should be its
    /// host's.
    const MUCH: f64 = 100.0;

    /// Returns true if it drifts by more, even if the error is at its bound.
    pub fn is_much(&self) -> bool {
        self.drift_ppm.abs() - self.uncertainty_ppm > GuestClock::MUCH
    }
}
