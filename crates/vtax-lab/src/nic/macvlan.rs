//! `macvlan`: a link with a MAC address of its own directly on the wire, made inside the
//! zone. By the kernel's design it doesn't reach its own host.

use super::{AddressOf, Attachment, Claim, Handler, Nic};
use crate::{plan::Draft, step::NewLink};

pub(super) const NIC: Nic =
    Nic { link: Some("macvlan"), address: AddressOf::Wire, claim: Claim::Receive(Handler::Macvlan), attach };

fn attach(zone: &Attachment<'_>, draft: &mut Draft<'_>) {
    draft.on_wire(zone, NewLink::Macvlan { parent: zone.uplink.wire.clone() });
}
