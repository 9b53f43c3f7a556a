//! `ipvlan`: a link that shares the wire's MAC address (l2 mode), made inside the zone. By the kernel's
//! design, the zone can't reach its own host over it.

use super::method::{AddressOf, AttachZone, Claim, Handler, ZoneMethod};
use crate::step::LinkRecipe;

pub(super) const NIC: ZoneMethod = ZoneMethod {
    link: Some("ipvlan"),
    address: AddressOf::Wire,
    claim: Claim::Receive(Handler::Ipvlan),
    attach: AttachZone::Plain(|zone, script| {
        zone.on_wire(LinkRecipe::Ipvlan { parent: zone.uplink.wire.clone() }, script);
    }),
};
