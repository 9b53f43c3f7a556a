//! `bridge`: the zone's link and the wire are ports of the host's virtual switch, which is created with the wire's end.

use vtax_step::LinkRecipe;

use super::method::{AddressOf, AttachZone, Claim, Handler, Need, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("bridge")],
    address: AddressOf::Wire,
    claim: Claim::Receive(Handler::Bridge),
    attach: AttachZone::Plain(attach),
};

fn attach(zone: &ZoneAttachment<'_>, script: &mut PlanScript) {
    let name = &zone.zone.name;
    let (inner, port) = (zone.link(), script.vnet(&zone.zone.host));
    script.namespace(name);
    script.link(&port, LinkRecipe::Veth { peer: inner.clone() }, name);
    script.enable(&port, Some(&zone.uplink.stack[0].link), name);
    script.enable(&inner, None, name);
    script.address(&inner, zone.address);
    zone.endpoint(zone.uplink.below([inner, port]), script);
}
