//! Wires that share a network: switches join wires.

use vtax_model::topology::{Name, Topology};

use super::error::PlanError;

/// Wires that are one network, and the hosts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// The ends that are not on a switch, in the order of wires.
    pub(super) ends: Vec<WireEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WireEnd {
    pub(super) host: Name,
    pub(super) wire: Name,
}

impl WireEnd {
    pub(super) fn of(host: &Name, wire: &Name) -> WireEnd {
        WireEnd { host: host.clone(), wire: wire.clone() }
    }
}

/// The ends of all wires, in the order of wires.
pub(super) fn wire_ends(topology: &Topology) -> impl Iterator<Item = WireEnd> {
    topology.wires.iter().flat_map(|wire| wire.ends.iter().map(|host| WireEnd::of(host, &wire.name)))
}

/// The segments of a topology, in the order of their first wires.
pub(super) fn segments(topology: &Topology) -> Result<Vec<Segment>, PlanError> {
    let mut segment_of: Vec<usize> = (0..topology.wires.len()).collect();
    for host in topology.hosts.iter().filter(|host| host.switch) {
        let ports = topology.wires.iter().enumerate().filter(|(_, wire)| wire.ends.contains(&host.name));
        let joined: Vec<usize> = ports.map(|(index, _)| segment_of[index]).collect();
        let Some(least) = joined.iter().min().copied() else { continue };
        segment_of.iter_mut().filter(|segment| joined.contains(segment)).for_each(|segment| *segment = least);
    }
    let mut segments = Vec::new();
    for first in 0..topology.wires.len() {
        let wires: Vec<usize> = (0..topology.wires.len()).filter(|index| segment_of[*index] == first).collect();
        if !wires.is_empty() {
            segments.push(Segment { ends: ends(topology, &wires)? });
        }
    }
    Ok(segments)
}

fn ends(topology: &Topology, wires: &[usize]) -> Result<Vec<WireEnd>, PlanError> {
    let mut ends = Vec::new();
    for wire in wires.iter().map(|index| &topology.wires[*index]) {
        for name in &wire.ends {
            let host = topology.hosts.iter().find(|host| host.name == *name);
            let missing = || PlanError::Unknown {
                user: wire.name.clone(),
                what: "host",
                name: name.clone(),
                why: "no such host",
            };
            if !host.ok_or_else(missing)?.switch {
                ends.push(WireEnd::of(name, &wire.name));
            }
        }
    }
    Ok(ends)
}
