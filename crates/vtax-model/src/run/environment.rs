//! The machine of a run, with everything that affects its speed: only like conditions can be compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{cpus::CpuSet, foreign::ForeignText, guest::Accelerator};

/// The machine of a run. Texts are empty if the kernel doesn't report them.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The version of vtax.
    pub vtax: ForeignText,
    /// The machine's name.
    pub hostname: ForeignText,
    /// Kernel release.
    pub kernel: ForeignText,
    /// The kernel's build, from `uname -v`.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub kernel_build: ForeignText,
    /// The kernel's preemption as built: `PREEMPT_DYNAMIC`, `PREEMPT_RT`, `PREEMPT`, or `none or
    /// voluntary`. Only root can read the mode of a dynamic one, from debugfs.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub preemption: ForeignText,
    /// The words of the kernel's command line that affect speed, unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command_line: Vec<ForeignText>,
    /// CPU model: `model name` in `/proc/cpuinfo`.
    pub cpu_model: ForeignText,
    /// Number of online CPUs, whether vtax may use them or not.
    pub cpus: u32,
    /// Number of online NUMA nodes; 1 if the kernel does not report any.
    pub numa_nodes: u32,
    /// The CPUs of each NUMA node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_cpus: BTreeMap<u32, CpuSet>,
    /// NUMA balancing: whether the kernel moves memory between nodes (`kernel.numa_balancing`): 0, or 1 to users plus 2
    /// between tiers.
    pub numa_balancing: Option<u32>,
    /// Main memory in bytes: `MemTotal` in `/proc/meminfo`; 0 if unknown.
    pub memory_bytes: u64,
    /// `always`, `madvise` or `never`.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub transparent_hugepages: ForeignText,
    /// The kernel's clock source, e.g. `tsc`.
    pub clocksource: ForeignText,
    /// The available clock sources, the best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocksources: Vec<ForeignText>,
    /// The frequency governor, or `none`; `performance 0-3, powersave 4-7` if CPUs differ.
    pub governor: ForeignText,
    /// The driver that sets frequencies, e.g. `intel_pstate`.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub frequency_driver: ForeignText,
    /// The range of frequencies in force, in MHz: `800-3500`; `800-2000 of 800-3500` if the CPUs
    /// could do more; followed by the CPUs of each range if they differ.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub frequency_mhz: ForeignText,
    /// Turbo: `on`, `off` or `unknown`.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub turbo: ForeignText,
    /// Idle states of the CPUs, if reported by the kernel.
    pub idle: Option<IdleFacts>,
    /// Maximum exit latency in µs of an enabled idle state, over all CPUs; absent if the kernel doesn't report it.
    #[serialize_always]
    pub deepest_idle_us: Option<u32>,
    /// Simultaneous multithreading: `on`, `off`, `notsupported`.
    pub smt: ForeignText,
    /// The hypervisor of this machine, or `none`.
    pub hypervisor: ForeignText,
    /// CPU vulnerabilities' mitigations, name and state.
    pub mitigations: Vec<(ForeignText, ForeignText)>,
    /// True if irqbalance is running; absent where other processes are not visible.
    pub irqbalance: Option<bool>,
    /// TCP congestion control.
    pub congestion_control: ForeignText,
    /// Network settings by their sysctl names, in the namespace in which this was read. Those that
    /// the kernel shows only in its first namespace are absent elsewhere.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub network_sysctls: BTreeMap<ForeignText, ForeignText>,
    /// `root` or `user namespace`.
    pub privilege: ForeignText,
    /// The emulated server that this machine is, if it is one.
    pub server: Option<EmulatedServer>,
}

impl Environment {
    /// Caveat for each figure measured there.
    pub fn caveat(&self) -> Option<&'static str> {
        self.server.as_ref().map(|_| EmulatedServer::CAVEAT)
    }
}

/// A whole server with its NICs that QEMU emulates: its figures show function, not speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatedServer {
    /// Its NICs, nodes, sockets, CPUs and memory, in the notation of `--server`.
    pub spec: ForeignText,
    /// KVM or TCG.
    pub accel: Accelerator,
    /// QEMU's version.
    pub qemu: ForeignText,
    /// Reason why `accel` isn't KVM, if that was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not_kvm: Option<ForeignText>,
}

impl EmulatedServer {
    /// Caveat shown with each of its figures.
    pub const CAVEAT: &str = "emulated server: shows function, not speed";
    /// The file in which such a machine has this description, as JSON. vtax writes it when it boots the machine.
    pub const FILE: &str = "/run/vtax-emulated-server.json";
}

/// Idle behaviour of CPUs (`/sys/devices/system/cpu/cpuidle`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleFacts {
    /// The driver, e.g. `intel_idle`; `none` if there is none.
    pub driver: ForeignText,
    /// The idle governor, e.g. `menu`.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub governor: ForeignText,
    /// Idle states of the first CPU that has any, the shallowest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<IdleState>,
    /// CPUs with other states or other disabled states, e.g. `4-7`.
    #[serde(skip_serializing_if = "ForeignText::is_empty")]
    pub differing_cpus: ForeignText,
}

/// An idle state of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleState {
    /// Its name, e.g. `C1E`.
    pub name: ForeignText,
    /// Exit latency in µs.
    pub exit_latency_us: u32,
    /// True if the CPU must not enter it.
    pub disabled: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As written before the other fields were added.
    #[test]
    fn an_old_description_is_read_and_written_as_it_was() {
        let old = json!({
            "vtax": "0.1.0", "hostname": "t7", "kernel": "6.12.1", "cpu_model": "M7", "cpus": 4, "numa_nodes": 1,
            "memory_bytes": 1024, "clocksource": "tsc", "governor": "none", "deepest_idle_us": 133, "smt": "off",
            "hypervisor": "none", "mitigations": [["meltdown", "Not affected"]], "congestion_control": "cubic",
            "privilege": "root",
        });
        let read: Environment = serde_json::from_value(old.clone()).expect("it is read");
        assert_eq!((read.cpus, read.deepest_idle_us, read.idle.as_ref()), (4, Some(133), None));
        assert_eq!(serde_json::to_value(read).expect("it is written"), old);
    }

    #[test]
    fn a_full_description_is_read_back() {
        let states = vec![IdleState { name: "C1".into(), exit_latency_us: 2, disabled: true }];
        let full = Environment {
            numa_balancing: Some(0),
            irqbalance: Some(false),
            idle: Some(IdleFacts { driver: "intel_idle".into(), states, ..IdleFacts::default() }),
            network_sysctls: [("net.core.busy_read".into(), "0".into())].into(),
            server: Some(EmulatedServer {
                spec: "emulated:nics=8".into(),
                accel: Accelerator::Tcg,
                qemu: "10.0.3".into(),
                why_not_kvm: Some("there is no /dev/kvm".into()),
            }),
            ..Environment::default()
        };
        let written: Value = serde_json::to_value(&full).expect("it is written");
        assert_eq!(serde_json::from_value::<Environment>(written).expect("it is read"), full);
    }
}
