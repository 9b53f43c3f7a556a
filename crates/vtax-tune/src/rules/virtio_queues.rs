//! Queues of a virtual NIC.

use vtax_host::inspect::HostGuest;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::GUESTS,
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "virtio-queues",
    title: "virtual NIC queues",
    reads: "QEMU's arguments: -netdev tap,queues=N",
    needs: &[GUESTS],
    good: "As many queue pairs as virtual CPUs, up to 8. Not more than there are virtual CPUs.",
    why: "Each pair has its own vhost worker. With one pair, a single host CPU moves all packets of the guest.",
    risk: ChangeRisk::Medium,
    risks: "Requires a restart of the guest. Each pair uses host CPU time; a single stream may get slower.",
    goal: TuningGoal::Throughput,
    persists: "With libvirt: <driver name='vhost' queues='N'/> in the domain's interface.",
    source: "Intel: latency of eight parallel streams with a queue per guest (the study vmdq measures it here)",
    check,
};

/// More pairs gained nothing in published measurements.
const MOST: usize = 8;
/// With fewer virtual CPUs, one pair is fine: it is libvirt's default.
const MANY: usize = 4;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let mut outcomes: Vec<RuleOutcome> = case.guests().filter_map(of_guest).collect();
    if outcomes.is_empty() {
        outcomes.push(RuleOutcome::NotHere("no guest with a virtual NIC and several virtual CPUs".to_owned()));
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
        return Some(RuleOutcome::Good(format!("{}: {queues} pairs of queues for {vcpus} virtual CPUs", guest.name)));
    }
    let seen =
        format!("a NIC has {queues} pair{} of queues for {vcpus} virtual CPUs", if queues == 1 { "" } else { "s" });
    let advice = format!(
        "restart the guest with queues={wanted} (libvirt: <driver name='vhost' queues='{wanted}'/>), and measure in \
         both directions"
    );
    Some(TuningFinding::new(guest.name.clone(), seen, RULE.why).gain(ExpectedGain::Medium).advice(advice))
}
