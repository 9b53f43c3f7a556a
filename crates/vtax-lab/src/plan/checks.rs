//! Checks of a lab before it is laid out.

use std::collections::{BTreeMap, HashMap};

use vtax_model::{
    method::{GuestCount, IoMethod},
    topology::{Name, Topology},
    units::Mtu,
};

use super::{error::PlanError, member::Member, segment::WireEnd, tunnel::TunnelEnds};
use crate::{
    facts::Facts,
    nic::{Claim, Handler},
};

/// A file is checked when it is read. A topology created by a program is checked here.
pub(super) fn places(topology: &Topology) -> Result<(), PlanError> {
    let zones = topology.zones.iter().map(|zone| (&zone.name, &zone.host, &zone.wire));
    let guests = topology.guests.iter().map(|guest| (&guest.name, &guest.host, &guest.wire));
    zones.chain(guests).try_for_each(|(name, host, wire)| place(topology, name, host, wire))
}

fn place(topology: &Topology, user: &Name, host: &Name, wire: &Name) -> Result<(), PlanError> {
    let unknown =
        |what, name: &Name, why| Err(PlanError::Unknown { user: user.clone(), what, name: name.clone(), why });
    match topology.hosts.iter().find(|known| known.name == *host) {
        None => return unknown("host", host, "no such host"),
        Some(found) if found.switch => return unknown("host", host, "a switch cannot have zones or guests"),
        Some(_) => {}
    }
    match topology.wires.iter().find(|known| known.name == *wire) {
        None => unknown("wire", wire, "no such wire"),
        Some(found) if !found.ends.contains(host) => unknown("wire", wire, "it does not end at that host"),
        Some(_) => Ok(()),
    }
}

/// Multicast snooping is a setting of virtual switches.
pub(super) fn snooping(topology: &Topology, has_bridge: impl Fn(&Name) -> bool) -> Result<(), PlanError> {
    let mut set = topology.hosts.iter().filter(|host| host.snooping.is_some());
    match set.find(|host| !host.switch && !has_bridge(&host.name)) {
        Some(host) => Err(PlanError::NoSwitch { host: host.name.clone() }),
        None => Ok(()),
    }
}

pub(super) fn shapes(topology: &Topology, facts: &Facts) -> Result<(), PlanError> {
    let shaped = topology.wires.iter().find(|wire| wire.shape.is_some());
    match (shaped, facts.lacks(Facts::RATE_LIMIT)) {
        (Some(wire), Some(why)) => Err(PlanError::NoRate { wire: wire.name.clone(), why: why.to_owned() }),
        _ => Ok(()),
    }
}

/// Compares each zone and guest with those before it on the same end. One of each method is enough.
pub(super) fn clashes(members: &[Member<'_>]) -> Result<(), PlanError> {
    let mut before: HashMap<(&Name, &Name), Vec<&Member<'_>>> = HashMap::new();
    for member in members {
        let here = before.entry((member.host, member.wire)).or_default();
        if let Some((first, why)) = here.iter().find_map(|first| Some((first, clash(first, member)?))) {
            return Err(PlanError::Clash {
                wire: member.wire.clone(),
                host: member.host.clone(),
                first: first.name.clone(),
                first_method: first.method,
                second: member.name.clone(),
                second_method: member.method,
                why,
            });
        }
        if here.iter().all(|first| first.method != member.method) {
            here.push(member);
        }
    }
    Ok(())
}

fn clash(first: &Member<'_>, second: &Member<'_>) -> Option<&'static str> {
    match (first.claim, second.claim) {
        (Claim::All, _) | (_, Claim::All) => Some("one of them moves the wire's end out of its host"),
        (Claim::Receive(first), Claim::Receive(second)) if first != second => Some(
            "a device can be a bridge's port, or have macvlans and macvtaps, or have ipvlans, but only one of these",
        ),
        _ => None,
    }
}

pub(super) fn limits(topology: &Topology, members: &[Member<'_>], facts: &Facts) -> Result<(), PlanError> {
    let wanted = (topology.hosts.len() + topology.zones.len()) as u64;
    if wanted > facts.most_namespaces {
        return Err(PlanError::TooManyNamespaces { lab: topology.name.clone(), wanted, most: facts.most_namespaces });
    }
    let mut ports: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
    for member in members.iter().filter(|member| member.claim == Claim::Receive(Handler::Bridge)) {
        // The wire is a port as well.
        *ports.entry((member.host, member.wire)).or_insert(1) += 1;
    }
    let most = GuestCount::BRIDGE_PORTS;
    match ports.into_iter().find(|(_, ports)| *ports > most) {
        Some(((host, _), ports)) => Err(PlanError::BridgeFull { host: host.clone(), ports, most }),
        None => Ok(()),
    }
}

/// The MTU inside tunnels, if there are any. The MTU of the wires must carry the lab's family.
pub(super) fn tunnel_mtu(topology: &Topology) -> Result<Option<Mtu>, PlanError> {
    let Topology { family, mtu, .. } = *topology;
    let least = family.least_mtu().max(Mtu::MIN.get());
    if mtu.get() < least {
        return Err(PlanError::MtuTooSmallForFamily { mtu, family, least });
    }
    let Some(zone) = topology.zones.iter().find(|zone| zone.method == IoMethod::Vxlan) else { return Ok(None) };
    let overhead = zone.method.overhead(family);
    match mtu.less(overhead) {
        Ok(inner) if inner.get() >= least => Ok(Some(inner)),
        _ => Err(PlanError::MtuTooSmall { zone: zone.name.clone(), mtu, overhead, least: least + overhead }),
    }
}

/// A tunnel ends at an address of a host. A host has no address on a wire that it gave away.
pub(super) fn far_ends(members: &[Member<'_>], pairs: &[TunnelEnds]) -> Result<(), PlanError> {
    let given_away = |end: &WireEnd| members.iter().any(|member| member.is_at(end) && member.claim == Claim::All);
    match pairs.iter().find(|pair| pair.ends.iter().any(given_away)) {
        Some(pair) => Err(PlanError::NoTunnelEnd {
            zone: pair.near.clone(),
            wire: pair.ends[0].wire.clone(),
            why: "the other host gave its end to an exclusive zone; use a separate wire for that",
        }),
        None => Ok(()),
    }
}
