//! `macvlan`: a link with its own MAC address on the wire, which by the kernel's design can't reach its own host.

use vtax_step::LinkRecipe;

use super::method::{AddressOf, AttachZone, Claim, Handler, Need, ZoneMethod};

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("macvlan")],
    address: AddressOf::Wire,
    claim: Claim::Receive(Handler::Macvlan),
    attach: AttachZone::Plain(|zone, script| {
        zone.on_wire(LinkRecipe::Macvlan { parent: zone.uplink.wire.clone() }, script);
    }),
};
