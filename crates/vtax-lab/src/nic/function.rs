//! `sr-iov`: a virtual function of the NIC at the host's end of the wire. Its driver's link is moved into
//! a zone, or vfio-pci hands it to a guest; the NIC itself stays the host's.

use vtax_model::topology::Name;

use super::{AddressOf, Attachment, Claim, Nic};
use crate::{
    place::Place,
    plan::{Draft, Function},
    step::{DriverState, LabStep, LinkState, VFIO},
};

pub(super) const NIC: Nic = Nic { link: None, address: AddressOf::Wire, claim: Claim::Nothing, attach };

fn attach(zone: &Attachment<'_>, draft: &mut Draft<'_>) {
    let name = &zone.zone.name;
    let function = configured(draft, name, zone.uplink.wire.clone());
    bind(draft, &function, &function.driver);
    let link = zone.link();
    let was = function.was.as_ref().and_then(|was| unaddressed(was.driver.link.as_ref()));
    draft.namespace(name);
    draft.take_nic(function.device, &link, was, name);
    draft.enable(&link, None, name);
    draft.address(&link, zone.address);
    draft.zone_endpoint(zone, vec![link, zone.uplink.wire.clone()]);
}

/// For a guest: kept to what is asked, and ready for QEMU.
pub(super) fn lend(draft: &mut Draft<'_>, guest: &Name, physical: Place) -> Function {
    let function = configured(draft, guest, physical);
    bind(draft, &function, VFIO);
    function
}

fn configured(draft: &mut Draft<'_>, domain: &Name, physical: Place) -> Function {
    let function = draft.function(domain).clone();
    draft.step(LabStep::ConfigureVf {
        device: function.pf,
        at: Some(physical),
        index: function.index,
        set: function.set.clone(),
        was: function.was.as_ref().map(|was| was.settings.clone()),
        link: function.was.as_ref().and_then(|was| Some((function.device, was.driver.link.clone()?))),
    });
    function
}

/// Its address is given back by the step that gave it another.
fn unaddressed(link: Option<&LinkState>) -> Option<LinkState> {
    link.map(|link| LinkState { mac: None, ..link.clone() })
}

fn bind(draft: &mut Draft<'_>, function: &Function, driver: &str) {
    let was = function.was.as_ref().map(|was| &was.driver);
    let was = was.map(|was| DriverState { link: unaddressed(was.link.as_ref()), ..was.clone() });
    draft.step(LabStep::BindDriver { device: function.device, driver: driver.to_owned(), was });
}
