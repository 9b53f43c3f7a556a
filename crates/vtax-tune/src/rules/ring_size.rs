//! Packets that a NIC could not store.

use vtax_host::inspect::HostLink;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{COUNTERS, LINKS},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "ring-size",
    title: "NIC receive ring",
    reads: "/sys/class/net/LINK/statistics/rx_missed_errors, ethtool -g LINK",
    needs: &[COUNTERS, LINKS],
    good: "The driver's default. Larger only where the NIC misses packets.",
    why: "A packet for which no descriptor is free is lost before the kernel sees it.",
    risk: ChangeRisk::High,
    risks: "The driver resets the link: connections stall for seconds. A large ring doesn't fit in the cache.",
    goal: TuningGoal::Throughput,
    persists: "RxBufferSize= in a systemd .link file. `--persist` writes a udev rule for a NIC.",
    source: "ethtool(8), systemd.link(5). Since Linux 6.11, virtio_net grows its ring automatically as needed.",
    check,
};

/// Share of all packets that justifies a change.
const MANY: f64 = 1e-5;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let outcomes: Vec<RuleOutcome> = case.ports().filter_map(|link| of_link(case, link)).collect();
    match outcomes.is_empty() {
        true => vec![RuleOutcome::NotHere("no NIC reports its rings".to_owned())],
        false => outcomes,
    }
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let rings = case.host.nic(link)?.rings?;
    let counters = case.observed.map_or(link.counters, |observed| observed.link(link));
    let (missed, received) = (counters.rx_missed_errors, counters.rx_packets);
    if missed as f64 <= MANY * received.max(1) as f64 {
        return Some(RuleOutcome::Good(format!("{}: {missed} of {received} packets missed", link.name)));
    }
    let seen =
        format!("{missed} of {received} packets missed, with {} descriptors of at most {}", rings.rx, rings.rx_most);
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why).gain(ExpectedGain::Large);
    if rings.rx >= rings.rx_most {
        return Some(finding.advice("the ring has its maximum size: spread the work over more queues"));
    }
    let larger = rings.rx.saturating_mul(2).min(rings.rx_most);
    Some(
        finding.change([
            HostSetting::LinkRxRing { link: link.name.clone(), value: larger }.instead_of(rings.rx.to_string())
        ]),
    )
}
