//! `shared-ip`: the zone's processes live on the host's stack and bind to an address of
//! their own, as a non-global zone with `ip-type=shared` does.

use super::{AddressOf, Claim, ZoneAttachment, ZoneMethod};
use crate::plan::Draft;

pub(super) const NIC: ZoneMethod = ZoneMethod { link: None, address: AddressOf::Wire, claim: Claim::Nothing, attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    let on = zone.uplink.stack[0].clone();
    draft.address(&on, zone.address);
    draft.zone_endpoint(zone, zone.uplink.stack.clone());
}
