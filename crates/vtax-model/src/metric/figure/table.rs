//! The table of figures.

use super::SampleFigure;
use crate::{
    metric::{CpuRole, FigureUnit, SamplePercentile, ns_per_kb},
    run::Figures,
    workload::WorkUnit,
};

/// Place of the figure's estimate in a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Under the figure's own name.
    Alone,
    /// With others of its kind: percentiles of round trips, CPU time of a file.
    AmongOthers,
}

/// Requirement of a figure in addition to the counts of the counting endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FigureOrigin {
    Counts,
    /// The same, for network tests only.
    Networks,
    /// Old runs and foreign endpoints may not have reported threads: then it is 0.
    Threads,
    /// Between slices, others were measured, so the machines' work isn't known.
    Machines,
    /// Disk tests only.
    Disks,
    /// Guests whose host was observed.
    Guests,
    /// The same; a part on which nothing was spent isn't reported.
    Parts,
    /// Network tests only, if the kernel reports the packets of a socket.
    Packets,
    /// The same, for guests whose host was observed.
    GuestsPackets,
    /// Migrations only, which have no other figures.
    Migrations,
}

pub(super) struct FigureEntry {
    pub(super) figure: SampleFigure,
    /// In documents and tables for programs.
    pub(super) name: &'static str,
    pub(super) unit: FigureUnit,
    /// Work of the tests that have it; `None` stands for all work.
    pub(super) per: Option<WorkUnit>,
    pub(super) origin: FigureOrigin,
    pub(super) told: Told,
    pub(super) value: fn(&Figures) -> f64,
}

/// One entry for each, in the order of the variants.
pub(super) const FIGURES: [FigureEntry; SampleFigure::COUNT] = [
    FigureEntry {
        figure: SampleFigure::Rate,
        name: "transactions_per_s",
        unit: FigureUnit::PerSecond,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Networks,
        told: Told::Alone,
        value: Figures::rate,
    },
    FigureEntry {
        figure: SampleFigure::Iops,
        name: "iops",
        unit: FigureUnit::PerSecond,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Disks,
        told: Told::Alone,
        value: Figures::rate,
    },
    FigureEntry {
        figure: SampleFigure::Rtt,
        name: "rtt_us",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Counts,
        told: Told::AmongOthers,
        value: Figures::rtt_us,
    },
    FigureEntry {
        figure: SampleFigure::Goodput,
        name: "goodput_mbps",
        unit: FigureUnit::MegabitsPerSecond,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Networks,
        told: Told::Alone,
        value: Figures::goodput_mbps,
    },
    FigureEntry {
        figure: SampleFigure::Throughput,
        name: "throughput_mb_per_s",
        unit: FigureUnit::MegabytesPerSecond,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Disks,
        told: Told::Alone,
        value: |figures| figures.goodput_mbps() / 8.0,
    },
    FigureEntry {
        figure: SampleFigure::TimePerKb,
        name: "ns_per_kb",
        unit: FigureUnit::NanosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Counts,
        told: Told::Alone,
        value: |figures| ns_per_kb(figures.goodput_mbps()),
    },
    FigureEntry {
        figure: SampleFigure::ThreadsPerTransaction,
        name: "cpu_threads_us_per_transaction",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Threads,
        told: Told::Alone,
        value: Figures::threads_us_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::ThreadsPerKb,
        name: "cpu_threads_ns_per_kb",
        unit: FigureUnit::NanosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Threads,
        told: Told::Alone,
        value: |figures| figures.threads_us_per_kb() * 1e3,
    },
    FigureEntry {
        figure: SampleFigure::MachinesPerTransaction,
        name: "cpu_us_per_transaction",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Machines,
        told: Told::Alone,
        value: Figures::cpu_us_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::MachinesPerKb,
        name: "cpu_us_per_kb",
        unit: FigureUnit::MicrosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Machines,
        told: Told::Alone,
        value: Figures::cpu_us_per_kb,
    },
    FigureEntry {
        figure: SampleFigure::Real,
        name: "real_s",
        unit: FigureUnit::Seconds,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Counts,
        told: Told::AmongOthers,
        value: |figures| figures.file.map_or(f64::NAN, |file| file.real),
    },
    FigureEntry {
        figure: SampleFigure::P50,
        name: "p50_us_of_samples",
        value: |figures| SamplePercentile::P50.of(figures.rtt_ns.as_ref()),
        ..PERCENTILE
    },
    PERCENTILE,
    FigureEntry {
        figure: SampleFigure::P999,
        name: "p999_us_of_samples",
        value: |figures| SamplePercentile::P999.of(figures.rtt_ns.as_ref()),
        ..PERCENTILE
    },
    FigureEntry {
        figure: SampleFigure::HostPerTransaction,
        name: "host_cpu_us_per_transaction",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Guests,
        told: Told::Alone,
        value: Figures::host_us_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::HostPerKb,
        name: "host_cpu_ns_per_kb",
        unit: FigureUnit::NanosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Guests,
        told: Told::Alone,
        value: |figures| figures.host_us_per_kb() * 1e3,
    },
    FigureEntry {
        figure: SampleFigure::ThreadsPerPacket,
        name: "cpu_threads_ns_per_packet",
        unit: FigureUnit::NanosecondsPerPacket,
        per: None,
        origin: FigureOrigin::Packets,
        told: Told::Alone,
        value: Figures::threads_ns_per_packet,
    },
    FigureEntry {
        figure: SampleFigure::HostPerPacket,
        name: "host_cpu_ns_per_packet",
        unit: FigureUnit::NanosecondsPerPacket,
        per: None,
        origin: FigureOrigin::GuestsPackets,
        told: Told::Alone,
        value: Figures::host_ns_per_packet,
    },
    FigureEntry {
        figure: SampleFigure::CyclesPerTransaction,
        name: "cycles_per_transaction",
        unit: FigureUnit::Cycles,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Networks,
        told: Told::Alone,
        value: Figures::cycles_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::CyclesPerKb,
        name: "cycles_per_kb",
        unit: FigureUnit::CyclesPerKb,
        per: Some(WorkUnit::Kilobyte),
        origin: FigureOrigin::Networks,
        told: Told::Alone,
        value: Figures::cycles_per_kb,
    },
    FigureEntry {
        figure: SampleFigure::CyclesPerPacket,
        name: "cycles_per_packet",
        unit: FigureUnit::CyclesPerPacket,
        per: None,
        origin: FigureOrigin::Packets,
        told: Told::Alone,
        value: Figures::cycles_per_packet,
    },
    FigureEntry {
        figure: SampleFigure::GuestPerTransaction,
        name: "host_cpu_guest_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Guest),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::GuestPerKb,
        name: "host_cpu_guest_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Guest),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::VhostPerTransaction,
        name: "host_cpu_vhost_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Vhost),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::VhostPerKb,
        name: "host_cpu_vhost_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Vhost),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::IothreadPerTransaction,
        name: "host_cpu_iothread_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Iothread),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::IothreadPerKb,
        name: "host_cpu_iothread_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Iothread),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::DaemonPerTransaction,
        name: "host_cpu_daemon_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Daemon),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::DaemonPerKb,
        name: "host_cpu_daemon_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Daemon),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::QemuPerTransaction,
        name: "host_cpu_qemu_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Qemu),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::QemuPerKb,
        name: "host_cpu_qemu_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Qemu),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::KernelPerTransaction,
        name: "host_cpu_kernel_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Kernel),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::KernelPerKb,
        name: "host_cpu_kernel_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Kernel),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::InterruptsPerTransaction,
        name: "host_cpu_interrupts_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Interrupts),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::InterruptsPerKb,
        name: "host_cpu_interrupts_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Interrupts),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::ServicePerTransaction,
        name: "host_cpu_service_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Service),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::ServicePerKb,
        name: "host_cpu_service_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Service),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::RelayPerTransaction,
        name: "host_cpu_relay_us_per_transaction",
        value: |figures| figures.host_part_us_per_transaction(CpuRole::Relay),
        ..PART_PER_TRANSACTION
    },
    FigureEntry {
        figure: SampleFigure::RelayPerKb,
        name: "host_cpu_relay_ns_per_kb",
        value: |figures| figures.host_part_ns_per_kb(CpuRole::Relay),
        ..PART_PER_KB
    },
    FigureEntry {
        figure: SampleFigure::LoadForward,
        name: "load_forward_mbps",
        unit: FigureUnit::MegabitsPerSecond,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Networks,
        told: Told::Alone,
        value: Figures::load_forward_mbps,
    },
    FigureEntry {
        figure: SampleFigure::LoadReverse,
        name: "load_reverse_mbps",
        unit: FigureUnit::MegabitsPerSecond,
        per: Some(WorkUnit::Transaction),
        origin: FigureOrigin::Networks,
        told: Told::Alone,
        value: Figures::load_reverse_mbps,
    },
    FigureEntry { figure: SampleFigure::Suspend, value: |figures| figures.migrated(|one| one.suspend_ms), ..SUSPEND },
    FigureEntry {
        figure: SampleFigure::Migrate,
        name: "migrate_s",
        unit: FigureUnit::Seconds,
        value: |figures| figures.migrated(|one| Some(one.total_s)),
        ..SUSPEND
    },
    FigureEntry {
        figure: SampleFigure::Sent,
        name: "sent_mb",
        unit: FigureUnit::Megabytes,
        value: |figures| figures.migrated(|one| Some(one.sent_mb)),
        ..SUSPEND
    },
    FigureEntry {
        figure: SampleFigure::DirtyRate,
        name: "dirty_mb_per_s",
        unit: FigureUnit::MegabytesPerSecond,
        value: |figures| figures.migrated(|one| one.dirty_mb_per_s),
        ..SUSPEND
    },
    FigureEntry {
        figure: SampleFigure::SuspendByQemu,
        name: "suspend_by_qemu_ms",
        value: |figures| figures.migrated(|one| one.suspend_by_qemu_ms),
        ..SUSPEND
    },
    FigureEntry {
        figure: SampleFigure::SuspendByGuestClock,
        name: "suspend_by_guest_clock_ms",
        value: |figures| figures.migrated(|one| one.suspend_by_guest_clock_ms),
        ..SUSPEND
    },
    FigureEntry {
        figure: SampleFigure::Silence,
        name: "silence_ms",
        value: |figures| figures.migrated(|one| one.silence_ms),
        ..SUSPEND
    },
];

const PART_PER_TRANSACTION: FigureEntry = FigureEntry {
    figure: SampleFigure::GuestPerTransaction,
    name: "",
    unit: FigureUnit::Microseconds,
    per: Some(WorkUnit::Transaction),
    origin: FigureOrigin::Parts,
    told: Told::Alone,
    value: |_| f64::NAN,
};

const PART_PER_KB: FigureEntry = FigureEntry {
    figure: SampleFigure::GuestPerKb,
    unit: FigureUnit::NanosecondsPerKb,
    per: Some(WorkUnit::Kilobyte),
    ..PART_PER_TRANSACTION
};

const PERCENTILE: FigureEntry = FigureEntry {
    figure: SampleFigure::P99,
    name: "p99_us_of_samples",
    unit: FigureUnit::Microseconds,
    per: Some(WorkUnit::Transaction),
    origin: FigureOrigin::Counts,
    told: Told::Alone,
    value: |figures| SamplePercentile::P99.of(figures.rtt_ns.as_ref()),
};

const _: () = {
    let mut index = 0;
    while index < SampleFigure::COUNT {
        assert!(FIGURES[index].figure as usize == index, "each entry stands at its variant");
        index += 1;
    }
};

/// The other figures of migrations differ in name, unit and value.
const SUSPEND: FigureEntry = FigureEntry {
    figure: SampleFigure::Suspend,
    name: "suspend_ms",
    unit: FigureUnit::Milliseconds,
    per: Some(WorkUnit::Transaction),
    origin: FigureOrigin::Migrations,
    told: Told::Alone,
    value: |figures| figures.migrated(|one| one.suspend_ms),
};
