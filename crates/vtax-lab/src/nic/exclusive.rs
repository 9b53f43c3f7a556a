//! `exclusive`: the zone has a dedicated wire, as a zone with `ip-type=exclusive` has a NIC. `assigned` does
//! the same with a wire that is a cable: the zone gets the NIC's own link.
//!
//! The wire's end is created in the zone, or moved there, together with the other wires. The host has no address on it.

use super::method::{AddressOf, AttachZone, Claim, ZoneMethod};

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[],
    address: AddressOf::Host,
    claim: Claim::All,
    attach: AttachZone::Plain(|zone, script| zone.at_wire(script)),
};
