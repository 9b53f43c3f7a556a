//! Common part of zones and guests: each is attached to a wire's end of its host.

use vtax_model::{
    method::IoMethod,
    topology::{Name, Topology},
};

use super::segment::WireEnd;
use crate::nic::{self, AddressOf, Claim, ZoneMethod};

#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) name: &'a Name,
    pub(super) host: &'a Name,
    pub(super) wire: &'a Name,
    pub(super) method: IoMethod,
    pub(super) address: AddressOf,
    pub(super) claim: Claim,
}

/// First the zones, then the guests.
pub(super) fn members<'a>(topology: &'a Topology, nics: &[&'static ZoneMethod]) -> Vec<Member<'a>> {
    let zones = topology.zones.iter().zip(nics).map(|(zone, nic)| Member {
        name: &zone.name,
        host: &zone.host,
        wire: &zone.wire,
        method: zone.method,
        address: nic.address,
        claim: nic.claim,
    });
    let guests = topology.guests.iter().map(|guest| Member {
        name: &guest.name,
        host: &guest.host,
        wire: &guest.wire,
        method: guest.attach.method(),
        // A guest's address is from the wire's network, whatever its NIC is attached to.
        address: AddressOf::Wire,
        claim: nic::claim(&guest.attach),
    });
    zones.chain(guests).collect()
}

impl Member<'_> {
    pub(super) fn is_at(&self, end: &WireEnd) -> bool {
        *self.host == end.host && *self.wire == end.wire
    }
}
