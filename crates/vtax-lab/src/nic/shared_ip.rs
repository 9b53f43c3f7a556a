//! `shared-ip`: the zone's processes use the host's stack and bind to a separate address, like a non-global zone with
//! `ip-type=shared`.

use super::method::{AddressOf, AttachZone, Claim, ZoneAttachment, ZoneMethod};
use crate::script::PlanScript;

pub(super) const NIC: ZoneMethod =
    ZoneMethod { needs: &[], address: AddressOf::Wire, claim: Claim::Nothing, attach: AttachZone::Plain(attach) };

fn attach(zone: &ZoneAttachment<'_>, script: &mut PlanScript) {
    script.address(&zone.uplink.stack[0], zone.address);
    zone.endpoint(zone.uplink.stack.clone(), script);
}
