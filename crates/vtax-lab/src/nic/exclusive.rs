//! `exclusive`: the zone has a wire of its own, as a zone with `ip-type=exclusive` has a NIC.
//! The wire's end is made inside the zone; the host has no address on that wire.

use super::{AddressOf, Claim, ZoneAttachment, ZoneMethod};
use crate::plan::Draft;

pub(super) const NIC: ZoneMethod = ZoneMethod { link: None, address: AddressOf::Host, claim: Claim::All, attach };

/// The wire itself was made with the other wires, its end already here.
fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    draft.address(&zone.uplink.wire, zone.address);
    draft.zone_endpoint(zone, vec![zone.uplink.wire.clone()]);
}
