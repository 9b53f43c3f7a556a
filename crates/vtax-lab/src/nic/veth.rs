//! `veth`: a pair of links between host and zone, and the host routes. The other stations of the wire need
//! one route for all routed zones of a host; it is added when all zones are attached.

use vtax_step::LinkRecipe;

use super::method::{AddressOf, AttachZone, Claim, Router, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

pub(super) const NIC: ZoneMethod =
    ZoneMethod { needs: &[], address: AddressOf::Routed, claim: Claim::Nothing, attach: AttachZone::Routed(attach) };

fn attach(zone: &ZoneAttachment<'_>, router: Router, script: &mut PlanScript) {
    let (name, host) = (&zone.zone.name, &zone.zone.host);
    let (inner, outer) = (zone.link(), script.vnet(host));
    script.namespace(name);
    script.link(&outer, LinkRecipe::Veth { peer: inner.clone() }, name);
    script.enable(&outer, None, name);
    script.enable(&inner, None, name);
    script.address(&outer, router.inner);
    script.address(&inner, zone.address);
    script.forward(host);
    script.default_route(name, router.inner.addr());
    zone.endpoint(zone.uplink.below([inner, outer]), script);
}
