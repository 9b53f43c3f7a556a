//! Receive buffer autotuning.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "moderate-rcvbuf",
    title: "receive buffer autotuning",
    reads: NAME,
    needs: &[&["/proc/sys/net/ipv4/tcp_moderate_rcvbuf"]],
    good: "1",
    why: "Without it, each connection keeps its initial buffer of 128 KiB, whatever its path could carry.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Throughput,
    persists: "A file in /etc/sysctl.d; `--persist` writes one.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"TCP Parameter Settings\"; tcp(7)",
    check,
};

const NAME: &str = "net.ipv4.tcp_moderate_rcvbuf";

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    vec![match case.host.sysctl(NAME) {
        None => RuleOutcome::NotHere(format!("this namespace has no {NAME}")),
        Some("0") => {
            let finding = TuningFinding::new(NAME, "0", RULE.why).gain(ExpectedGain::Large).owner(case.owner_of(NAME));
            finding.change([HostSetting::sysctl(NAME, 1).instead_of("0")])
        }
        Some(_) => RuleOutcome::Good(format!("{NAME} is on")),
    }]
}
