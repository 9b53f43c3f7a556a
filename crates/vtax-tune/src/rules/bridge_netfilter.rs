//! Bridged packets in the host's firewall.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{BRIDGES, LINKS, PROCESSES},
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "bridge-netfilter",
    title: "bridged packets in the host firewall",
    reads: NAME,
    needs: &[&["/proc/sys/net/bridge/*"], BRIDGES, LINKS, PROCESSES],
    good: "0, if no firewall rule applies to bridged packets. Docker and Kubernetes require 1.",
    why: "Each bridged packet also traverses iptables, and may get a conntrack entry.",
    risk: ChangeRisk::Security,
    risks: "Rules that isolate guests or containers stop working. vtax never changes it.",
    goal: TuningGoal::Both,
    persists: "A file in /etc/sysctl.d, if it is read after the module br_netfilter is loaded.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"TCP Parameter Settings\"",
    check,
};

const NAME: &str = "net.bridge.bridge-nf-call-iptables";
/// Services whose rules apply to bridged packets.
const DEPENDENT: [&str; 4] = ["containerd", "crio", "dockerd", "kubelet"];

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let Some(value) = case.host.sysctl(NAME) else {
        return vec![RuleOutcome::NotHere("the module br_netfilter is not loaded".to_owned())];
    };
    if value == "0" || !case.host.links.iter().any(|link| link.is_bridge) {
        return vec![RuleOutcome::Good("bridged packets bypass iptables".to_owned())];
    }
    let dependent: Vec<&str> = DEPENDENT.into_iter().filter(|service| case.host.owners.runs(service)).collect();
    if !dependent.is_empty() {
        return vec![RuleOutcome::Good(format!("on; required by {}", dependent.join(", ")))];
    }
    let finding = TuningFinding::new(NAME, value, RULE.why).gain(ExpectedGain::Medium).owner(case.owner_of(NAME));
    vec![finding.advice("check iptables -L FORWARD: if no rule applies to the bridge, set it to 0 manually")]
}
