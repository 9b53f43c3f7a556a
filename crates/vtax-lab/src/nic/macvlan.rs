//! `macvlan`: a link with a MAC address of its own directly on the wire, made inside the
//! zone. By the kernel's design it doesn't reach its own host.

use super::{AddressOf, Claim, Handler, ZoneAttachment, ZoneMethod};
use crate::{plan::Draft, step::LinkRecipe};

pub(super) const NIC: ZoneMethod =
    ZoneMethod { link: Some("macvlan"), address: AddressOf::Wire, claim: Claim::Receive(Handler::Macvlan), attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    draft.on_wire(zone, LinkRecipe::Macvlan { parent: zone.uplink.wire.clone() });
}
