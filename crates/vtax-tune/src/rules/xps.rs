//! Transmit packet steering.

use vtax_host::inspect::HostLink;

use super::{interrupt_spread::local, rps::mask};
use crate::{
    case::{TuningCase, TuningGoal},
    finding::{RuleOutcome, TuningFinding},
    needs::{CPUS, LINKS, NODES, QUEUES},
    rule::{ChangeRisk, TuningRule},
    setting::{HostSetting, Proposal},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "xps",
    title: "transmit packet steering",
    reads: "/sys/class/net/LINK/queues/tx-N/xps_cpus",
    needs: &[QUEUES, CPUS, NODES, LINKS],
    good: "Each transmit queue takes the packets of one CPU, or of CPUs that share a cache.",
    why: "Without it, the flow determines a packet's queue, so CPUs contend for queue locks.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Throughput,
    persists: "Lost with the link. A udev rule restores it; `--persist` writes one for a NIC.",
    source: "Linux: Documentation/networking/scaling.rst, \"XPS: Transmit Packet Steering\"",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let outcomes: Vec<RuleOutcome> = case.ports().filter_map(|link| of_link(case, link)).collect();
    match outcomes.is_empty() {
        true => vec![RuleOutcome::NotHere("no NIC with several steerable transmit queues".to_owned())],
        false => outcomes,
    }
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let masks: Vec<_> = link.tx_queues.iter().filter_map(|queue| queue.xps_cpus.as_ref()).collect();
    if masks.len() < 2 {
        return None;
    }
    if masks.iter().any(|mask| !mask.is_empty()) {
        return Some(RuleOutcome::Good(format!("{}: {} queues are steered", link.name, masks.len())));
    }
    if local(case, link).is_empty() {
        return Some(RuleOutcome::Good(format!("{}: all CPUs are isolated", link.name)));
    }
    let seen = format!("none of its {} transmit queues has CPUs assigned", masks.len());
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why);
    Some(finding.change(one_cpu_each(case, link)))
}

/// Assigns CPUs to queues in turn, so that each CPU has one.
fn one_cpu_each(case: &TuningCase<'_>, link: &HostLink) -> Vec<Proposal> {
    let cpus: Vec<u32> = local(case, link).iter().collect();
    let queues = link.tx_queues.len();
    let queue = |number: usize| {
        let of_queue = cpus.iter().copied().skip(number).step_by(queues).collect();
        HostSetting::of_link(&link.name, &format!("queues/tx-{number}/xps_cpus"), mask(&of_queue)).instead_of("0")
    };
    (0..queues.min(cpus.len())).map(queue).collect()
}
