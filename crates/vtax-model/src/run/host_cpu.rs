//! Cost of guests, as observed on their host.
//!
//! A guest can't see what it costs to be a guest: the work of translating or running its instructions and of
//! moving its packets. Its host can.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{foreign::ForeignText, guest::Accelerator};

/// CPU time of a sample's guests and their host during the observation, in seconds.
///
/// The parts are not to be added up: a softirq that interrupts a thread is charged to both, unless
/// the kernel keeps time for interrupts apart (`IRQ_TIME_ACCOUNTING`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCpu {
    /// Duration of the observation: slightly less than the measured time, whose edges are omitted.
    pub seconds: f64,
    /// True if they were observed for the whole sample instead, with its warm-up, because it wasn't known
    /// beforehand when the measured time would begin or end.
    #[serde(default)]
    pub whole_sample: bool,
    /// Software interrupts of the whole machine, in ticks of usually 10 ms: most of the receive
    /// path of its network stack.
    pub softirq: f64,
    /// Hardware interrupts of the whole machine, in ticks.
    pub irq: f64,
    /// All guests of the machine, by KVM alone, in ticks.
    pub all_guests: f64,
    /// Interrupts that the machine took, all CPUs.
    pub interrupts: u64,
    /// Each guest of the row once, including those that serve the switches between its ends.
    pub guests: Vec<GuestCpu>,
    /// Each program that carries the traffic of one of the row's zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayCpu>,
}

/// Cost of a program of the host that carries a zone's traffic, e.g. pasta, in CPU seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelayCpu {
    pub program: ForeignText,
    pub pid: u32,
    /// All its threads, in user space and in the kernel.
    pub busy: f64,
}

/// Host cost of one guest, in CPU seconds. The parts do not overlap.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestCpu {
    /// The guest, or libvirt's domain.
    pub name: ForeignText,
    /// QEMU's process. Another one under the same name is another boot.
    pub pid: u32,
    /// True if no end is in it, and it serves a switch between the ends.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub serves: bool,
    /// KVM or TCG.
    pub accel: Accelerator,
    /// KVM: the vCPUs' threads in the guest, which the kernel counts by ticks. TCG: all of the
    /// vCPUs' threads, for there the guest's instructions are QEMU's.
    pub guest: f64,
    /// The workers of vhost.
    pub vhost: f64,
    /// The threads of QEMU that do nothing but serve the row's disks (iothreads).
    #[serde(default)]
    pub iothread: f64,
    /// The storage daemons that serve the row's disks.
    #[serde(default)]
    pub daemon: f64,
    /// The rest of QEMU; under KVM the vCPUs' threads outside the guest too.
    pub qemu: f64,
    /// Part of all these except the guest's own that was spent in the host's kernel, in ticks: system calls, and under KVM its work
    /// for the guest. Records of before 2026-11-26 don't have it.
    pub kernel: Option<f64>,
    /// Number of VM exits of its vCPUs; absent without access to KVM's counters.
    pub exits: Option<u64>,
    /// Its clock before the sample, if it has told.
    pub clock: Option<ClockReading>,
}

/// A guest's monotonic clock next to its host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// When, in nanoseconds of the host's.
    pub at_ns: u64,
    /// Offset of the guest's clock, in nanoseconds.
    pub ahead_ns: i64,
    /// Bound of the error of this offset, in nanoseconds.
    pub uncertainty_ns: u64,
}

impl HostCpu {
    /// Instructions of the guests in which ends are.
    pub fn guest(&self) -> f64 {
        self.sum(|guest| if guest.serves { 0.0 } else { guest.guest })
    }

    /// Instructions of the guests that serve switches; `None` if there are none.
    pub fn service(&self) -> Option<f64> {
        let serves = self.guests.iter().any(|guest| guest.serves);
        serves.then(|| self.sum(|guest| if guest.serves { guest.guest } else { 0.0 }))
    }

    /// vhost's workers.
    pub fn vhost(&self) -> f64 {
        self.sum(|guest| guest.vhost)
    }

    /// The threads of QEMU that do nothing but serve disks.
    pub fn iothread(&self) -> f64 {
        self.sum(|guest| guest.iothread)
    }

    /// The storage daemons.
    pub fn daemon(&self) -> f64 {
        self.sum(|guest| guest.daemon)
    }

    /// The host's kernel for all of them but the guests themselves; `None` if that of one guest isn't known.
    pub fn kernel(&self) -> Option<f64> {
        self.guests.iter().map(|guest| guest.kernel).sum()
    }

    /// The rest of QEMU.
    pub fn qemu(&self) -> f64 {
        self.sum(|guest| guest.qemu)
    }

    /// The programs that carry the traffic of zones.
    pub fn relay(&self) -> f64 {
        self.relays.iter().map(|relay| relay.busy).sum()
    }

    /// All that was spent on the guests, and by the programs that carry the traffic of zones.
    pub fn spent(&self) -> f64 {
        self.guest()
            + self.service().unwrap_or(0.0)
            + self.vhost()
            + self.iothread()
            + self.daemon()
            + self.qemu()
            + self.relay()
    }

    /// Interrupts of the whole machine, both kinds.
    pub fn host_stack(&self) -> f64 {
        self.softirq + self.irq
    }

    /// Exits of all guests; `None` if those of one guest aren't known.
    pub fn exits(&self) -> Option<u64> {
        self.guests.iter().try_fold(0_u64, |sum, guest| Some(sum.saturating_add(guest.exits?)))
    }

    fn sum(&self, part: fn(&GuestCpu) -> f64) -> f64 {
        self.guests.iter().map(part).sum()
    }
}
