//! `bridge`: a port of the host's virtual switch, of which the wire is a port as well. The
//! switch itself belongs to the wire's end and is made with it.

use super::{AddressOf, Claim, Handler, ZoneAttachment, ZoneMethod};
use crate::{plan::Draft, step::LinkRecipe};

pub(super) const NIC: ZoneMethod =
    ZoneMethod { link: Some("bridge"), address: AddressOf::Wire, claim: Claim::Receive(Handler::Bridge), attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    let (inner, port) = (zone.link(), draft.vnet(&zone.zone.host));
    let switch = &zone.uplink.stack[0];
    draft.namespace(&zone.zone.name);
    draft.link(&port, LinkRecipe::Veth { peer: inner.clone() }, &zone.zone.name);
    draft.enable(&port, Some(&switch.link), &zone.zone.name);
    draft.enable(&inner, None, &zone.zone.name);
    draft.address(&inner, zone.address);
    let mut stack = vec![inner, port];
    stack.extend(zone.uplink.stack.iter().cloned());
    draft.zone_endpoint(zone, stack);
}
