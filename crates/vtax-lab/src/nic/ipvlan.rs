//! `ipvlan`: a link with the wire's MAC address (l2 mode), which by the kernel's design can't reach its own host.

use vtax_step::LinkRecipe;

use super::method::{AddressOf, AttachZone, Claim, Handler, Need, ZoneMethod};

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("ipvlan")],
    address: AddressOf::Wire,
    claim: Claim::Receive(Handler::Ipvlan),
    attach: AttachZone::Plain(|zone, script| {
        zone.on_wire(LinkRecipe::Ipvlan { parent: zone.uplink.wire.clone() }, script);
    }),
};
