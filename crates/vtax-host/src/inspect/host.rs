//! Facts about a host that tuning needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, nic::NicFacts, run::IdleFacts};

use super::{
    SystemRoot, boot,
    cpu::{self, FOLDER},
    cpu_ticks::{CpuTicks, cpu_ticks},
    guests::{HostGuest, guests},
    idle::IdleStates,
    interrupts::{HostInterrupt, interrupts},
    kernel,
    links::{HostLink, links},
    network,
    owners::SettingOwners,
    softnet::{SoftnetCpu, softnet},
    topology::CpuTopology,
    unusable::UnusableFile,
};

/// A host, as described by its files and its links' drivers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// The host's name.
    pub hostname: ForeignText,
    /// The kernel's release.
    pub kernel: ForeignText,
    /// The hypervisor below, or `none`.
    pub hypervisor: ForeignText,
    /// The words of the kernel's command line that bear on speed.
    pub command_line: Vec<ForeignText>,
    /// Online CPUs, grouped by socket, NUMA node and core.
    pub topology: CpuTopology,
    /// Idle states of the CPUs.
    pub idle: Option<IdleFacts>,
    /// Frequency policies, by CPU. Empty if the kernel doesn't control frequencies.
    pub frequencies: BTreeMap<u32, FrequencyPolicy>,
    /// `on`, `off`, `notsupported`.
    pub smt: ForeignText,
    /// Network settings by sysctl name, of the namespace read.
    pub sysctls: BTreeMap<ForeignText, ForeignText>,
    /// The links, by index.
    pub links: Vec<HostLink>,
    /// Facts reported by their drivers, by name.
    pub nics: BTreeMap<ForeignText, NicFacts>,
    /// The interrupts of devices, by number.
    pub interrupts: BTreeMap<u32, HostInterrupt>,
    /// Counters of received packets, by CPU.
    pub softnet: Vec<SoftnetCpu>,
    /// CPU time by use, by CPU.
    pub cpu_ticks: BTreeMap<u32, CpuTicks>,
    /// Guests running here.
    pub guests: Vec<HostGuest>,
    /// Other programs and files that change this host's settings.
    pub owners: SettingOwners,
    /// Files that exist but give no information.
    pub unusable: Vec<UnusableFile>,
}

/// A CPU's frequency policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FrequencyPolicy {
    /// The governor, such as `powersave`.
    pub governor: ForeignText,
    /// The hint to the hardware (`energy_performance_preference`), if it takes one.
    pub preference: Option<ForeignText>,
}

/// Facts about links that only drivers report.
pub trait NicSource {
    /// Describes a link. Unknown values are absent.
    fn nic(&self, link: &str) -> NicFacts;
}

/// The drivers of the running machine, asked in the calling thread's network namespace.
#[derive(Debug, Clone, Copy)]
pub struct LiveNics;

impl NicSource for LiveNics {
    fn nic(&self, link: &str) -> NicFacts {
        link.parse().map(|link| vtax_sys::nic::describe(&link)).unwrap_or_default()
    }
}

impl HostFacts {
    /// Reads the files below `tree`, and asks `nics` for the rest. Values that a kernel doesn't report stay empty.
    pub fn read(tree: &SystemRoot, nics: &impl NicSource) -> HostFacts {
        let links = links(tree);
        HostFacts {
            hostname: kernel::hostname(tree).into(),
            kernel: tree.text("proc/sys/kernel/osrelease").unwrap_or_default().into(),
            hypervisor: cpu::hypervisor(tree).into(),
            command_line: boot::command_line(tree).into_iter().map(ForeignText::from).collect(),
            topology: CpuTopology::of(tree),
            idle: IdleStates::read(tree).facts(),
            frequencies: frequencies(tree),
            smt: tree.text(&format!("{FOLDER}/smt/control")).unwrap_or_default().into(),
            sysctls: network::tuned(tree).into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            nics: links.iter().map(|link| (link.name.clone(), nics.nic(link.name.raw()))).collect(),
            interrupts: interrupts(tree),
            softnet: softnet(tree),
            cpu_ticks: cpu_ticks(tree),
            guests: guests(tree),
            owners: SettingOwners::read(tree),
            unusable: tree.take_unusable(),
            links,
        }
    }

    /// A network setting, such as `net.core.rmem_max`.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(&ForeignText::from(name)).map(ForeignText::raw)
    }

    /// Returns the facts reported by a link's driver.
    pub fn nic(&self, link: &HostLink) -> Option<&NicFacts> {
        self.nics.get(&link.name)
    }

    /// The interrupts of a link's device.
    pub fn interrupts_of<'a>(&'a self, link: &'a HostLink) -> impl Iterator<Item = &'a HostInterrupt> {
        let numbers = link.device.iter().flat_map(|device| &device.interrupts);
        numbers.filter_map(|number| self.interrupts.get(number))
    }

    /// The links that carry this host's traffic over their own device, and are up.
    pub fn ports(&self) -> impl Iterator<Item = &HostLink> {
        self.links.iter().filter(|link| link.is_up && link.device.is_some())
    }
}

fn frequencies(tree: &SystemRoot) -> BTreeMap<u32, FrequencyPolicy> {
    let policy = |cpu: u32| {
        let text = |file: &str| tree.text(&format!("{FOLDER}/cpu{cpu}/cpufreq/{file}")).map(ForeignText::from);
        Some((
            cpu,
            FrequencyPolicy { governor: text("scaling_governor")?, preference: text("energy_performance_preference") },
        ))
    };
    cpu::numbers(tree).into_iter().filter_map(policy).collect()
}
