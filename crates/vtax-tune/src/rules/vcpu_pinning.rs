//! Virtual CPUs on another node than the NIC.

use super::vhost_node::{nic_node, of_guest};
use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::{GUESTS, LINKS, NODES},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "vcpu-pinning",
    title: "virtual CPUs on the NIC's node",
    reads: "/proc/PID/task/TID/status of threads named CPU N/KVM",
    needs: &[GUESTS, NODES, LINKS],
    good: "The virtual CPUs of the guest that needs the network most run on the node the NIC is attached to. Other \
           guests aren't pinned, so they can use the other nodes.",
    why: "A guest's memory is on the node where its virtual CPUs first ran. If that differs from the node of vhost \
          and the NIC, each packet crosses the interconnect.",
    risk: ChangeRisk::Medium,
    risks: "Pinning all guests to one node overloads it. Name the rule only for the guests that need it.",
    goal: TuningGoal::Both,
    persists: "Lost when the guest stops. With libvirt: virsh vcpupin GUEST VCPU CPUS --config.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Process Affinity\"",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let with_vcpus = case.guests().filter(|guest| !guest.vcpus.is_empty());
    let Some((node, local)) = nic_node(case) else {
        return vec![RuleOutcome::NotHere("no single NUMA node of the NICs is known".to_owned())];
    };
    let outcomes: Vec<RuleOutcome> =
        with_vcpus.map(|guest| of_guest(case, guest, (node, local), &guest.vcpus, "virtual CPU", RULE.why)).collect();
    match outcomes.is_empty() {
        true => vec![RuleOutcome::NotHere("no guest whose virtual CPU threads can be identified".to_owned())],
        false => outcomes,
    }
}
