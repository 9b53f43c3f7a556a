//! Interrupts of a NIC on another NUMA node than the NIC.

use vtax_host::inspect::{HostInterrupt, HostLink};
use vtax_model::cpus::CpuSet;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{CPUS, INTERRUPTS, LINKS, NODES},
    rule::{ChangeRisk, TuningRule},
    setting::{HostSetting, Proposal},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "irq-node",
    title: "interrupts on the NUMA node of their NIC",
    reads: "/sys/class/net/LINK/device/numa_node, /proc/irq/N/effective_affinity_list",
    needs: &[NODES, CPUS, INTERRUPTS, LINKS],
    good: "Each interrupt of a NIC goes to a CPU of the node that the NIC is plugged into. Node -1 is no claim.",
    why: "A packet's descriptors and headers are in the memory of the NIC's node. A CPU of another node reads them over \
          the link between the sockets.",
    risk: ChangeRisk::Medium,
    risks: "The CPUs of that node have more to do. irqbalance moves the interrupts again unless it is told not to.",
    goal: TuningGoal::Both,
    persists: "It is lost with the driver. A policy script of irqbalance keeps it.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Port Interrupt Affinity\"",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.topology.nodes.len() < 2 {
        return vec![RuleOutcome::NotHere("one NUMA node".to_owned())];
    }
    case.ports().filter_map(|link| of_link(case, link)).collect()
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let Some(node) = link.device.as_ref()?.node else {
        return Some(RuleOutcome::Unknown(format!(
            "{}: the firmware doesn't tell its NUMA node; look at the server's manual for the slot",
            link.name
        )));
    };
    let local = case.host.topology.nodes.get(&node)?;
    let all: Vec<&HostInterrupt> = case.host.interrupts_of(link).collect();
    let away: Vec<&HostInterrupt> =
        all.iter().copied().filter(|interrupt| !is_within(interrupt.cpus(), local)).collect();
    if all.is_empty() {
        return Some(RuleOutcome::Unknown(format!("{}: its driver tells of no interrupts", link.name)));
    }
    if away.is_empty() {
        return Some(RuleOutcome::Good(format!("{}: all {} interrupts go to node {node}", link.name, all.len())));
    }
    let cpus: CpuSet = away.iter().flat_map(|interrupt| interrupt.cpus().iter()).collect();
    let seen = format!(
        "{} of {} interrupts go to CPUs {cpus}, on {}; the NIC is on node {node} (CPUs {local})",
        away.len(),
        all.len(),
        nodes(&case.host.topology.nodes_of(&cpus)),
    );
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why)
        .gain(ExpectedGain::Large)
        .owner(super::irqbalance::owner(case));
    Some(finding.change(spread(case, &all, local)))
}

fn is_within(cpus: &CpuSet, local: &CpuSet) -> bool {
    cpus.iter().all(|cpu| local.contains(cpu))
}

fn nodes(nodes: &[u32]) -> String {
    let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
    format!("node{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// One CPU for each interrupt in turn: first one thread of each core, then the others. Isolated CPUs are left out.
pub(super) fn spread(case: &TuningCase<'_>, interrupts: &[&HostInterrupt], among: &CpuSet) -> Vec<Proposal> {
    let order = one_thread_of_each_core_first(case, among);
    let turns = interrupts.iter().zip(order.iter().cycle());
    let changed = turns.filter(|(interrupt, cpu)| !interrupt.affinity.iter().eq([**cpu]));
    let propose = |(interrupt, cpu): (&&HostInterrupt, &u32)| {
        let setting = HostSetting::InterruptCpus { number: interrupt.number, value: [*cpu].into_iter().collect() };
        setting.instead_of(interrupt.affinity.to_string())
    };
    changed.map(propose).collect()
}

fn one_thread_of_each_core_first(case: &TuningCase<'_>, among: &CpuSet) -> Vec<u32> {
    let topology = &case.host.topology;
    let free = |cpu: &u32| among.contains(*cpu) && !topology.isolated.contains(*cpu);
    let mut ranked: Vec<(usize, u32)> = Vec::new();
    for core in &topology.cores {
        ranked.extend(core.iter().filter(free).enumerate());
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}
