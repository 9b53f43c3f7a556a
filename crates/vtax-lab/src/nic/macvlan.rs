//! `macvlan`: a link with a MAC address of its own directly on the wire, made inside the zone. By the
//! kernel's design, the zone can't reach its own host over it.

use super::method::{AddressOf, AttachZone, Claim, Handler, ZoneMethod};
use crate::step::LinkRecipe;

pub(super) const NIC: ZoneMethod = ZoneMethod {
    link: Some("macvlan"),
    address: AddressOf::Wire,
    claim: Claim::Receive(Handler::Macvlan),
    attach: AttachZone::Plain(|zone, script| {
        zone.on_wire(LinkRecipe::Macvlan { parent: zone.uplink.wire.clone() }, script);
    }),
};
