//! The host's network work spread over several sockets.

use vtax_host::inspect::{HostInterrupt, HostLink};
use vtax_model::cpus::CpuSet;

use super::irq_node::spread;
use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{CPUS, INTERRUPTS, LINKS},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "host-cpus",
    title: "the host's network work on one socket",
    reads: "/sys/devices/system/cpu/cpuN/topology/physical_package_id, /proc/irq/N/effective_affinity_list",
    needs: &[CPUS, INTERRUPTS, LINKS],
    good: "All interrupts of a NIC go to the CPUs of one socket: of the NIC's, or of the first one if nobody tells which \
           that is.",
    why: "Queues, sockets and buffers are shared by the CPUs that handle packets. Between sockets each of them is \
          fetched from the other's cache.",
    risk: ChangeRisk::Medium,
    risks: "One socket's CPUs have more to do.",
    goal: TuningGoal::Both,
    persists: "It is lost with the driver. Nothing keeps it but a script.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Number of dom0 CPUs\": from 160 CPUs to 20, those of \
             one socket, had the largest effect of all its steps",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let sockets = &case.host.topology.sockets;
    if sockets.len() < 2 {
        return vec![RuleOutcome::NotHere("one socket".to_owned())];
    }
    let with_interrupts = case.ports().filter(|link| case.host.interrupts_of(link).next().is_some());
    with_interrupts.map(|link| of_link(case, link)).collect()
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> RuleOutcome {
    let all: Vec<&HostInterrupt> = case.host.interrupts_of(link).collect();
    let cpus: CpuSet = all.iter().flat_map(|interrupt| interrupt.cpus().iter()).collect();
    let sockets = &case.host.topology.sockets;
    let used: Vec<&CpuSet> = sockets.iter().filter(|socket| cpus.iter().any(|cpu| socket.contains(cpu))).collect();
    let home = home(case, link);
    let on_another = match used[..] {
        [only] if home.is_none_or(|home| home.iter().any(|cpu| only.contains(cpu))) => {
            let text = format!("{}: its {} interrupts go to one socket (CPUs {only})", link.name, all.len());
            return RuleOutcome::Good(text);
        }
        [_] => ", not the NIC's",
        _ => "",
    };
    let seen = format!(
        "its {} interrupts go to CPUs {cpus}, on {} of {} sockets{on_another}",
        all.len(),
        used.len(),
        sockets.len()
    );
    let home = home.unwrap_or(&sockets[0]);
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why).gain(ExpectedGain::Large);
    finding.owner(super::irqbalance::owner(case)).change(spread(case, &all, home))
}

/// The CPUs of the node that the NIC is on. A socket may have several nodes.
fn home<'a>(case: &TuningCase<'a>, link: &HostLink) -> Option<&'a CpuSet> {
    case.host.topology.nodes.get(&link.device.as_ref()?.node?)
}
