//! `published`: like `nat`, and the host's kernel forwards traffic to some of the host's ports (DNAT), as for a
//! container's published ports.

use super::method::{AddressOf, AttachZone, Claim, Need, PrivateNet, Router, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("bridge"), Need::Translation],
    address: AddressOf::Private(PrivateNet::Pair),
    claim: Claim::Nothing,
    attach: AttachZone::Routed(attach),
};

fn attach(zone: &ZoneAttachment<'_>, router: Router, script: &mut PlanScript) {
    let ports = script.publish(&zone.zone.host, router.outer);
    let stack = zone.behind_bridge(router, Some(&ports), script);
    zone.published_endpoint(stack, Some(ports), script);
}
