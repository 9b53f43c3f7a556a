//! Facts about a machine's CPUs that pinning needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_model::cpus::CpuSet;

use crate::inspect::{SystemRoot, node_cpus};

const CPU: &str = "sys/devices/system/cpu";

/// The online CPUs, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Online CPUs in ascending order, including those that this thread may not use.
    pub cpus: Vec<Cpu>,
}

/// A CPU in the kernel's sense: a hardware thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub number: u32,
    /// True if this thread may run there (sched_setaffinity(2), cpuset(7)).
    pub allowed: bool,
    pub node: u32,
    /// Its core, named by the lowest CPU number in it.
    pub core: u32,
    /// Device interrupts and receive softirqs that it has handled since boot.
    pub interrupts: u64,
}

impl Machine {
    /// Reads the files below `tree`. A CPU is allowed if the calling thread may use it. If the kernel reports
    /// no nodes or cores, there is one node, and each CPU is a core.
    pub fn read(tree: &SystemRoot) -> Machine {
        let list = |path: &str| tree.text(path).and_then(|text| text.parse::<CpuSet>().ok());
        let allowed = allowed(tree);
        let online = list(&format!("{CPU}/online")).or_else(|| allowed.clone()).unwrap_or_default();
        let nodes = nodes(tree);
        let (received, devices) = (received(tree), device_interrupts(tree));
        let count = |counts: &BTreeMap<u32, u64>, number| counts.get(&number).copied().unwrap_or(0);
        let cpu = |number: u32| {
            let siblings = list(&format!("{CPU}/cpu{number}/topology/thread_siblings_list")).unwrap_or_default();
            Cpu {
                number,
                allowed: allowed.as_ref().is_none_or(|allowed| allowed.contains(number)),
                node: nodes.get(&number).copied().unwrap_or(0),
                core: siblings.iter().next().unwrap_or(number),
                interrupts: count(&received, number).saturating_add(count(&devices, number)),
            }
        };
        Machine { cpus: online.iter().map(cpu).collect() }
    }

    /// The CPUs that this process may use.
    pub(super) fn allowed(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.allowed)
    }

    pub(super) fn cpu(&self, number: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.number == number)
    }

    /// The CPU that handles the most interrupts; `None` if no CPU has handled any.
    pub(super) fn busiest(&self) -> Option<&Cpu> {
        // `max_by_key` returns the last of equal values; reversed, the lowest CPU.
        self.cpus.iter().rev().max_by_key(|cpu| cpu.interrupts).filter(|cpu| cpu.interrupts > 0)
    }
}

fn allowed(tree: &SystemRoot) -> Option<CpuSet> {
    let status = tree.text("proc/thread-self/status")?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
}

fn nodes(tree: &SystemRoot) -> BTreeMap<u32, u32> {
    let nodes = node_cpus(tree).into_iter();
    nodes.flat_map(|(node, cpus)| cpus.iter().map(|cpu| (cpu, node)).collect::<Vec<_>>()).collect()
}

/// Received packets are processed on the CPU of the interrupt, or on the one to which RPS sends them.
fn received(tree: &SystemRoot) -> BTreeMap<u32, u64> {
    sums(&tree.text("proc/softirqs").unwrap_or_default(), |label| label == "NET_RX")
}

/// Device interrupts have numbers; the others (timers, inter-processor interrupts) have names.
fn device_interrupts(tree: &SystemRoot) -> BTreeMap<u32, u64> {
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    sums(&tree.text("proc/interrupts").unwrap_or_default(), is_number)
}

/// Sums up some rows of a table that has a column for each CPU.
fn sums(table: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<u32, u64> {
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u32> = head.map_while(|title| title.strip_prefix("CPU")?.parse().ok()).collect();
    let mut sums = BTreeMap::new();
    for (_, counts) in lines.filter_map(|line| line.split_once(':')).filter(|(label, _)| wanted(label.trim())) {
        for (cpu, count) in cpus.iter().zip(counts.split_whitespace().map_while(|count| count.parse::<u64>().ok())) {
            let sum: &mut u64 = sums.entry(*cpu).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    sums
}
