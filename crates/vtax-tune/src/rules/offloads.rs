//! Work that the NIC could do, or the kernel once for many packets.

use vtax_change::OnOff;
use vtax_host::inspect::HostLink;
use vtax_model::{foreign::ForeignText, nic::NicFacts};

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::LINKS,
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "offloads",
    title: "segmentation and checksum offloads",
    reads: "ethtool -k LINK",
    needs: &[LINKS],
    good: "On: checksums, scatter-gather, TSO, GSO, GRO.",
    why: "With offloads the kernel handles up to 64 kB at a time. Without them, each packet traverses the whole stack.",
    risk: ChangeRisk::High,
    risks: "Some drivers reset the link: connections stall for seconds. An offload may be disabled because of a hardware \
            bug.",
    goal: TuningGoal::Throughput,
    persists: "GenericSegmentationOffload= and others in a systemd .link file. `--persist` writes a udev rule for a \
               NIC.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"NIC Offload Features\"",
    check,
};

const GRO: &str = "rx-gro";
/// Features, by the kernel's names. Others matter only for rarely used protocols.
const WANTED: [&str; 6] = [
    "rx-checksum",
    GRO,
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
];

/// Tunnels whose packets are merged after decapsulation (`gro_cells_receive`, net/core/gro_cells.c).
const TUNNELS: [&str; 6] = ["geneve", "gre", "gretap", "ipip", "macsec", "vxlan"];

/// Returns whether GRO is effective on a link. veth disables it, since most packets arrive already merged
/// (`veth_disable_gro`, drivers/net/veth.c), and links such as macvlan receive their packets after GRO.
fn joins(link: &HostLink, nic: &NicFacts) -> bool {
    link.device.is_some() || nic.driver.as_ref().is_some_and(|driver| TUNNELS.contains(&driver.raw()))
}

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let told = case.links().filter_map(|link| Some((link, case.host.nic(link)?)));
    let outcomes: Vec<RuleOutcome> = told.filter_map(|(link, nic)| of_link(link, nic)).collect();
    match (outcomes.is_empty(), case.links().next()) {
        (true, None) => vec![RuleOutcome::NotHere("no link is up".to_owned())],
        (true, Some(_)) => vec![RuleOutcome::Unknown("no driver reports its offloads".to_owned())],
        (false, _) => outcomes,
    }
}

fn of_link(link: &HostLink, nic: &NicFacts) -> Option<RuleOutcome> {
    if nic.offloads.is_empty() {
        return None;
    }
    let is_off = |name: &str| nic.offloads.get(&ForeignText::from(name)) == Some(&false);
    let wanted = WANTED.into_iter().filter(|name| *name != GRO || joins(link, nic));
    let off: Vec<&str> = wanted.filter(|name| is_off(name)).collect();
    if off.is_empty() {
        return Some(RuleOutcome::Good(format!("{}: all supported offloads are on", link.name)));
    }
    let heavy = off.iter().any(|name| name.ends_with("segmentation") || *name == GRO);
    let gain = if heavy { ExpectedGain::Large } else { ExpectedGain::Medium };
    let finding = TuningFinding::new(link.name.clone(), format!("{} is off", off.join(", ")), RULE.why).gain(gain);
    let on = |name: &&str| {
        let (link, feature) = (link.name.clone(), (*name).into());
        HostSetting::LinkFeature { link, feature, value: OnOff(true) }.instead_of("off")
    };
    Some(finding.change(off.iter().map(on)))
}
