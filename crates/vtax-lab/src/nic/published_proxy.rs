//! `published-proxy`: like `nat`, and docker-proxy accepts connections to some of the host's ports and opens others to
//! the zone, as it does if Docker may not change the host's rules.

use std::net::SocketAddr;

use vtax_step::Relay;

use super::method::{AddressOf, AttachZone, Claim, Need, PrivateNet, Router, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

const PROXY: &str = "docker-proxy";

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("bridge"), Need::Translation, Need::Program(PROXY)],
    address: AddressOf::Private(PrivateNet::Pair),
    claim: Claim::Nothing,
    attach: AttachZone::Routed(attach),
};

/// A proxy serves one port of one transport.
fn attach(zone: &ZoneAttachment<'_>, router: Router, script: &mut PlanScript) {
    let ports = script.publish(&zone.zone.host, router.outer);
    let stack = zone.behind_bridge(router, None, script);
    for (reach, listen) in (0..ports.count).filter_map(|nth| ports.nth(nth)) {
        let at = SocketAddr::new(router.outer, reach.port.unwrap_or(listen));
        let to = SocketAddr::new(zone.address.addr(), listen);
        for udp in [false, true] {
            script.relay(zone.zone, PROXY, Relay::Proxy { udp, at, to });
        }
    }
    zone.published_endpoint(stack, Some(ports), script);
}
