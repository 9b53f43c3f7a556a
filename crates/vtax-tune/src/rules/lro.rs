//! Large receive offload under a bridge.

use vtax_change::OnOff;
use vtax_host::inspect::HostLink;
use vtax_model::foreign::ForeignText;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{LINKS, MASTERS},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "lro",
    title: "large receive offload under a bridge",
    reads: "ethtool -k LINK, /sys/class/net/LINK/master",
    needs: &[MASTERS, LINKS],
    good: "Off on a port of a bridge. GRO does the same and can be undone.",
    why: "Packets that the NIC has joined can't be sent on as they came: they are too long for the next link.",
    risk: ChangeRisk::Medium,
    risks: "More CPU time for traffic that ends on this host.",
    goal: TuningGoal::Both,
    persists: "LargeReceiveOffload=no in a .link file of systemd keeps it. `--persist` writes a rule of udev for a \
               NIC.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"NIC Offload Features\"",
    check,
};

const LRO: &str = "rx-lro";

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let lro = |link: &HostLink| case.host.nic(link)?.offloads.get(&ForeignText::from(LRO)).copied();
    let ports: Vec<&HostLink> = case.links().filter(|link| link.master.is_some()).collect();
    let on: Vec<&HostLink> = ports.iter().copied().filter(|link| lro(link) == Some(true)).collect();
    match (ports.is_empty(), on.is_empty()) {
        (true, _) => vec![RuleOutcome::NotHere("no link is a port of a bridge".to_owned())],
        (false, true) => vec![RuleOutcome::Good(format!("off on all {} ports of bridges", ports.len()))],
        (false, false) => on.into_iter().map(finding).collect(),
    }
}

fn finding(link: &HostLink) -> RuleOutcome {
    let master = link.master.clone().unwrap_or_default();
    let finding = TuningFinding::new(link.name.clone(), format!("on, and the link is a port of {master}"), RULE.why);
    let setting = HostSetting::LinkFeature { link: link.name.clone(), feature: LRO.into(), value: OnOff(false) };
    finding.gain(ExpectedGain::Medium).change([setting.instead_of("on")])
}
