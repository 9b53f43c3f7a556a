//! Delayed interrupts.

use std::time::Duration;

use vtax_change::OnOff;
use vtax_host::inspect::HostLink;
use vtax_model::nic::Coalescing;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::LINKS,
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "coalescing",
    title: "interrupt coalescing",
    reads: "ethtool -c LINK",
    needs: &[LINKS],
    good: "Adaptive for bandwidth. Short and fixed for latency: at most a tenth of a round trip.",
    why: "A received packet waits until the NIC raises an interrupt. Fewer interrupts use less CPU time for bandwidth, but \
          each round trip waits for them at both endpoints.",
    risk: ChangeRisk::High,
    risks: "Some drivers reset the link: connections stall for seconds. More interrupts use more CPU time.",
    goal: TuningGoal::Both,
    persists: "RxCoalesceSec= and UseAdaptiveRxCoalesce= in a systemd .link file. `--persist` writes a udev rule for a \
               NIC.",
    source: "ethtool(8), systemd.link(5)",
    check,
};

/// Maximum delay: no path in a data centre benefits from more.
const LONGEST_US: u32 = 250;
/// Limit for latency if the round trip is unknown.
const SHORT_US: u32 = 10;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let outcomes: Vec<RuleOutcome> = case.ports().filter_map(|link| of_link(case, link)).collect();
    match outcomes.is_empty() {
        true => vec![RuleOutcome::NotHere("no NIC with interrupt coalescing".to_owned())],
        false => outcomes,
    }
}

fn of_link(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let coalescing = case.host.nic(link)?.coalescing?;
    let seen = told(&coalescing);
    let limit = limit(case);
    if coalescing.rx_us > limit {
        let because = format!("A packet waits up to {} µs at each endpoint of a round trip.", coalescing.rx_us);
        let gain = if case.goal.is_latency() { ExpectedGain::Large } else { ExpectedGain::Medium };
        let finding = TuningFinding::new(link.name.clone(), seen, because).gain(gain);
        let shorter =
            HostSetting::LinkRxUsecs { link: link.name.clone(), value: limit }.instead_of(coalescing.rx_us.to_string());
        let fixed = adaptive(link, false).instead_of("on");
        return Some(finding.change(coalescing.adaptive_rx.then_some(fixed).into_iter().chain([shorter])));
    }
    let bulk =
        case.goal.is_throughput() && !coalescing.adaptive_rx && coalescing.rx_us == 0 && coalescing.rx_frames <= 1;
    if bulk && link.speed_mbps.is_some_and(|speed| speed >= 10_000) {
        let finding =
            TuningFinding::new(link.name.clone(), seen, "Each packet raises an interrupt.").gain(ExpectedGain::Medium);
        return Some(finding.change([adaptive(link, true).instead_of("off")]));
    }
    Some(RuleOutcome::Good(format!("{}: {seen}", link.name)))
}

fn adaptive(link: &HostLink, on: bool) -> HostSetting {
    HostSetting::LinkAdaptiveRx { link: link.name.clone(), value: OnOff(on) }
}

fn limit(case: &TuningCase<'_>) -> u32 {
    let tenth = |rtt: Duration| (rtt.as_micros() / 10) as u32;
    match (case.goal, case.rtt) {
        (TuningGoal::Latency, Some(rtt)) => tenth(rtt.time).min(LONGEST_US),
        (TuningGoal::Latency, None) => SHORT_US,
        (TuningGoal::Both | TuningGoal::Throughput, _) => LONGEST_US,
    }
}

fn told(coalescing: &Coalescing) -> String {
    let adaptive = if coalescing.adaptive_rx { "adaptive" } else { "fixed" };
    format!("interrupts are delayed by up to {} µs ({adaptive})", coalescing.rx_us)
}
