//! Several queues of a NIC on one CPU while others are free.

use std::collections::BTreeMap;

use vtax_host::inspect::{HostInterrupt, HostLink, InterruptCpus};
use vtax_model::cpus::CpuSet;

use super::irq_node::{spread, untold};
use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{CPUS, INTERRUPTS, LINKS, NODES},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "interrupt-spread",
    title: "queues spread over CPUs",
    reads: "/proc/interrupts, /proc/irq/N/effective_affinity_list",
    needs: &[CPUS, NODES, INTERRUPTS, LINKS],
    good: "Each receiving queue has its own CPU, as far as there are enough CPUs.",
    why: "Packets of two queues that interrupt the same CPU wait for each other while other CPUs are idle.",
    risk: ChangeRisk::Medium,
    risks: "irqbalance moves the interrupts again unless they are banned from it.",
    goal: TuningGoal::Both,
    persists: "Lost when the driver is reloaded. Only a script can restore it.",
    source: "Linux: Documentation/networking/scaling.rst, \"RSS: Receive Side Scaling\"",
    check,
};

/// An interrupt that fired less often than the busiest one by this factor belongs to no relevant queue: it signals the
/// link state, or its queue has no traffic.
const IDLE: u64 = 100;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.topology.online.len() < 2 {
        return vec![RuleOutcome::NotHere("one CPU".to_owned())];
    }
    case.devices().filter_map(|link| of_link(case, link)).collect()
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let all = case.movable_interrupts(link);
    let most = all.iter().map(|interrupt| interrupt.count()).max().filter(|most| *most > 0)?;
    let busy: Vec<&HostInterrupt> = all.into_iter().filter(|interrupt| interrupt.count() >= most / IDLE).collect();
    if busy.len() < 2 {
        return Some(RuleOutcome::Good(format!("{}: a single interrupt does the work", link.name)));
    }
    let by_cpu = by_cpu(case, &busy);
    let local = local(case, link);
    let fair = busy.len().div_ceil(local.len().max(1));
    let told: usize = by_cpu.values().sum();
    let (cpu, share) = by_cpu.iter().max_by_key(|(_, share)| **share).unwrap_or((&0, &0));
    // Pairs of a receive and a transmit queue may have two interrupts, which belong on one CPU.
    Some(if *share > fair.max(2) {
        let seen = format!(
            "{share} of its {} busy interrupts go to CPU {cpu}; {} CPUs could share them (CPUs {local})",
            busy.len(),
            local.len()
        );
        let finding = TuningFinding::new(link.name.clone(), seen, RULE.why).gain(ExpectedGain::Large);
        finding.owner(super::irqbalance::owner(case)).change(spread(case, &busy, &local))
    } else if told < busy.len() {
        untold(link, busy.len() - told, busy.len())
    } else {
        RuleOutcome::Good(format!("{}: {told} interrupts on {} CPUs", link.name, by_cpu.len()))
    })
}

/// Counts the interrupts of each CPU, where known. If an interrupt has several CPUs, the kernel chooses the first.
fn by_cpu(case: &TuningCase<'_>, interrupts: &[&HostInterrupt]) -> BTreeMap<u32, usize> {
    let mut by_cpu = BTreeMap::new();
    for interrupt in interrupts {
        let InterruptCpus::Now(cpus) = case.handlers(interrupt) else { continue };
        let Some(first) = cpus.iter().next() else { continue };
        *by_cpu.entry(first).or_default() += 1;
    }
    by_cpu
}

/// Returns the CPUs of the NIC's node that aren't isolated, or those of all nodes if there are none.
pub(super) fn local(case: &TuningCase<'_>, link: &HostLink) -> CpuSet {
    let topology = &case.host.topology;
    let node = link.device.as_ref().and_then(|device| device.node);
    let near = node.and_then(|node| topology.nodes.get(&node)).map(|cpus| topology.free(cpus));
    near.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| topology.free(&topology.online))
}
