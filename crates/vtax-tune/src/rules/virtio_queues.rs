//! Queue pairs of a guest's virtual NIC.

use vtax_host::inspect::HostGuest;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::GUESTS,
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "virtio-queues",
    title: "queue pairs of virtual NICs",
    reads: "QEMU's arguments: -netdev tap,queues=N",
    needs: &[GUESTS],
    good: "As many queue pairs as vCPUs, up to 8, and no more than vCPUs.",
    why: "Each pair has its own vhost worker. With a single pair, one host CPU moves all packets of the guest.",
    risk: ChangeRisk::Medium,
    risks: "The guest must be restarted. Each pair uses host CPU time; a single stream may become slower.",
    goal: TuningGoal::Throughput,
    persists: "With libvirt: <driver name='vhost' queues='N'/> in the interface of the domain.",
    source: "Intel: latency of eight parallel streams with a queue per guest (the study vmdq measures it here)",
    check,
};

/// Number of pairs above which published measurements show no gain.
const MOST: usize = 8;
/// With fewer vCPUs, one pair is acceptable: it is libvirt's default.
const MANY: usize = 4;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let mut outcomes: Vec<RuleOutcome> = case.guests().filter_map(of_guest).collect();
    if outcomes.is_empty() {
        outcomes.push(RuleOutcome::NotHere("no guest with a virtual NIC and several vCPUs".to_owned()));
    }
    outcomes
}

fn of_guest(guest: &HostGuest) -> Option<RuleOutcome> {
    let vcpus = guest.vcpus.len();
    let queues = *guest.nic_queues.iter().min()? as usize;
    if vcpus < 2 {
        return None;
    }
    let wanted = vcpus.min(MOST);
    if queues <= vcpus && (queues > 1 || vcpus < MANY) {
        return Some(RuleOutcome::Good(format!("{}: {queues} queue pairs for {vcpus} vCPUs", guest.name)));
    }
    let seen = format!("a NIC has {queues} queue pair{} for {vcpus} vCPUs", if queues == 1 { "" } else { "s" });
    let advice = format!(
        "restart the guest with queues={wanted} (libvirt: <driver name='vhost' queues='{wanted}'/>), and measure in \
         both directions"
    );
    Some(TuningFinding::new(guest.name.clone(), seen, RULE.why).gain(ExpectedGain::Medium).advice(advice))
}
