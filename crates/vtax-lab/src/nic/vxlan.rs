//! `vxlan`: a tunnel of the zone's own over the wire. The link is made from the host's
//! namespace into the zone's: its outer datagrams keep going through the host's stack.
//!
//! Where the other end is a host and not a zone, that host gets a link of the same tunnel,
//! and the zone's default route leads there, so that the host is reached by the address that
//! it has on the wire, too.

use super::{AddressOf, Claim, ZoneAttachment, ZoneMethod};
use crate::{
    place::{LinkName, Place},
    plan::{Draft, Far, Tunnel},
    step::LinkRecipe,
};

pub(super) const NIC: ZoneMethod =
    ZoneMethod { link: Some("vxlan"), address: AddressOf::Tunnel, claim: Claim::Nothing, attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    let tunnel = draft.tunnel(&zone.zone.name);
    draft.namespace(&zone.zone.name);
    let inner = zone.link();
    let parent = &zone.uplink.stack[0];
    draft.link(&inner, end(&tunnel, parent.clone()), &zone.zone.name);
    draft.enable(&inner, None, &zone.zone.name);
    draft.address(&inner, zone.address);
    if let Far::Host { uplink, address } = &tunnel.far {
        let outer = far_end(zone, &tunnel, uplink.stack[0].clone(), draft);
        draft.address(&outer, *address);
        draft.default_route(&zone.zone.name, address.addr());
        let mut stack = vec![outer];
        stack.extend(uplink.stack.iter().cloned());
        draft.far_stack(&zone.zone.name, stack);
    }
    let mut stack = vec![inner];
    stack.extend(zone.uplink.stack.iter().cloned());
    draft.zone_endpoint(zone, stack);
}

fn far_end(zone: &ZoneAttachment<'_>, tunnel: &Tunnel, parent: Place, draft: &mut Draft<'_>) -> Place {
    let outer = Place::new(&parent.namespace, LinkName::tunnel(tunnel.vni));
    let swapped = Tunnel { local: tunnel.remote, remote: tunnel.local, ..tunnel.clone() };
    draft.link(&outer, end(&swapped, parent), &zone.zone.name);
    draft.enable(&outer, None, &zone.zone.name);
    outer
}

fn end(tunnel: &Tunnel, parent: Place) -> LinkRecipe {
    LinkRecipe::Vxlan { parent, vni: tunnel.vni, local: tunnel.local, remote: tunnel.remote }
}
