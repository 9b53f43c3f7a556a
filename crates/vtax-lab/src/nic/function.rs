//! `sr-iov`: a virtual function of the NIC at the host's end of the wire. Its driver's link is moved into
//! a zone, or vfio-pci hands it to a guest; the NIC itself stays the host's.

use vtax_model::topology::Name;

use super::{AddressOf, Claim, ZoneAttachment, ZoneMethod};
use crate::{
    facts::VFIO,
    place::Place,
    plan::Draft,
    step::{LabStep, LentVf},
};

pub(super) const NIC: ZoneMethod = ZoneMethod { link: None, address: AddressOf::Wire, claim: Claim::Nothing, attach };

fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    let name = &zone.zone.name;
    let at = zone.uplink.wire.clone();
    let function = Box::new(draft.function(name).clone());
    let (device, link) = (function.device, zone.link());
    draft.step(LabStep::LendVf { at, function });
    draft.namespace(name);
    draft.take_nic(device, &link, None, name);
    draft.enable(&link, None, name);
    draft.address(&link, zone.address);
    draft.zone_endpoint(zone, vec![link, zone.uplink.wire.clone()]);
}

/// For a guest: kept to what is asked, and ready for QEMU. Returns it with the driver that it needs there.
pub(super) fn lend(draft: &mut Draft<'_>, guest: &Name, at: Place) -> LentVf {
    let function = draft.function(guest).clone();
    let lent = LentVf { driver: VFIO.to_owned(), ..function.clone() };
    draft.step(LabStep::LendVf { at, function: Box::new(lent) });
    function
}
