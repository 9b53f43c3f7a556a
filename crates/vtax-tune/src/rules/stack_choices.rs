//! Choices that aren't right or wrong by themselves.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::SMT,
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "stack-choices",
    title: "congestion control, qdisc, busy polling, SMT",
    reads: "net.ipv4.tcp_congestion_control, net.core.default_qdisc, busy_read; /sys/devices/system/cpu/smt/control",
    needs: &[
        SMT,
        &[
            "/proc/sys/net/ipv4/tcp_congestion_control",
            "/proc/sys/net/core/default_qdisc",
            "/proc/sys/net/core/busy_read",
        ],
    ],
    good: "Whatever measured better on the path in question.",
    why: "Each of these helps some paths and harms others. vtax reports them without judging.",
    risk: ChangeRisk::Medium,
    risks: "",
    goal: TuningGoal::Both,
    persists: "A file in /etc/sysctl.d; nosmt on the kernel command line.",
    source: "tcp(7), tc(8), socket(7)",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let sysctl = |name: &str| case.host.sysctl(name).unwrap_or("unknown").to_owned();
    let smt = if case.host.smt.is_empty() { "unknown".to_owned() } else { case.host.smt.to_string() };
    vec![RuleOutcome::Good(format!(
        "congestion control {}, qdisc {}, busy_read {}, SMT {smt}: choices to measure",
        sysctl("net.ipv4.tcp_congestion_control"),
        sysctl("net.core.default_qdisc"),
        sysctl("net.core.busy_read"),
    ))]
}
