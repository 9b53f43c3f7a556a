//! `vxlan`: the zone has a tunnel over the wire. The link is created from the host's namespace into the zone's: its
//! outer datagrams continue to use the host's stack.
//!
//! If the other end is a host and not a zone, that host gets a link of the same tunnel. The zone's default route leads
//! there, so that the zone also reaches the host by the address that the host has on the wire.

use vtax_step::{LinkRecipe, Place};

use super::method::{AddressOf, AttachZone, Claim, Far, Need, Tunnel, ZoneAttachment, ZoneMethod};
use crate::{blueprint::TunnelEnd, script::PlanScript};

pub(super) const NIC: ZoneMethod = ZoneMethod {
    needs: &[Need::Link("vxlan")],
    address: AddressOf::Tunnel,
    claim: Claim::Nothing,
    attach: AttachZone::Tunnel(attach),
};

fn attach(zone: &ZoneAttachment<'_>, tunnel: &Tunnel, script: &mut PlanScript) {
    let (name, inner) = (&zone.zone.name, zone.link());
    script.namespace(name);
    script.link(&inner, end(tunnel, zone.uplink.stack[0].clone()), name);
    script.enable(&inner, None, name);
    script.address(&inner, zone.address);
    if let Far::Host { uplink, address } = &tunnel.far {
        let outer = far_end(zone, tunnel, uplink.stack[0].clone(), script);
        script.address(&outer, *address);
        script.default_route(name, address.addr());
        script.blueprint.tunnels.push(TunnelEnd { zone: name.clone(), stack: uplink.below([outer]) });
    }
    zone.endpoint(zone.uplink.below([inner]), script);
}

fn far_end(zone: &ZoneAttachment<'_>, tunnel: &Tunnel, parent: Place, script: &mut PlanScript) -> Place {
    let outer = Place::tunnel(&parent.namespace, tunnel.vni);
    let swapped = Tunnel { local: tunnel.remote, remote: tunnel.local, ..tunnel.clone() };
    script.link(&outer, end(&swapped, parent), &zone.zone.name);
    script.enable(&outer, None, &zone.zone.name);
    outer
}

fn end(tunnel: &Tunnel, parent: Place) -> LinkRecipe {
    LinkRecipe::Vxlan { parent, vni: tunnel.vni, local: tunnel.local, remote: tunnel.remote }
}
