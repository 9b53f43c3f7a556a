//! Network processing spread over several sockets.

use vtax_host::inspect::{HostInterrupt, HostLink, InterruptCpus};
use vtax_model::cpus::CpuSet;

use super::irq_node::{spread, untold};
use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{CPUS, INTERRUPTS, LINKS},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "host-cpus",
    title: "network processing on one socket",
    reads: "/sys/devices/system/cpu/cpuN/topology/physical_package_id, /proc/irq/N/effective_affinity_list",
    needs: &[CPUS, INTERRUPTS, LINKS],
    good: "All interrupts of a NIC go to CPUs of one socket: the NIC's, or the first one if the NIC's is unknown.",
    why: "The CPUs that handle packets share queues, buffers and the data of network sockets. If these CPUs are on \
          several CPU sockets, this data moves between the caches of these sockets.",
    risk: ChangeRisk::Medium,
    risks: "More load on the CPUs of one socket.",
    goal: TuningGoal::Both,
    persists: "Lost when the driver is reloaded. Requires a script.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Number of dom0 CPUs\": from 160 CPUs to the 20 of \
             one socket had the largest effect of all its steps",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.topology.sockets.len() < 2 {
        return vec![RuleOutcome::NotHere("one socket".to_owned())];
    }
    let with_interrupts = case.devices().filter(|link| !case.movable_interrupts(link).is_empty());
    with_interrupts.map(|link| of_link(case, link)).collect()
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> RuleOutcome {
    let all = case.movable_interrupts(link);
    let (cpus, known) = handlers(case, &all);
    let sockets = &case.host.topology.sockets;
    let used: Vec<&CpuSet> = sockets.iter().filter(|socket| has_one_of(socket, &cpus)).collect();
    let home = home(case, link);
    let on_another = match used[..] {
        [] => return untold(link, all.len() - known, all.len()),
        [only] if home.is_none_or(|home| has_one_of(only, home)) => {
            return match known == all.len() {
                true => {
                    let text = format!("{}: its {} interrupts go to one socket (CPUs {only})", link.name, all.len());
                    RuleOutcome::Good(text)
                }
                false => untold(link, all.len() - known, all.len()),
            };
        }
        [_] => ", not the NIC's",
        _ => "",
    };
    let seen =
        format!("its {known} interrupts go to CPUs {cpus}, on {} of {} sockets{on_another}", used.len(), sockets.len());
    let Some(target) = home.or_else(|| free_one(case, sockets)) else {
        return RuleOutcome::Good(format!("{}: {seen}; all CPUs are isolated", link.name));
    };
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why).gain(ExpectedGain::Large);
    finding.owner(super::irqbalance::owner(case)).change(spread(case, &all, target))
}

/// Returns the CPUs that interrupts go to, and the number of interrupts for which they are known. Interrupts that have
/// never occurred are included: they do not affect any socket.
fn handlers(case: &TuningCase<'_>, interrupts: &[&HostInterrupt]) -> (CpuSet, usize) {
    let mut cpus = Vec::new();
    let mut known = 0;
    for interrupt in interrupts {
        match case.handlers(interrupt) {
            InterruptCpus::Now(now) => cpus.extend(now.iter()),
            InterruptCpus::Past(_) => continue,
            InterruptCpus::Unknown => {}
        }
        known += 1;
    }
    (cpus.into_iter().collect(), known)
}

fn has_one_of(socket: &CpuSet, cpus: &CpuSet) -> bool {
    cpus.iter().any(|cpu| socket.contains(cpu))
}

/// Returns the CPUs of the NIC's node, unless all of them are isolated. A socket may have several nodes.
fn home<'a>(case: &TuningCase<'a>, link: &HostLink) -> Option<&'a CpuSet> {
    let node = case.host.topology.nodes.get(&link.device.as_ref()?.node?);
    node.filter(|cpus| !case.host.topology.free(cpus).is_empty())
}

/// Returns the first socket with a CPU that is not isolated.
fn free_one<'a>(case: &TuningCase<'_>, sockets: &'a [CpuSet]) -> Option<&'a CpuSet> {
    sockets.iter().find(|socket| !case.host.topology.free(socket).is_empty())
}
