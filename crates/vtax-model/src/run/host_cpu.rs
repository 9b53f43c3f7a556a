//! Cost of guests, as observed on their host.
//!
//! A guest can't see the cost of being a guest: translating or running its instructions and moving its packets. Its
//! host can.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{foreign::ForeignText, guest::Accelerator};

/// CPU time of a sample's guests and their host during the observation, in seconds.
///
/// The parts must not be added up: a softirq that interrupts a thread is charged to both, unless
/// the kernel accounts for interrupts separately (`IRQ_TIME_ACCOUNTING`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCpu {
    /// Duration of the observation: slightly less than the measured time, whose edges are omitted.
    pub seconds: f64,
    /// True if they were observed for the whole sample instead, including its warm-up, because it wasn't known
    /// beforehand when the measured time would begin or end.
    #[serde(default)]
    pub whole_sample: bool,
    /// Software interrupts of the whole machine, in ticks of usually 10 ms: most of the receive
    /// path of its network stack.
    pub softirq: f64,
    /// Hardware interrupts of the whole machine, in ticks.
    pub irq: f64,
    /// All guests of the machine, under KVM only, in ticks.
    pub all_guests: f64,
    /// Number of interrupts on all CPUs of the machine.
    pub interrupts: u64,
    /// Each guest of the row once, including those that serve the switches between its endpoints.
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
    /// PID of QEMU. Another one under the same name is another boot.
    pub pid: u32,
    /// True if it contains no endpoint, and serves a switch between the endpoints.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub serves: bool,
    /// KVM or TCG.
    pub accel: Accelerator,
    /// KVM: the vCPUs' threads in the guest, which the kernel counts by ticks. TCG: all of the
    /// vCPUs' threads, because there QEMU executes the guest's instructions.
    pub guest: f64,
    /// The workers of vhost.
    pub vhost: f64,
    /// QEMU threads that only serve the row's disks (iothreads).
    #[serde(default)]
    pub iothread: f64,
    /// The storage daemons that serve the row's disks.
    #[serde(default)]
    pub daemon: f64,
    /// The rest of QEMU; under KVM also the vCPUs' threads outside the guest.
    pub qemu: f64,
    /// Part of all these except the guest's own that was spent in the host's kernel, in ticks: system calls, and under
    /// KVM its work for the guest. Absent in records from before 2026-11-26.
    pub kernel: Option<f64>,
    /// Number of VM exits of its vCPUs; absent without access to KVM's counters.
    pub exits: Option<u64>,
    /// Its clock before the sample, if reported.
    pub clock: Option<ClockReading>,
}

/// Reading of a guest's monotonic clock together with its host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Time of the reading, in nanoseconds of the host's clock.
    pub at_ns: u64,
    /// Offset of the guest's clock, in nanoseconds.
    pub ahead_ns: i64,
    /// Bound of the error of this offset, in nanoseconds.
    pub uncertainty_ns: u64,
}

impl HostCpu {
    /// Returns the time of the instructions of guests with endpoints.
    pub fn guest(&self) -> f64 {
        self.sum(|guest| if guest.serves { 0.0 } else { guest.guest })
    }

    /// Returns the time of the instructions of guests that serve switches; `None` if there are
    /// none.
    pub fn service(&self) -> Option<f64> {
        let serves = self.guests.iter().any(|guest| guest.serves);
        serves.then(|| self.sum(|guest| if guest.serves { guest.guest } else { 0.0 }))
    }

    /// vhost's workers.
    pub fn vhost(&self) -> f64 {
        self.sum(|guest| guest.vhost)
    }

    /// Returns the time of QEMU threads that only serve disks.
    pub fn iothread(&self) -> f64 {
        self.sum(|guest| guest.iothread)
    }

    /// The storage daemons.
    pub fn daemon(&self) -> f64 {
        self.sum(|guest| guest.daemon)
    }

    /// Returns the time of the host's kernel for all of them except the guests themselves; `None` if that of one guest
    /// isn't known.
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

    /// Returns the total time spent on the guests, and by the programs that carry the traffic of
    /// zones.
    pub fn spent(&self) -> f64 {
        self.guest()
            + self.service().unwrap_or(0.0)
            + self.vhost()
            + self.iothread()
            + self.daemon()
            + self.qemu()
            + self.relay()
    }

    /// Returns the time of interrupts of the whole machine, both kinds.
    pub fn host_stack(&self) -> f64 {
        self.softirq + self.irq
    }

    /// Returns the number of exits of all guests; `None` if those of one guest aren't known.
    pub fn exits(&self) -> Option<u64> {
        self.guests.iter().try_fold(0_u64, |sum, guest| Some(sum.saturating_add(guest.exits?)))
    }

    fn sum(&self, part: fn(&GuestCpu) -> f64) -> f64 {
        self.guests.iter().map(part).sum()
    }
}
