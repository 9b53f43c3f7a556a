//! What all guests need, whatever their NIC is: QEMU, a system to boot, and a tap on the host's virtual
//! switch, or a macvtap on the wire's end in place of both. The switch itself belongs to the wire's end
//! and is made with it.

use std::path::PathBuf;

use ipnet::Ipv4Net;
use vtax_model::{
    guest::{Attach, Flavour, Mac, System, Vnet},
    method::Unsupported,
    topology::Guest,
};

use super::{Claim, Handler, emulated, paravirtual, unsupported};
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
    /// The agent's program.
    pub(crate) agent: PathBuf,
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
    let machine = machine(&guest.attach, facts)?;
    let (attach, flavour) = nic(&guest.attach, machine)?;
    let qemu = machine.qemu.clone()?;
    let boot = machine.boot(&guest.system, driver(flavour))?;
    Ok(Fitting { qemu, boot, agent: machine.agent.clone(), attach, flavour })
}

/// Whether guests with such a NIC and system can be had here.
pub(crate) fn supported(attach: &Attach, system: &System, facts: &Facts) -> Result<(), Unsupported> {
    let machine = machine(attach, facts)?;
    let (_, flavour) = nic(attach, machine)?;
    machine.boot(system, driver(flavour)).map(drop)
}

/// Where a guest's NIC hangs on the host.
fn vnet(attach: &Attach) -> Vnet {
    match attach {
        Attach::Paravirtual(nic) => nic.vnet,
        Attach::Emulated { .. } => Vnet::Bridge,
    }
}

/// What a guest does to the wire's end.
pub(crate) fn claim(attach: &Attach) -> Claim {
    Claim::Receive(match vnet(attach) {
        Vnet::Bridge => Handler::Bridge,
        Vnet::Macvtap => Handler::Macvlan,
    })
}

fn machine<'a>(attach: &Attach, facts: &'a Facts) -> Result<&'a GuestFacts, Unsupported> {
    if vnet(attach) == Vnet::Bridge {
        super::kernel_has("bridge", facts)?;
    }
    facts.guests.as_ref().ok_or_else(|| {
        unsupported("nobody has looked for QEMU and a kernel for guests", "ask for guests by the name of their method")
    })
}

fn nic(attach: &Attach, machine: &GuestFacts) -> Result<(Attach, Flavour), Unsupported> {
    match vnet(attach) {
        Vnet::Bridge => machine.tap.clone()?,
        Vnet::Macvtap => machine.macvtap.clone()?,
    }
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
    let GuestAttachment { guest: asked, fitting, uplink, mac, .. } = guest;
    let tap = draft.vnet(&asked.host);
    match vnet(&fitting.attach) {
        Vnet::Bridge => {
            let switch = &uplink.stack[0];
            draft.link(&tap, NewLink::Tap { queues: fitting.attach.queues() }, &asked.name);
            draft.enable(&tap, Some(&switch.link), &asked.name);
        }
        Vnet::Macvtap => {
            draft.link(&tap, NewLink::Macvtap { parent: uplink.wire.clone(), mac: *mac }, &asked.name);
            draft.enable(&tap, None, &asked.name);
        }
    }
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
