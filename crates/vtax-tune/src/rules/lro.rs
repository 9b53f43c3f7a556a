//! Large receive offload under a bridge.

use vtax_change::OnOff;
use vtax_host::inspect::HostLink;
use vtax_model::foreign::ForeignText;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{BRIDGES, LINKS, MASTERS},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "lro",
    title: "large receive offload under a bridge",
    reads: "ethtool -k LINK, /sys/class/net/LINK/master",
    needs: &[MASTERS, BRIDGES, LINKS],
    good: "Off on a bridge port, and on the links below a bond or VLAN that is a bridge port. GRO does the same and \
           is reversible.",
    why: "Packets that the NIC has merged cannot be forwarded as they arrived: they are too long for the next link.",
    risk: ChangeRisk::High,
    risks: "Some drivers reset the link. More CPU time for traffic that terminates on this host.",
    goal: TuningGoal::Both,
    persists: "LargeReceiveOffload=no in a systemd .link file. `--persist` writes a udev rule for a NIC.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"NIC Offload Features\"",
    check,
};

const LRO: &str = "rx-lro";

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let lro = |link: &HostLink| case.host.nic(link)?.offloads.get(&ForeignText::from(LRO)).copied();
    let below = |link: &'_ _| case.bridge_above(link);
    let ports: Vec<(&HostLink, &HostLink)> = case.links().filter_map(|link| Some((link, below(link)?))).collect();
    let on: Vec<_> = ports.iter().copied().filter(|(link, _)| lro(link) == Some(true)).collect();
    match (ports.is_empty(), on.is_empty()) {
        (true, _) => vec![RuleOutcome::NotHere("no link is a bridge port".to_owned())],
        (false, true) => vec![RuleOutcome::Good(format!("off on all {} bridge ports", ports.len()))],
        (false, false) => on.into_iter().map(|(link, bridge)| finding(link, bridge)).collect(),
    }
}

fn finding(link: &HostLink, bridge: &HostLink) -> RuleOutcome {
    let place = match &link.master {
        Some(master) if *master == bridge.name => format!("is a port of {master}"),
        Some(master) => format!("is a port of {master}, below the bridge {}", bridge.name),
        None => format!("is below the bridge {}", bridge.name),
    };
    let finding = TuningFinding::new(link.name.clone(), format!("on, and the link {place}"), RULE.why);
    let setting = HostSetting::LinkFeature { link: link.name.clone(), feature: LRO.into(), value: OnOff(false) };
    finding.gain(ExpectedGain::Medium).change([setting.instead_of("on")])
}
