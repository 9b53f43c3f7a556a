//! `ipvlan`: a link that shares the wire's MAC address (l2 mode), made inside the zone. By
//! the kernel's design it doesn't reach its own host.

use super::{AddressOf, Claim, Handler, ZoneAttachment, ZoneMethod};
use crate::{plan::Draft, step::LinkRecipe};

pub(super) const NIC: ZoneMethod =
    ZoneMethod { link: Some("ipvlan"), address: AddressOf::Wire, claim: Claim::Receive(Handler::Ipvlan), attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    draft.on_wire(zone, LinkRecipe::Ipvlan { parent: zone.uplink.wire.clone() });
}
