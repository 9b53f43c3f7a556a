//! Availability of a guest on this machine, and its resources there.

use std::path::PathBuf;

use vtax_model::{
    guest::{Attach, Flavour, System, VirtioNic, Vnet},
    method::Unsupported,
    topology::Guest,
};

use super::{
    emulated,
    method::{Claim, Handler},
};
use crate::facts::{Facts, GuestFacts, drivers_of_guest};
use vtax_guest::launch::GuestEngine;

/// Resources of a guest on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Fitting {
    pub(crate) engine: GuestEngine,
    pub(crate) agent: PathBuf,
    /// The requested NIC, with the backend used here.
    pub(crate) attach: Attach,
    /// Absent if the NIC is a PCI device.
    pub(crate) flavour: Option<Flavour>,
}

/// Resources of the guest here, or why it is unavailable. `device` is the module that drives its PCI device.
pub(crate) fn fitting(guest: &Guest, device: Option<&str>, facts: &Facts) -> Result<Fitting, Unsupported> {
    let machine = machine(&guest.attach, facts)?;
    let (attach, flavour) = nic(&guest.attach, machine, facts)?;
    let driver = flavour.map(Flavour::driver).or(device).unwrap_or_default();
    let boot = || machine.boot(&guest.system, &drivers_of_guest(driver, guest));
    let engine = machine.qemu.as_ref().map_err(Clone::clone)?.engine(boot()?);
    Ok(Fitting { engine, agent: machine.agent.clone(), attach, flavour })
}

/// Checks that guests with such a NIC and system are available here. The driver of a PCI device is not looked at.
pub(super) fn supported(attach: &Attach, system: &System, facts: &Facts) -> Result<(), Unsupported> {
    let machine = machine(attach, facts)?;
    let (_, flavour) = nic(attach, machine, facts)?;
    machine.qemu.clone()?;
    flavour.map_or(Ok(()), |flavour| machine.boot(system, flavour.driver()).map(drop))
}

/// Attachment point of a guest's NIC on the host; none if it is a PCI device.
pub(super) fn vnet(attach: &Attach) -> Option<Vnet> {
    match attach {
        Attach::Paravirtual(nic) => Some(nic.vnet),
        Attach::Emulated { .. } => Some(Vnet::Bridge),
        Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain => None,
    }
}

/// Effect of a guest on the wire's end.
pub(crate) fn claim(attach: &Attach) -> Claim {
    match (vnet(attach), attach) {
        (Some(Vnet::Bridge), _) => Claim::Receive(Handler::Bridge),
        (Some(Vnet::Macvtap), _) => Claim::Receive(Handler::Macvlan),
        (None, Attach::Assigned | Attach::RootDomain) => Claim::All,
        (None, _) => Claim::Nothing,
    }
}

fn machine<'a>(attach: &Attach, facts: &'a Facts) -> Result<&'a GuestFacts, Unsupported> {
    if vnet(attach) == Some(Vnet::Bridge) {
        facts.has_link_kind("bridge")?;
    }
    let nobody_looked = || {
        Unsupported::new("no search was made for QEMU and a kernel for guests", "request guests by their method's name")
    };
    facts.guests.as_ref().ok_or_else(nobody_looked)
}

fn nic(attach: &Attach, machine: &GuestFacts, facts: &Facts) -> Result<(Attach, Option<Flavour>), Unsupported> {
    match vnet(attach) {
        Some(Vnet::Bridge) => machine.tap.clone()?,
        Some(Vnet::Macvtap) => machine.macvtap.clone()?,
        None => facts.pci.for_guests()?,
    }
    let qemu = machine.qemu.as_ref().map_err(Clone::clone)?;
    match attach {
        Attach::Paravirtual(nic) => {
            let backend = machine.backend(nic)?;
            let nic = VirtioNic { backend: Some(backend), ..*nic };
            Ok((Attach::Paravirtual(nic), Some(Flavour::Backend(backend))))
        }
        Attach::Emulated { model } => {
            emulated::supported(*model, qemu)?;
            Ok((*attach, Some(Flavour::Model(*model))))
        }
        Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain => Ok((*attach, None)),
    }
}
