//! `assigned`: the NIC at the host's end of the wire itself. Its link is moved into a zone, or vfio-pci
//! hands it to a guest, and with it whatever the IOMMU doesn't tell apart from it. `root-domain`: with it
//! all that is below its root complex.

use vtax_model::topology::Guest;

use super::{AddressOf, Claim, ZoneAttachment, ZoneMethod};
use crate::{
    facts::PciDevice,
    plan::{Draft, Port},
    step::{DriverState, LabStep},
};

pub(super) const NIC: ZoneMethod = ZoneMethod { link: None, address: AddressOf::Host, claim: Claim::All, attach };

/// The wire itself was made with the other wires, its end already here.
fn attach(zone: &ZoneAttachment<'_>, draft: &mut Draft<'_>) {
    draft.address(&zone.uplink.wire, zone.address);
    draft.zone_endpoint(zone, vec![zone.uplink.wire.clone()]);
}

/// For a guest: the NIC, and what goes with it.
pub(super) fn hand_over(draft: &mut Draft<'_>, guest: &Guest) -> (Port, Vec<PciDevice>) {
    let (port, companions) = (draft.port_of(guest).clone(), draft.companions(&guest.name).to_vec());
    for device in std::iter::once(&port.nic).chain(&companions) {
        draft.step(LabStep::AssignDevice { device: device.device, was: DriverState::of(device) });
    }
    (port, companions)
}
