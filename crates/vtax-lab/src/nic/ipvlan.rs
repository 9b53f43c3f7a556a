//! `ipvlan`: a link that shares the wire's MAC address (l2 mode), made inside the zone. By
//! the kernel's design it doesn't reach its own host.

use super::{AddressOf, Attachment, Claim, Handler, Nic};
use crate::{plan::Draft, step::NewLink};

pub(super) const NIC: Nic =
    Nic { link: Some("ipvlan"), address: AddressOf::Wire, claim: Claim::Receive(Handler::Ipvlan), attach };

fn attach(zone: &Attachment<'_>, draft: &mut Draft<'_>) {
    draft.on_wire(zone, NewLink::Ipvlan { parent: zone.uplink.wire.clone() });
}
