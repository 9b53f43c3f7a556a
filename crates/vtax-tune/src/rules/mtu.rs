//! Packet sizes along the path.

use std::collections::BTreeMap;

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
    id: "mtu",
    title: "MTU along the path",
    reads: "/sys/class/net/LINK/mtu and type; packets that must not be fragmented, in both directions",
    needs: &[LINKS, MASTERS, BRIDGES],
    good: "The same on all ports of a bridge, and at least 1500 on Ethernet links outside tunnels. 9000 if all hops support \
           it. Other kinds of links, such as CAN, have their own limits.",
    why: "Each packet costs the same CPU time, whatever its size. Bridge ports with different MTUs silently drop oversized \
          packets.",
    risk: ChangeRisk::High,
    risks: "If a hop does not support the larger packets, they are silently dropped. Test with larger packets before raising \
            it.",
    goal: TuningGoal::Throughput,
    persists: "MTUBytes= in a systemd .link file. `--persist` writes a udev rule for a \
               NIC.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"Jumbo Frames\"",
    check,
};

/// MTU that every Ethernet supports.
const ETHERNET: u32 = 1500;
/// Minimum MTU for IPv6 (RFC 8200, section 5), which a tunnel over Ethernet still provides.
const LEAST: u32 = 1280;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let small = case.links().filter(|link| link.mtu < LEAST && !follows_a_port(case, link));
    let mut outcomes: Vec<RuleOutcome> = small.filter_map(|link| too_small(case, link)).collect();
    outcomes.extend(bridges(case));
    if outcomes.is_empty() {
        outcomes.push(large_enough(case));
    }
    outcomes
}

fn large_enough(case: &TuningCase<'_>) -> RuleOutcome {
    let (judged, others): (Vec<&HostLink>, Vec<&HostLink>) =
        case.links().partition(|link| is_ethernet(case, link) != Some(false));
    let kind = if others.is_empty() { "" } else { "Ethernet " };
    match judged.iter().map(|link| link.mtu).min() {
        Some(least) => RuleOutcome::Good(format!("no {kind}link has an MTU below {least}")),
        None => RuleOutcome::NotHere(format!("no {kind}link is up")),
    }
}

/// Returns true for Ethernet links and for ports of a bridge, which accepts nothing else. None if unknown.
fn is_ethernet(case: &TuningCase<'_>, link: &HostLink) -> Option<bool> {
    link.is_ethernet().or_else(|| bridge_of(case, link).map(|_| true))
}

fn bridge_of<'a>(case: &TuningCase<'a>, port: &HostLink) -> Option<&'a HostLink> {
    let bridge = case.host.links.iter().find(|link| port.master.as_ref() == Some(&link.name));
    bridge.filter(|link| link.is_bridge)
}

/// Returns true if a bridge has the MTU of one of its ports. Without an explicit MTU, it has that of its smallest port
/// and follows changes of it (`br_mtu_auto_adjust`, net/bridge/br_if.c).
fn follows_a_port(case: &TuningCase<'_>, link: &HostLink) -> bool {
    let is_port = |port: &&HostLink| port.master.as_ref() == Some(&link.name);
    link.is_bridge && case.host.links.iter().filter(is_port).any(|port| port.mtu == link.mtu)
}

/// Reports the small MTU of a link, unless it isn't Ethernet: CAN and serial lines have smaller limits.
fn too_small(case: &TuningCase<'_>, link: &HostLink) -> Option<RuleOutcome> {
    let Some(is_ethernet) = is_ethernet(case, link) else {
        let text = format!(
            "{}: cannot determine whether {} bytes are too few: the link's type is unknown",
            link.name, link.mtu
        );
        return Some(RuleOutcome::Unknown(text));
    };
    let finding =
        TuningFinding::new(link.name.clone(), format!("{} bytes", link.mtu), RULE.why).gain(ExpectedGain::Large);
    let larger = HostSetting::LinkMtu { link: link.name.clone(), value: ETHERNET };
    is_ethernet.then(|| finding.change([larger.instead_of(link.mtu.to_string())]))
}

/// Reports ports of one bridge with different MTUs. Ports of a VRF are skipped, because traffic between them is routed.
fn bridges(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let mut ports: BTreeMap<&ForeignText, Vec<&HostLink>> = BTreeMap::new();
    for link in case.links() {
        let Some(bridge) = bridge_of(case, link) else { continue };
        ports.entry(&bridge.name).or_default().push(link);
    }
    ports.into_iter().filter_map(|(bridge, ports)| differing(bridge, &ports)).collect()
}

fn differing(bridge: &ForeignText, ports: &[&HostLink]) -> Option<RuleOutcome> {
    let (least, most) = (ports.iter().map(|port| port.mtu).min()?, ports.iter().map(|port| port.mtu).max()?);
    // A small MTU is reported separately.
    if least == most || least < LEAST {
        return None;
    }
    let list: Vec<String> = ports.iter().map(|port| format!("{} {}", port.name, port.mtu)).collect();
    let finding = TuningFinding::new(bridge.clone(), format!("its ports have {}", list.join(", ")), RULE.why);
    Some(
        finding
            .gain(ExpectedGain::Large)
            .advice(format!("give all ports the same MTU: {most} if each host behind them uses it, otherwise {least}")),
    )
}
