//! Tunnels and their endpoints.
//!
//! A tunnel runs between two ends of one segment. If both ends have zones of `vxlan`, the i-th zone of one
//! end is paired with the i-th of the other. A zone without a partner is paired with the other host.

use vtax_model::{
    method::IoMethod,
    topology::{Name, Topology, Zone},
};

use super::{
    error::PlanError,
    segment::{Segment, WireEnd},
};

/// Two ends; the first is a zone's, the second a zone's or the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TunnelEnds {
    pub(super) ends: [WireEnd; 2],
    pub(super) near: Name,
    pub(super) far: Option<Name>,
}

/// The tunnels of all segments. The number of a tunnel is its place in this list plus one.
pub(super) fn pairs(topology: &Topology, segments: &[Segment]) -> Result<Vec<TunnelEnds>, PlanError> {
    let mut pairs = Vec::new();
    for segment in segments {
        let zones_at: Vec<(&WireEnd, Vec<&Zone>)> =
            segment.ends.iter().map(|end| (end, tunnel_zones(topology, end))).collect();
        for (index, (end, zones)) in zones_at.iter().enumerate() {
            let Some(zone) = zones.first() else { continue };
            let far = other_end(index, zone, &zones_at)?;
            let (far_end, partners) = &zones_at[far];
            // The first end has already made the pairs of both ends.
            let unpaired = if far < index { partners.len().min(zones.len()) } else { 0 };
            pairs.extend(zones.iter().enumerate().skip(unpaired).map(|(nth, zone)| TunnelEnds {
                ends: [(*end).clone(), (*far_end).clone()],
                near: zone.name.clone(),
                far: partners.get(nth).map(|partner| partner.name.clone()),
            }));
        }
    }
    Ok(pairs)
}

fn tunnel_zones<'a>(topology: &'a Topology, end: &WireEnd) -> Vec<&'a Zone> {
    let here = |zone: &&Zone| zone.host == end.host && zone.wire == end.wire && zone.method == IoMethod::Vxlan;
    topology.zones.iter().filter(here).collect()
}

/// The end that the tunnels of the end `index` lead to.
fn other_end(index: usize, zone: &Zone, zones_at: &[(&WireEnd, Vec<&Zone>)]) -> Result<usize, PlanError> {
    let others = || (0..zones_at.len()).filter(|other| zones_at[*other].0.host != zones_at[index].0.host);
    let with_tunnels: Vec<usize> = others().filter(|other| !zones_at[*other].1.is_empty()).collect();
    let all: Vec<usize> = others().collect();
    let why = match (with_tunnels.as_slice(), all.as_slice()) {
        ([only], _) | ([], [only]) => return Ok(*only),
        ([], []) => "no other host is on it; join one",
        ([], _) => "several hosts are on it; put a vxlan zone on the intended one",
        _ => "several hosts on it have vxlan zones; use a wire for each pair of hosts",
    };
    Err(PlanError::NoTunnelEnd { zone: zone.name.clone(), wire: zone.wire.clone(), why })
}
