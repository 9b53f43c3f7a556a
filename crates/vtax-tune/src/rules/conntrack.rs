//! The connection tracking table.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "conntrack",
    title: "connection tracking table",
    reads: "net.netfilter.nf_conntrack_count and nf_conntrack_max",
    needs: &[&["/proc/sys/net/netfilter/*"]],
    good: "Less than 80 % full.",
    why: "When the table is full, the first packet of each new connection is dropped.",
    risk: ChangeRisk::Medium,
    risks: "About 320 bytes of memory per connection.",
    goal: TuningGoal::Both,
    persists: "A file in /etc/sysctl.d, if it is read after the module nf_conntrack is loaded.",
    source: "Linux: Documentation/networking/nf_conntrack-sysctl.rst",
    check,
};

const MAX: &str = "net.netfilter.nf_conntrack_max";
/// Share of the table that may be in use.
const FULL: f64 = 0.8;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let number = |name: &str| case.host.sysctl(name)?.parse::<u64>().ok();
    let Some((count, max)) = number("net.netfilter.nf_conntrack_count").zip(number(MAX)) else {
        return vec![RuleOutcome::NotHere("connection tracking is off".to_owned())];
    };
    let seen = format!("{count} of {max} entries are in use");
    // 0 means that there is no limit.
    if max == 0 || count as f64 <= FULL * max as f64 {
        return vec![RuleOutcome::Good(seen)];
    }
    let finding = TuningFinding::new(MAX, seen, RULE.why).gain(ExpectedGain::Large).owner(case.owner_of(MAX));
    vec![finding.change([HostSetting::sysctl(MAX, max.saturating_mul(2)).instead_of(max.to_string())])]
}
