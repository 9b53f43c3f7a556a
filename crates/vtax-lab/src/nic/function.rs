//! `sr-iov` for a zone: a virtual function of the NIC at the host's end of the wire. The function's link is
//! moved into the zone; the NIC itself stays the host's.

use vtax_step::{LendVf, LentVf};

use super::method::{AddressOf, AttachZone, Claim, ZoneAttachment, ZoneMethod};
use crate::{script::PlanScript, step::LabStep};

pub(super) const NIC: ZoneMethod =
    ZoneMethod { needs: &[], address: AddressOf::Wire, claim: Claim::Nothing, attach: AttachZone::Function(attach) };

fn attach(zone: &ZoneAttachment<'_>, function: &LentVf, script: &mut PlanScript) {
    let (name, link) = (&zone.zone.name, zone.link());
    let lent = LendVf { at: zone.uplink.wire.clone(), function: Box::new(function.clone()) };
    script.step(LabStep::LendVf(lent));
    script.namespace(name);
    script.take_nic(function.device, &link, None, name);
    script.enable(&link, None, name);
    script.address(&link, zone.address);
    zone.endpoint(vec![link, zone.uplink.wire.clone()], script);
}
