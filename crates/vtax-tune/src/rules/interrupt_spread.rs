//! Several queues of a NIC on one CPU while others are free.

use std::collections::BTreeMap;

use vtax_host::inspect::{HostInterrupt, HostLink};
use vtax_model::cpus::CpuSet;

use super::irq_node::spread;
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
    good: "Each queue that receives packets has a CPU of its own, as far as there are CPUs.",
    why: "Packets of two queues that interrupt the same CPU wait for each other while other CPUs have nothing to do.",
    risk: ChangeRisk::Medium,
    risks: "irqbalance moves the interrupts again unless it is told not to.",
    goal: TuningGoal::Both,
    persists: "It is lost with the driver. Nothing keeps it but a script.",
    source: "Linux: Documentation/networking/scaling.rst, \"RSS: Receive Side Scaling\"",
    check,
};

/// An interrupt that came less often than the busiest one by this factor is of no queue that matters now: of the link's
/// state, or of a queue without traffic.
const IDLE: u64 = 100;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.topology.online.len() < 2 {
        return vec![RuleOutcome::NotHere("one CPU".to_owned())];
    }
    case.ports().filter_map(|link| of_link(case, link)).collect()
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let came = |interrupt: &HostInterrupt| interrupt.handled.values().sum::<u64>();
    let most = case.host.interrupts_of(link).map(came).max().filter(|most| *most > 0)?;
    let busy: Vec<&HostInterrupt> =
        case.host.interrupts_of(link).filter(|interrupt| came(interrupt) >= most / IDLE).collect();
    if busy.len() < 2 {
        return Some(RuleOutcome::Good(format!("{}: one interrupt does its work", link.name)));
    }
    let mut by_cpu: BTreeMap<u32, usize> = BTreeMap::new();
    for interrupt in &busy {
        // Where there are several, the kernel chooses the first.
        *by_cpu.entry(interrupt.cpus().iter().next()?).or_default() += 1;
    }
    let local = local(case, link);
    let fair = busy.len().div_ceil(local.len().max(1));
    let (cpu, share) = by_cpu.iter().max_by_key(|(_, share)| **share)?;
    // Pairs of a receive and a transmit queue may have two interrupts, which belong on one CPU.
    if *share <= fair.max(2) {
        return Some(RuleOutcome::Good(format!("{}: {} interrupts on {} CPUs", link.name, busy.len(), by_cpu.len())));
    }
    let seen = format!(
        "{share} of its {} busy interrupts go to CPU {cpu}; {} CPUs could share them (CPUs {local})",
        busy.len(),
        local.len()
    );
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why).gain(ExpectedGain::Large);
    Some(finding.owner(super::irqbalance::owner(case)).change(spread(case, &busy, &local)))
}

/// The CPUs of the NIC's node, or all.
pub(super) fn local(case: &TuningCase<'_>, link: &HostLink) -> CpuSet {
    let topology = &case.host.topology;
    let node = link.device.as_ref().and_then(|device| device.node);
    let cpus = node.and_then(|node| topology.nodes.get(&node)).unwrap_or(&topology.online);
    cpus.iter().filter(|cpu| !topology.isolated.contains(*cpu)).collect()
}
