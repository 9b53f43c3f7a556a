//! `ipvlan`: a link with the wire's MAC address (l2 mode), which by the kernel's design can't reach its own host.

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
