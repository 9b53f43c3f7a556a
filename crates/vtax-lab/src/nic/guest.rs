//! What all guests need, whatever their NIC is: QEMU, a system to boot, a tap on the host's virtual
//! switch. The switch itself belongs to the wire's end and is made with it.

use ipnet::Ipv4Net;
use vtax_model::{
    guest::{Attach, Flavour, Mac},
    method::Unsupported,
    topology::Guest,
};

use super::{emulated, paravirtual, unsupported};
use crate::{
    facts::{Facts, GuestFacts, QemuFacts},
    guest::launch::{Boot, NicKind},
    place::LinkName,
    plan::{Draft, Uplink},
    step::NewLink,
};

/// What a guest gets on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Fitting {
    pub(crate) qemu: QemuFacts,
    pub(crate) boot: Boot,
    /// As asked for, with the backend that is used here.
    pub(crate) attach: Attach,
    pub(crate) flavour: Flavour,
}

/// A guest about to be attached.
pub(crate) struct GuestAttachment<'a> {
    pub(crate) guest: &'a Guest,
    pub(crate) fitting: Fitting,
    pub(crate) uplink: &'a Uplink,
    pub(crate) address: Ipv4Net,
    pub(crate) mac: Mac,
}

/// What the guest gets here, or why it can't be had.
pub(crate) fn fitting(guest: &Guest, facts: &Facts) -> Result<Fitting, Unsupported> {
    let machine = machine(facts)?;
    let (attach, flavour) = nic(&guest.attach, machine)?;
    let qemu = machine.qemu.clone()?;
    let boot = machine.boot(&guest.system, driver(flavour))?;
    Ok(Fitting { qemu, boot, attach, flavour })
}

/// Whether guests with such a NIC and a system of vtax's own can be had here.
pub(crate) fn supported(attach: &Attach, facts: &Facts) -> Result<(), Unsupported> {
    let machine = machine(facts)?;
    let (_, flavour) = nic(attach, machine)?;
    machine.boot(&Default::default(), driver(flavour)).map(drop)
}

fn machine(facts: &Facts) -> Result<&GuestFacts, Unsupported> {
    super::kernel_has("bridge", facts)?;
    facts.guests.as_ref().ok_or_else(|| {
        unsupported("nobody has looked for QEMU and a kernel for guests", "ask for guests by the name of their method")
    })
}

fn nic(attach: &Attach, machine: &GuestFacts) -> Result<(Attach, Flavour), Unsupported> {
    machine.tap.clone()?;
    let qemu = machine.qemu.as_ref().map_err(Clone::clone)?;
    match attach {
        Attach::Paravirtual(nic) => {
            let backend = paravirtual::backend(nic, machine)?;
            let nic = vtax_model::guest::VirtioNic { backend: Some(backend), ..*nic };
            Ok((Attach::Paravirtual(nic), Flavour::Backend(backend)))
        }
        Attach::Emulated { model } => {
            emulated::supported(*model, qemu)?;
            Ok((*attach, Flavour::Model(*model)))
        }
    }
}

/// The module that drives the NIC in the guest.
pub(crate) fn driver(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Backend(_) => "virtio_net",
        Flavour::Model(model) => model.driver(),
    }
}

/// Adds the guest's tap, the guest and its endpoint.
pub(crate) fn attach(guest: &GuestAttachment<'_>, draft: &mut Draft<'_>) {
    let GuestAttachment { guest: asked, fitting, uplink, .. } = guest;
    let tap = draft.vnet(&asked.host);
    let switch = &uplink.stack[0];
    draft.link(&tap, NewLink::Tap { queues: fitting.attach.queues() }, &asked.name);
    draft.enable(&tap, Some(&switch.link), &asked.name);
    let nic = device(&fitting.attach, &tap.link);
    let mut stack = vec![tap];
    stack.extend(uplink.stack.iter().cloned());
    draft.guest(guest, nic, stack);
}

fn device(attach: &Attach, tap: &LinkName) -> NicKind {
    match attach {
        Attach::Paravirtual(nic) => paravirtual::device(nic, tap),
        Attach::Emulated { model } => emulated::device(*model, tap),
    }
}
