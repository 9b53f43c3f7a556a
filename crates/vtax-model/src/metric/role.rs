//! The table of roles: the names of the parts of the hosts' CPU time, and their figures in a sample.

use super::{CpuRole, SampleFigure};
use crate::run::HostCpu;

pub(super) struct RoleEntry {
    role: CpuRole,
    /// Name of its metric.
    pub(super) name: &'static str,
    /// Column heading, and noun of a comparison.
    pub(super) noun: &'static str,
    /// Exact definition of its metric.
    pub(super) described: &'static str,
    /// Title of its tables.
    pub(super) title: &'static str,
    /// Words after the size of a rise.
    pub(super) more: &'static str,
    /// Words after the size of a fall.
    pub(super) less: &'static str,
    /// Per transaction, and per byte count.
    pub(super) figures: [SampleFigure; 2],
    /// CPU seconds of one observation; `None` if the row has nothing in this role.
    seconds: fn(&HostCpu) -> Option<f64>,
}

/// One entry for each, in the order of the variants.
const ROLES: [RoleEntry; CpuRole::COUNT] = [
    RoleEntry {
        role: CpuRole::Guest,
        name: "host_cpu_guest",
        noun: "guest CPU",
        described: "part of the hosts' CPU time: instructions of the endpoints' guests (TCG: their emulation)",
        title: "CPU of the endpoints' guests",
        more: "more CPU time of its guests",
        less: "less CPU time of its guests",
        figures: [SampleFigure::GuestPerTransaction, SampleFigure::GuestPerKb],
        seconds: |host| Some(host.guest()),
    },
    RoleEntry {
        role: CpuRole::Service,
        name: "host_cpu_service",
        noun: "service CPU",
        described: "part of the hosts' CPU time: instructions of the guests that serve switches (service domains)",
        title: "CPU of guests that serve switches",
        more: "more CPU time of the guests that serve switches",
        less: "less CPU time of the guests that serve switches",
        figures: [SampleFigure::ServicePerTransaction, SampleFigure::ServicePerKb],
        seconds: HostCpu::service,
    },
    RoleEntry {
        role: CpuRole::Vhost,
        name: "host_cpu_vhost",
        noun: "vhost CPU",
        described: "part of the hosts' CPU time: the workers of vhost",
        title: "CPU of vhost",
        more: "more CPU time of vhost",
        less: "less CPU time of vhost",
        figures: [SampleFigure::VhostPerTransaction, SampleFigure::VhostPerKb],
        seconds: |host| Some(host.vhost()),
    },
    RoleEntry {
        role: CpuRole::Iothread,
        name: "host_cpu_iothread",
        noun: "iothread CPU",
        described: "part of the hosts' CPU time: threads of QEMU that serve only disks",
        title: "CPU of iothreads",
        more: "more CPU time of iothreads",
        less: "less CPU time of iothreads",
        figures: [SampleFigure::IothreadPerTransaction, SampleFigure::IothreadPerKb],
        seconds: |host| Some(host.iothread()),
    },
    RoleEntry {
        role: CpuRole::Daemon,
        name: "host_cpu_daemon",
        noun: "daemon CPU",
        described: "part of the hosts' CPU time: the storage daemons of disks",
        title: "CPU of storage daemons",
        more: "more CPU time of storage daemons",
        less: "less CPU time of storage daemons",
        figures: [SampleFigure::DaemonPerTransaction, SampleFigure::DaemonPerKb],
        seconds: |host| Some(host.daemon()),
    },
    RoleEntry {
        role: CpuRole::Qemu,
        name: "host_cpu_qemu",
        noun: "QEMU CPU",
        described: "part of the hosts' CPU time: the rest of QEMU",
        title: "CPU of QEMU",
        more: "more CPU time of QEMU",
        less: "less CPU time of QEMU",
        figures: [SampleFigure::QemuPerTransaction, SampleFigure::QemuPerKb],
        seconds: |host| Some(host.qemu()),
    },
    RoleEntry {
        role: CpuRole::Relay,
        name: "host_cpu_relay",
        noun: "relay CPU",
        described: "part of the hosts' CPU time: programs that carry the traffic of zones, e.g. pasta",
        title: "CPU of relays",
        more: "more CPU time of relays",
        less: "less CPU time of relays",
        figures: [SampleFigure::RelayPerTransaction, SampleFigure::RelayPerKb],
        seconds: |host| (!host.relays.is_empty()).then(|| host.relay()),
    },
    RoleEntry {
        role: CpuRole::Kernel,
        name: "host_cpu_kernel",
        noun: "kernel CPU",
        described: "the hosts' kernel on behalf of guests, a share of vhost, iothreads, daemons and QEMU",
        title: "CPU of the hosts' kernel",
        more: "more CPU time of the hosts' kernel",
        less: "less CPU time of the hosts' kernel",
        figures: [SampleFigure::KernelPerTransaction, SampleFigure::KernelPerKb],
        seconds: |host| host.kernel().filter(|_| !host.guests.is_empty()),
    },
    RoleEntry {
        role: CpuRole::Interrupts,
        name: "host_cpu_interrupts",
        noun: "interrupt CPU",
        described: "interrupts of the whole machine, including those of other programs, while guests were observed",
        title: "CPU of interrupts",
        more: "more CPU time of interrupts",
        less: "less CPU time of interrupts",
        figures: [SampleFigure::InterruptsPerTransaction, SampleFigure::InterruptsPerKb],
        seconds: |host| Some(host.host_stack()),
    },
];

const _: () = {
    let mut index = 0;
    while index < CpuRole::COUNT {
        assert!(ROLES[index].role as usize == index, "each entry stands at its variant");
        index += 1;
    }
};

impl CpuRole {
    pub(super) const fn entry(self) -> &'static RoleEntry {
        &ROLES[self as usize]
    }

    /// Returns the CPU seconds of one observation; `None` if nothing has this role in the row, or it isn't known.
    pub(crate) fn seconds(self, host: &HostCpu) -> Option<f64> {
        (self.entry().seconds)(host)
    }
}
