//! `nat`: the zone is behind a dedicated bridge, and its packets leave with the address of the host (masquerade), like
//! those of a container. No other host can open a connection to it.

use super::method::{AddressOf, AttachZone, Claim, Need, PrivateNet, Router, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("bridge"), Need::Translation],
    address: AddressOf::Private(PrivateNet::Pair),
    claim: Claim::Nothing,
    attach: AttachZone::Routed(attach),
};

fn attach(zone: &ZoneAttachment<'_>, router: Router, script: &mut PlanScript) {
    let stack = zone.behind_bridge(router, None, script);
    zone.endpoint(stack, script);
}
