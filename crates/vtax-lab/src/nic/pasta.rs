//! `pasta`: a rootless network. The zone has a tap whose other end is the program pasta. It recreates each connection
//! of the zone as a socket of the host, without its own network stack.

use vtax_step::Relay;

use super::method::{AddressOf, AttachZone, Claim, Need, PrivateNet, Router, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

const PASTA: &str = "pasta";

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Program(PASTA)],
    address: AddressOf::Private(PrivateNet::Pair),
    claim: Claim::Nothing,
    attach: AttachZone::Routed(attach),
};

fn attach(zone: &ZoneAttachment<'_>, router: Router, script: &mut PlanScript) {
    let relay = Relay::Pasta {
        link: zone.link().link,
        mtu: script.blueprint.mtu,
        uplink: zone.uplink.stack[0].link.clone(),
        address: zone.address,
        gateway: router.inner.addr(),
    };
    zone.on_tap_of(PASTA, relay, router, script);
}
