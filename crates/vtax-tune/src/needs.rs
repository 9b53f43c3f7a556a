//! The files that rules read. Without one of them, a rule cannot conclude that a setting is OK or absent.
//!
//! An asterisk matches any name.

/// A group of files.
pub(crate) type Files = &'static [&'static str];

pub(crate) const LINKS: Files = &[
    "/sys/class/net",
    "/sys/class/net/*/ifindex",
    "/sys/class/net/*/mtu",
    "/sys/class/net/*/flags",
    "/sys/class/net/*/type",
    "/sys/class/net/*/device/uevent",
    "/sys/class/net/*/device/../uevent",
];
/// The bridges and bonds of links.
pub(crate) const MASTERS: Files = &["/sys/class/net/*/master/uevent"];
/// Links that are bridges.
pub(crate) const BRIDGES: Files = &["/sys/class/net/*/bridge/stp_state"];
pub(crate) const SPEEDS: Files = &["/sys/class/net/*/speed"];
pub(crate) const COUNTERS: Files = &["/sys/class/net/*/statistics/*"];
/// Packet steering to and from queues.
pub(crate) const QUEUES: Files = &[
    "/sys/class/net/*/queues",
    "/sys/class/net/*/queues/*/rps_cpus",
    "/sys/class/net/*/queues/*/rps_flow_cnt",
    "/sys/class/net/*/queues/*/xps_cpus",
];
pub(crate) const DEFERRAL: Files = &["/sys/class/net/*/napi_defer_hard_irqs", "/sys/class/net/*/gro_flush_timeout"];
pub(crate) const INTERRUPTS: Files = &[
    "/proc/interrupts",
    "/proc/irq/*/effective_affinity_list",
    "/proc/irq/*/smp_affinity_list",
    "/sys/class/net/*/device/msi_irqs",
    "/sys/class/net/*/device/../msi_irqs",
];
pub(crate) const MANAGED: Files = &["/sys/kernel/debug/irq/irqs/*"];
/// The CPUs and their topology.
pub(crate) const CPUS: Files = &[
    "/sys/devices/system/cpu",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/*/topology/physical_package_id",
    "/sys/devices/system/cpu/*/topology/thread_siblings_list",
];
/// NUMA nodes of CPUs and devices.
pub(crate) const NODES: Files = &[
    "/sys/devices/system/node",
    "/sys/devices/system/node/*/cpulist",
    "/sys/class/net/*/device/numa_node",
    "/sys/class/net/*/device/../numa_node",
];
pub(crate) const IDLE: Files = &[
    "/sys/devices/system/cpu/cpuidle/current_driver",
    "/sys/devices/system/cpu/*/cpuidle",
    "/sys/devices/system/cpu/*/cpuidle/*/latency",
    "/sys/devices/system/cpu/*/cpuidle/*/disable",
];
pub(crate) const FREQUENCIES: Files = &["/sys/devices/system/cpu/*/cpufreq/*"];
pub(crate) const SMT: Files = &["/sys/devices/system/cpu/smt/control"];
pub(crate) const SOFTNET: Files = &["/proc/net/softnet_stat"];
pub(crate) const TICKS: Files = &["/proc/stat"];
pub(crate) const COMMAND_LINE: Files = &["/proc/cmdline"];
/// Running programs.
pub(crate) const PROCESSES: Files = &["/proc", "/proc/*/comm"];
/// Guests and their threads.
pub(crate) const GUESTS: Files = &[
    "/proc",
    "/proc/*/comm",
    "/proc/*/cmdline",
    "/proc/*/stat",
    "/proc/*/status",
    "/proc/*/task",
    "/proc/*/task/*/comm",
    "/proc/*/task/*/status",
];
