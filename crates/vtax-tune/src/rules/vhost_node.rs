//! vhost workers on a node other than the NIC's.

use vtax_host::inspect::{HostGuest, HostThread};
use vtax_model::cpus::CpuSet;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{GUESTS, LINKS, NODES},
    rule::{ChangeRisk, TuningRule},
    setting::{HostSetting, Proposal},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "vhost-node",
    title: "vhost workers on the NIC's node",
    reads: "/proc/PID/task/TID/status of threads named vhost-PID",
    needs: &[GUESTS, NODES, LINKS],
    good: "Each worker runs on a separate core of the NIC's node.",
    why: "A worker copies each packet between the guest's memory and the host's. On another node, both are remote \
          accesses.",
    risk: ChangeRisk::Medium,
    risks: "More load on the CPUs of that node.",
    goal: TuningGoal::Both,
    persists: "Lost when the guest is stopped. With libvirt, for all of QEMU's threads: virsh emulatorpin GUEST CPUS \
               --config.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Process Affinity\": netback next to netfront",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let workers: Vec<&HostGuest> = case.guests().filter(|guest| !guest.vhost.is_empty()).collect();
    if workers.is_empty() {
        return vec![RuleOutcome::NotHere("no guest with vhost".to_owned())];
    }
    let Some((node, local)) = nic_node(case) else {
        return vec![RuleOutcome::NotHere("no NIC reports which of several NUMA nodes it is on".to_owned())];
    };
    let of_workers = |guest: &HostGuest| of_guest(case, guest, (node, local), &guest.vhost, "vhost worker", RULE.why);
    workers.into_iter().map(of_workers).collect()
}

/// Returns the node of the NICs, if they are all on the same one and there are several nodes.
pub(super) fn nic_node<'a>(case: &TuningCase<'a>) -> Option<(u32, &'a CpuSet)> {
    let nodes = &case.host.topology.nodes;
    let mut of_ports = case.ports().filter_map(|link| link.device.as_ref()?.node);
    let node = of_ports.next().filter(|_| nodes.len() > 1)?;
    if of_ports.any(|other| other != node) {
        return None;
    }
    Some((node, nodes.get(&node)?))
}

/// Checks for threads of a guest that may run outside the node.
pub(super) fn of_guest(
    case: &TuningCase<'_>,
    guest: &HostGuest,
    (node, local): (u32, &CpuSet),
    threads: &[HostThread],
    what: &str,
    because: &str,
) -> RuleOutcome {
    let away: Vec<&HostThread> =
        threads.iter().filter(|thread| thread.allowed.iter().any(|cpu| !local.contains(cpu))).collect();
    if away.is_empty() {
        return RuleOutcome::Good(format!("{}: node {node} has {}", guest.name, counted(threads.len(), threads, what)));
    }
    let allowed: CpuSet = away.iter().flat_map(|thread| thread.allowed.iter()).collect();
    let away_now = counted(away.len(), threads, what);
    let seen = format!("{away_now} may run on CPUs {allowed}; the NIC is on node {node} (CPUs {local})");
    let finding = TuningFinding::new(guest.name.clone(), seen, because).gain(ExpectedGain::Large);
    let topology = &case.host.topology;
    let free = topology.free(local);
    if free.is_empty() {
        return finding.advice(format!("choose CPUs manually: all of node {node} are isolated"));
    }
    if away.iter().any(|thread| thread.allowed.iter().all(|cpu| topology.isolated.contains(cpu))) {
        return finding.advice(format!(
            "it is pinned to isolated CPUs: assign it some of node {node} instead, or leave it there"
        ));
    }
    finding.change(away.iter().map(|thread| pin(guest, thread, &free)))
}

/// Returns a description such as "2 of its 4 vCPUs".
fn counted(some: usize, of: &[HostThread], what: &str) -> String {
    match (some, of.len()) {
        (_, 1) => format!("its {what}"),
        (some, all) if some == all => format!("all its {all} {what}s"),
        (some, all) => format!("{some} of its {all} {what}s"),
    }
}

fn pin(guest: &HostGuest, thread: &HostThread, to: &CpuSet) -> Proposal {
    let HostGuest { pid, start_ticks, .. } = *guest;
    let setting = HostSetting::ThreadCpus { pid, start_ticks, tid: thread.tid, value: to.clone() };
    setting.instead_of(thread.allowed.to_string())
}
