//! `veth`: a pair of links between host and zone, and the host routes. What the other
//! stations of the wire need to know, one route for all routed zones of a host, is added
//! when all zones are attached.

use super::{AddressOf, Claim, ZoneAttachment, ZoneMethod};
use crate::{plan::Draft, step::LinkRecipe};

pub(super) const NIC: ZoneMethod = ZoneMethod { link: None, address: AddressOf::Routed, claim: Claim::Nothing, attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    let host = &zone.zone.host;
    let (inner, outer) = (zone.link(), draft.vnet(host));
    let router = draft.routed_gateway(&zone.zone.name);
    draft.namespace(&zone.zone.name);
    draft.link(&outer, LinkRecipe::Veth { peer: inner.clone() }, &zone.zone.name);
    draft.enable(&outer, None, &zone.zone.name);
    draft.enable(&inner, None, &zone.zone.name);
    draft.address(&outer, router);
    draft.address(&inner, zone.address);
    draft.sysctl(host, "net.ipv4.ip_forward", "1");
    draft.default_route(&zone.zone.name, router.addr());
    let mut stack = vec![inner, outer];
    stack.extend(zone.uplink.stack.iter().cloned());
    draft.zone_endpoint(zone, stack);
}
