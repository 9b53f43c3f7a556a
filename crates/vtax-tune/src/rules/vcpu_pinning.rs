//! vCPUs on a node other than the NIC's.

use super::vhost_node::{nic_node, of_guest};
use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::{GUESTS, LINKS, NODES},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "vcpu-pinning",
    title: "vCPUs on the NIC's node",
    reads: "/proc/PID/task/TID/status of threads named CPU N/KVM",
    needs: &[GUESTS, NODES, LINKS],
    good: "The vCPUs of the guest with the highest network load run on the NIC's node. Other guests are not pinned, so \
           that they use the other nodes.",
    why: "A guest's memory is on the node where its vCPUs first ran. If vhost and the NIC are on another node, each \
          packet crosses the interconnect between the sockets.",
    risk: ChangeRisk::Medium,
    risks: "Pinning all guests to one node overloads it. Apply the rule only to guests that need it.",
    goal: TuningGoal::Both,
    persists: "Lost when the guest is stopped. With libvirt: virsh vcpupin GUEST VCPU CPUS --config.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Process Affinity\"",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let with_vcpus = case.guests().filter(|guest| !guest.vcpus.is_empty());
    let Some((node, local)) = nic_node(case) else {
        return vec![RuleOutcome::NotHere("no NIC reports which of several NUMA nodes it is on".to_owned())];
    };
    let outcomes: Vec<RuleOutcome> =
        with_vcpus.map(|guest| of_guest(case, guest, (node, local), &guest.vcpus, "vCPU", RULE.why)).collect();
    match outcomes.is_empty() {
        true => vec![RuleOutcome::NotHere("no guest with identifiable vCPU threads".to_owned())],
        false => outcomes,
    }
}
