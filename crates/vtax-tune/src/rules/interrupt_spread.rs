//! Several queues of a NIC on one CPU while others are idle.

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
    good: "Each queue that receives packets has its own CPU, as far as CPUs are available.",
    why: "Packets of two queues that interrupt the same CPU wait for each other while other CPUs are idle.",
    risk: ChangeRisk::Medium,
    risks: "irqbalance moves the interrupts again unless they are banned.",
    goal: TuningGoal::Both,
    persists: "Lost when the driver is reloaded. Requires a script.",
    source: "Linux: Documentation/networking/scaling.rst, \"RSS: Receive Side Scaling\"",
    check,
};

/// An interrupt less frequent than the busiest one by this factor is irrelevant: link state changes, or a queue without
/// traffic.
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
        return Some(RuleOutcome::Good(format!("{}: uses a single interrupt", link.name)));
    }
    let by_cpu = by_cpu(case, &busy);
    let local = local(case, link);
    let fair = busy.len().div_ceil(local.len().max(1));
    let told: usize = by_cpu.values().sum();
    let (cpu, share) = by_cpu.iter().max_by_key(|(_, share)| **share).unwrap_or((&0, &0));
    // A pair of receive and transmit queues may have two interrupts, which belong on one CPU.
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

/// Returns the number of interrupts per CPU, as far as known. If an interrupt has several CPUs, the kernel uses the
/// first.
fn by_cpu(case: &TuningCase<'_>, interrupts: &[&HostInterrupt]) -> BTreeMap<u32, usize> {
    let mut by_cpu = BTreeMap::new();
    for interrupt in interrupts {
        let InterruptCpus::Now(cpus) = case.handlers(interrupt) else { continue };
        let Some(first) = cpus.iter().next() else { continue };
        *by_cpu.entry(first).or_default() += 1;
    }
    by_cpu
}

/// Returns the CPUs of the NIC's node that are not isolated; if there are none, those of all nodes.
pub(super) fn local(case: &TuningCase<'_>, link: &HostLink) -> CpuSet {
    let topology = &case.host.topology;
    let node = link.device.as_ref().and_then(|device| device.node);
    let near = node.and_then(|node| topology.nodes.get(&node)).map(|cpus| topology.free(cpus));
    near.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| topology.free(&topology.online))
}
