//! The host's description, one file a subject.

mod cpu;
mod kernel;
mod tree;

use vtax_model::run::Environment;

pub use tree::Tree;

/// Describes the machine below `tree`.
///
/// What a kernel doesn't tell is left empty or `none`: the description is a record, and must
/// not keep a study from running.
pub fn environment(tree: &Tree) -> Environment {
    Environment {
        vtax: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: kernel::hostname(tree),
        kernel: kernel::release(tree),
        cpu_model: cpu::model(tree),
        cpus: cpu::online(tree),
        numa_nodes: cpu::numa_nodes(tree),
        memory_bytes: kernel::memory_bytes(tree),
        clocksource: kernel::clocksource(tree),
        governor: cpu::governor(tree),
        deepest_idle_us: cpu::deepest_idle_us(tree),
        smt: cpu::smt(tree),
        hypervisor: cpu::hypervisor(tree),
        mitigations: cpu::mitigations(tree),
        congestion_control: kernel::congestion_control(tree),
        privilege: kernel::privilege(tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder of the test");
        fs::write(path, text).expect("a file of the test");
    }

    #[test]
    fn a_machine_is_described_from_its_files() {
        let root = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| write(root.path(), path, text);
        put("proc/sys/kernel/osrelease", "6.12.1\n");
        put("proc/sys/kernel/hostname", "t7\n");
        put("proc/meminfo", "MemTotal:       24000 kB\nMemFree: 1 kB\n");
        put("proc/cpuinfo", "processor\t: 0\nmodel name\t: M7\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\n");
        put("sys/devices/system/cpu/online", "0-3,6\n");
        put("sys/devices/system/node/online", "0-1\n");
        put("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n");
        put("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n");
        put("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
        put("sys/hypervisor/type", "xen\n");
        put("proc/self/uid_map", "         0          0 4294967295\n");
        let found = environment(&Tree::at(root.path()));
        assert_eq!((found.kernel.as_str(), found.hostname.as_str()), ("6.12.1", "t7"));
        assert_eq!((found.cpus, found.numa_nodes, found.memory_bytes), (5, 2, 24_576_000));
        assert_eq!((found.cpu_model.as_str(), found.hypervisor.as_str()), ("M7", "xen"));
        assert_eq!((found.deepest_idle_us, found.governor.as_str()), (Some(133), "none"));
        assert_eq!(found.mitigations, [("meltdown".to_owned(), "Not affected".to_owned())]);
        assert_eq!(found.privilege, "root");
    }

    #[test]
    fn an_empty_tree_is_described_too() {
        let root = tempfile::tempdir().expect("a folder");
        let found = environment(&Tree::at(root.path()));
        assert_eq!((found.cpus, found.governor.as_str(), found.kernel.as_str()), (0, "none", ""));
    }
}
