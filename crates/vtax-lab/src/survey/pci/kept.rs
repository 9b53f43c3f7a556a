//! Devices that must never be taken from the host, because its user, its files or its agent need them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use vtax_sys::{netlink::IfIndex, pci::PciAddress};

use super::seen::{Seen, SeenLink};

/// The reason for each device that must stay. If there are several, the first one is reported.
pub(super) fn reasons(seen: &Seen) -> BTreeMap<PciAddress, String> {
    let mut kept = BTreeMap::new();
    for index in &seen.default_routes {
        keep(&mut kept, seen, *index, |link| format!("it carries the default route ({link})"));
    }
    for link in sessions(seen) {
        keep(&mut kept, seen, link.index, |link| format!("your ssh session uses it ({link})"));
    }
    for (device, why) in &seen.in_use {
        kept.entry(*device).or_insert_with(|| why.clone());
    }
    // Without its physical function, a virtual function doesn't exist.
    for device in &seen.devices {
        let why = device.virtfns.iter().find_map(|vf| Some((vf, kept.get(vf)?.clone())));
        if let Some((vf, why)) = why {
            kept.entry(device.address).or_insert_with(|| format!("its virtual function {vf} must stay: {why}"));
        }
    }
    kept
}

fn keep(kept: &mut BTreeMap<PciAddress, String>, seen: &Seen, link: IfIndex, why: impl Fn(&str) -> String) {
    let mut visited = BTreeSet::new();
    let mut waiting = vec![link];
    while let Some(link) = waiting.pop().and_then(|index| seen.link(index)) {
        if !visited.insert(link.index) {
            continue;
        }
        if let Some(device) = link.device {
            kept.entry(device).or_insert_with(|| why(&link.netdev.name));
        }
        waiting.extend(below(seen, link));
    }
}

/// The ports of a bridge or bond, and the base device of a VLAN or macvlan.
fn below(seen: &Seen, link: &SeenLink) -> impl Iterator<Item = IfIndex> {
    let ports = seen.links.iter().filter(|port| port.master == Some(link.index)).map(|port| port.index);
    ports.chain(link.parent)
}

fn sessions(seen: &Seen) -> impl Iterator<Item = &SeenLink> {
    let own = |address: &IpAddr| seen.sessions.contains(address);
    seen.links.iter().filter(move |link| link.netdev.addresses.iter().any(|net| own(&net.addr())))
}
