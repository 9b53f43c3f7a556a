//! What all guests need, whatever their NIC is: QEMU, a system to boot, and a tap on the host's virtual
//! switch, or a macvtap on the wire's end in place of both, or a PCI device. The switch itself belongs to
//! the wire's end and is made with it.

use std::path::PathBuf;

use ipnet::Ipv4Net;
use vtax_model::{
    guest::{Attach, Flavour, Mac, System, Vnet},
    method::Unsupported,
    topology::Guest,
};

use super::{Claim, Handler, assigned, emulated, function, paravirtual};
use crate::{
    facts::{Facts, GuestFacts, QemuFacts},
    guest::launch::{Boot, NicKind},
    place::Place,
    plan::{Draft, Uplink},
    step::LinkRecipe,
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
    /// Nothing of a PCI device.
    pub(crate) flavour: Option<Flavour>,
}

/// A guest about to be attached.
pub(crate) struct GuestAttachment<'a> {
    pub(crate) guest: &'a Guest,
    pub(crate) fitting: Fitting,
    pub(crate) uplink: &'a Uplink,
    pub(crate) address: Ipv4Net,
    pub(crate) mac: Mac,
}

/// What the guest gets here, or why it can't be had; `device` drives the PCI device that it is to have.
pub(crate) fn fitting(guest: &Guest, device: Option<&str>, facts: &Facts) -> Result<Fitting, Unsupported> {
    let machine = machine(&guest.attach, facts)?;
    let (attach, flavour) = nic(&guest.attach, machine, facts)?;
    let qemu = machine.qemu.clone()?;
    let boot = machine.boot(&guest.system, flavour.map(Flavour::driver).or(device).unwrap_or_default())?;
    Ok(Fitting { qemu, boot, agent: machine.agent.clone(), attach, flavour })
}

/// Whether guests with such a NIC and system can be had here; of a PCI device, apart from its driver.
pub(crate) fn supported(attach: &Attach, system: &System, facts: &Facts) -> Result<(), Unsupported> {
    let machine = machine(attach, facts)?;
    let (_, flavour) = nic(attach, machine, facts)?;
    machine.qemu.clone()?;
    flavour.map_or(Ok(()), |flavour| machine.boot(system, flavour.driver()).map(drop))
}

/// Where a guest's NIC hangs on the host; nothing of a PCI device.
fn vnet(attach: &Attach) -> Option<Vnet> {
    match attach {
        Attach::Paravirtual(nic) => Some(nic.vnet),
        Attach::Emulated { .. } => Some(Vnet::Bridge),
        Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain => None,
    }
}

/// What a guest does to the wire's end.
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
        super::kernel_has("bridge", facts)?;
    }
    facts.guests.as_ref().ok_or_else(|| {
        Unsupported::new(
            "nobody has looked for QEMU and a kernel for guests",
            "ask for guests by the name of their method",
        )
    })
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
            let backend = paravirtual::backend(nic, machine)?;
            let nic = vtax_model::guest::VirtioNic { backend: Some(backend), ..*nic };
            Ok((Attach::Paravirtual(nic), Some(Flavour::Backend(backend))))
        }
        Attach::Emulated { model } => {
            emulated::supported(*model, qemu)?;
            Ok((*attach, Some(Flavour::Model(*model))))
        }
        Attach::SrIov(_) | Attach::Assigned | Attach::RootDomain => Ok((*attach, None)),
    }
}

/// Adds the guest's side of the host, the guest and its endpoint.
pub(crate) fn attach(guest: &GuestAttachment<'_>, draft: &mut Draft<'_>) {
    let name = &guest.guest.name;
    let physical = &guest.uplink.wire;
    match guest.fitting.attach {
        Attach::Paravirtual(nic) => {
            let tap = tap(guest, draft);
            let device = paravirtual::device(&nic, &tap.link);
            on_tap(guest, draft, tap, device);
        }
        Attach::Emulated { model } => {
            let tap = tap(guest, draft);
            let device = emulated::device(model, &tap.link);
            on_tap(guest, draft, tap, device);
        }
        Attach::SrIov(_) => {
            let function = function::lend(draft, name, physical.clone());
            let device = NicKind::Vfio { device: function.device, driver: function.driver };
            draft.guest(guest, device, Vec::new(), vec![physical.clone()]);
        }
        Attach::Assigned | Attach::RootDomain => {
            let (port, companions) = assigned::hand_over(draft, guest.guest);
            let driver = port.nic.driver.unwrap_or_default();
            let others = companions.iter().map(|companion| companion.device).collect();
            draft.guest(guest, NicKind::Vfio { device: port.nic.device, driver }, others, vec![physical.clone()]);
        }
    }
}

fn tap(guest: &GuestAttachment<'_>, draft: &mut Draft<'_>) -> Place {
    let GuestAttachment { guest: asked, fitting, uplink, mac, .. } = guest;
    let tap = draft.vnet(&asked.host);
    match vnet(&fitting.attach) {
        Some(Vnet::Macvtap) => {
            draft.link(&tap, LinkRecipe::Macvtap { parent: uplink.wire.clone(), mac: *mac }, &asked.name);
            draft.enable(&tap, None, &asked.name);
        }
        _ => {
            let switch = &uplink.stack[0];
            draft.link(&tap, LinkRecipe::Tap { queues: fitting.attach.queues() }, &asked.name);
            draft.enable(&tap, Some(&switch.link), &asked.name);
        }
    }
    tap
}

fn on_tap(guest: &GuestAttachment<'_>, draft: &mut Draft<'_>, tap: Place, device: NicKind) {
    let stack = [vec![tap], guest.uplink.stack.clone()].concat();
    draft.guest(guest, device, Vec::new(), stack);
}
