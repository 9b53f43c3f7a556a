//! Interrupts of a NIC on a NUMA node other than the NIC's.

use vtax_host::inspect::{HostInterrupt, HostLink, InterruptCpus};
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
    title: "interrupts on the NIC's NUMA node",
    reads: "/sys/class/net/LINK/device/numa_node, /proc/irq/N/effective_affinity_list, /proc/interrupts",
    needs: &[NODES, CPUS, INTERRUPTS, LINKS],
    good: "Each interrupt of a NIC goes to a CPU of the NIC's node. Node -1 means that the node is unknown. If all CPUs \
           of the node are isolated, any other CPU is acceptable.",
    why: "A packet's descriptors and headers are in the memory of the NIC's node. A CPU of another node reads them over \
          the interconnect between the sockets.",
    risk: ChangeRisk::Medium,
    risks: "More load on the CPUs of that node. irqbalance moves the interrupts again unless they are banned.",
    goal: TuningGoal::Both,
    persists: "Lost when the driver is reloaded. Use an irqbalance policy script.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Port Interrupt Affinity\"",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.topology.nodes.len() < 2 {
        return vec![RuleOutcome::NotHere("one NUMA node".to_owned())];
    }
    case.devices().filter_map(|link| of_link(case, link)).collect()
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let Some(node) = link.device.as_ref()?.node else {
        return Some(RuleOutcome::Unknown(format!(
            "{}: the firmware does not report its NUMA node; see the server's manual for the slot",
            link.name
        )));
    };
    let local = case.host.topology.nodes.get(&node)?;
    if case.host.interrupts_of(link).next().is_none() {
        return Some(RuleOutcome::Unknown(format!("{}: its driver reports no interrupts", link.name)));
    }
    let all = case.movable_interrupts(link);
    let places = InterruptPlaces::of(case, &all, local);
    Some(if places.away.is_empty() {
        not_away(link, node, all.len(), &places)
    } else if case.host.topology.free(local).is_empty() {
        RuleOutcome::Good(format!(
            "{}: {} interrupts avoid node {node}, whose CPUs {local} are all isolated",
            link.name,
            places.away.len()
        ))
    } else {
        away(case, link, (node, local), &all, &places)
    })
}

/// Interrupts, by whether they are delivered only to certain CPUs.
struct InterruptPlaces<'a> {
    within: usize,
    away: Vec<&'a HostInterrupt>,
    /// The CPUs of those interrupts.
    away_to: CpuSet,
    untold: usize,
}

impl<'a> InterruptPlaces<'a> {
    fn of(case: &TuningCase<'_>, interrupts: &[&'a HostInterrupt], local: &CpuSet) -> Self {
        let mut places = InterruptPlaces { within: 0, away: Vec::new(), away_to: CpuSet::default(), untold: 0 };
        let is_within = |cpus: &CpuSet| cpus.iter().all(|cpu| local.contains(cpu));
        for interrupt in interrupts {
            match case.handlers(interrupt) {
                InterruptCpus::Now(cpus) | InterruptCpus::Past(cpus) if is_within(&cpus) => places.within += 1,
                _ if is_within(&interrupt.affinity) => places.within += 1,
                InterruptCpus::Now(cpus) => {
                    places.away.push(interrupt);
                    places.away_to = places.away_to.iter().chain(cpus.iter()).collect();
                }
                InterruptCpus::Past(_) => places.untold += 1,
                // An interrupt that has never occurred is irrelevant if there are others.
                InterruptCpus::Unknown => {}
            }
        }
        places
    }
}

fn not_away(link: &HostLink, node: u32, all: usize, places: &InterruptPlaces<'_>) -> RuleOutcome {
    if all == 0 {
        return RuleOutcome::Good(format!("{}: its interrupts are managed by the kernel", link.name));
    }
    match (places.within, places.untold) {
        (0, _) | (_, 1..) => untold(link, all - places.within, all),
        (within, 0) if within == all => {
            RuleOutcome::Good(format!("{}: all {all} interrupts go to node {node}", link.name))
        }
        (within, 0) => RuleOutcome::Good(format!("{}: all {within} active interrupts go to node {node}", link.name)),
    }
}

/// Returns the result for interrupts whose destination the kernel does not report and whose counts show several CPUs or
/// none.
pub(super) fn untold(link: &HostLink, some: usize, all: usize) -> RuleOutcome {
    RuleOutcome::Unknown(format!(
        "{}: cannot determine which CPUs handle {some} of its {all} interrupts: the kernel has no effective_affinity_list, \
         and /proc/interrupts counts since boot; watch them under load (--observe 10s)",
        link.name
    ))
}

fn away(
    case: &TuningCase<'_>,
    link: &HostLink,
    (node, local): (u32, &CpuSet),
    all: &[&HostInterrupt],
    places: &InterruptPlaces<'_>,
) -> RuleOutcome {
    let seen = format!(
        "{} of {} interrupts go to CPUs {}, on {}; the NIC is on node {node} (CPUs {local})",
        places.away.len(),
        all.len(),
        places.away_to,
        nodes(&case.host.topology.nodes_of(&places.away_to)),
    );
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why)
        .gain(ExpectedGain::Large)
        .owner(super::irqbalance::owner(case));
    finding.change(spread(case, all, local))
}

fn nodes(nodes: &[u32]) -> String {
    let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
    format!("node{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// Assigns CPUs to interrupts round-robin: first one thread of each core, then the others. Isolated CPUs are skipped.
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
    let free = case.host.topology.free(among);
    let mut ranked: Vec<(usize, u32)> = Vec::new();
    for core in &case.host.topology.cores {
        ranked.extend(core.iter().filter(|cpu| free.contains(*cpu)).enumerate());
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}
