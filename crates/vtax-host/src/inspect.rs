//! The host's description, with one file for each subject.

mod boot;
mod cpu;
mod cpu_ticks;
mod frequency;
mod guests;
mod host;
mod idle;
mod interrupts;
mod kernel;
mod limits;
mod link_files;
mod links;
mod network;
mod owners;
mod route;
mod softnet;
mod throttling;
mod topology;
mod tree;
mod unusable;

use vtax_model::{
    foreign::ForeignText,
    run::{EmulatedServer, Environment},
};

use idle::IdleStates;

pub(crate) use cpu::node_cpus;
pub use cpu_ticks::CpuTicks;
pub use guests::{HostGuest, HostThread, guests};
pub use host::{FrequencyPolicy, HostFacts, LiveNics, NicSource};
pub use interrupts::{HostInterrupt, InterruptCpus};
pub use limits::process_limits;
pub use link_files::LinkSource;
pub use links::{HostLink, LinkCounters, LinkDevice, RxQueue, TxQueue};
pub use owners::{SettingOwners, SettingSource};
pub use route::{link_hops, outer_hops, route_hops};
pub use softnet::SoftnetCpu;
pub use throttling::QuotaMeter;
pub use topology::CpuTopology;
pub use tree::SystemRoot;
pub use unusable::UnusableFile;

/// Describes the machine below `tree`.
///
/// Values that a kernel does not report are empty or `none`. The description is a record and must not stop a study.
pub fn environment(tree: &SystemRoot) -> Environment {
    let idle = IdleStates::read(tree);
    let text = |path: &str| ForeignText::from(tree.text(path).unwrap_or_default());
    let texts = |all: Vec<String>| all.into_iter().map(ForeignText::from).collect();
    Environment {
        vtax: env!("CARGO_PKG_VERSION").into(),
        hostname: kernel::hostname(tree).into(),
        kernel: text("proc/sys/kernel/osrelease"),
        kernel_build: kernel::build(tree).into(),
        preemption: kernel::preemption(tree).into(),
        command_line: texts(boot::command_line(tree)),
        cpu_model: cpu::model(tree).into(),
        cpus: cpu::online(tree),
        numa_nodes: cpu::numa_nodes(tree),
        node_cpus: cpu::node_cpus(tree),
        numa_balancing: tree.number("proc/sys/kernel/numa_balancing"),
        memory_bytes: kernel::memory_bytes(tree),
        transparent_hugepages: kernel::transparent_hugepages(tree).into(),
        clocksource: text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        clocksources: texts(kernel::clocksources(tree)),
        governor: frequency::governor(tree).into(),
        frequency_driver: frequency::driver(tree).into(),
        frequency_mhz: frequency::range_mhz(tree).into(),
        turbo: frequency::turbo(tree).into(),
        deepest_idle_us: idle.deepest_us(),
        idle: idle.facts(),
        server: emulated_server(tree),
        smt: text("sys/devices/system/cpu/smt/control"),
        hypervisor: cpu::hypervisor(tree).into(),
        mitigations: cpu::mitigations(tree).into_iter().map(|(name, state)| (name.into(), state.into())).collect(),
        irqbalance: kernel::irqbalance(tree),
        congestion_control: network::congestion_control(tree).into(),
        network_sysctls: network::sysctls(tree).into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        privilege: kernel::privilege(tree).into(),
    }
}

fn emulated_server(tree: &SystemRoot) -> Option<EmulatedServer> {
    serde_json::from_str(&tree.text(EmulatedServer::FILE.trim_start_matches('/'))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_from_its_files() {
        let tree = SystemRoot::invented([
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT\n"),
            ("proc/sys/kernel/hostname", "t7\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("proc/cmdline", "root=/dev/sda1 nosmt\n"),
            ("proc/meminfo", "MemTotal:       24000 kB\nMemFree: 1 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: M7\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\n"),
            ("sys/devices/system/cpu/online", "0-3,6\n"),
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
            ("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm \n"),
            ("sys/hypervisor/type", "xen\n"),
            ("proc/self/uid_map", "         0          0 4294967295\n"),
            ("run/vtax-emulated-server.json", r#"{"spec":"emulated:nics=2","accel":"tcg","qemu":"10.0"}"#),
        ]);
        let found = environment(&tree);
        assert_eq!(found.server.map(|server| server.spec), Some("emulated:nics=2".into()));
        assert_eq!((found.kernel.raw(), found.hostname.raw()), ("6.12.1", "t7"));
        assert_eq!((found.kernel_build.raw(), found.preemption.raw()), ("#1 SMP PREEMPT", "PREEMPT"));
        assert_eq!((found.cpus, found.numa_nodes, found.memory_bytes), (5, 2, 24_576_000));
        assert_eq!((found.cpu_model.raw(), found.hypervisor.raw()), ("M7", "xen"));
        assert_eq!((found.deepest_idle_us, found.governor.raw()), (Some(133), "none"));
        assert_eq!(
            (found.numa_balancing, found.clocksources.as_slice()),
            (Some(1), ["tsc", "hpet", "acpi_pm"].map(ForeignText::from).as_slice())
        );
        assert_eq!(found.command_line, ["nosmt"]);
        assert_eq!(found.mitigations, [("meltdown".into(), "Not affected".into())]);
        assert_eq!(found.privilege, "root");
    }

    #[test]
    fn an_empty_tree_is_described_too() {
        let tree = SystemRoot::invented::<&str, &str>([]);
        let told = Environment {
            vtax: env!("CARGO_PKG_VERSION").into(),
            numa_nodes: 1,
            governor: "none".into(),
            turbo: "unknown".into(),
            hypervisor: "none".into(),
            privilege: "user namespace".into(),
            ..Environment::default()
        };
        assert_eq!(environment(&tree), told);
    }

    #[test]
    fn this_machine_is_described() {
        let found = environment(&SystemRoot::live());
        assert!(found.cpus > 0 && !found.kernel_build.is_empty(), "{found:?}");
        assert!(found.clocksources.contains(&found.clocksource), "{found:?}");
        assert!(found.network_sysctls.contains_key(&"net.ipv4.tcp_rmem".into()), "{found:?}");
    }
}
