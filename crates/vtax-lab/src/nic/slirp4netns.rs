//! `slirp4netns`: a rootless network. The zone has a tap whose other end is the program slirp4netns. Its own network
//! stack terminates each connection of the zone, and it opens another one as a socket of the host.

use vtax_step::Relay;

use super::method::{AddressOf, AttachZone, Claim, Need, PrivateNet, Router, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

const SLIRP4NETNS: &str = "slirp4netns";

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Program(SLIRP4NETNS)],
    address: AddressOf::Private(PrivateNet::Slirp),
    claim: Claim::Nothing,
    attach: AttachZone::Routed(attach),
};

fn attach(zone: &ZoneAttachment<'_>, router: Router, script: &mut PlanScript) {
    let (link, mtu, network) = (zone.link().link, script.blueprint.mtu, zone.address.trunc());
    zone.on_tap_of(SLIRP4NETNS, Relay::Slirp4netns { link, mtu, network }, router, script);
}
