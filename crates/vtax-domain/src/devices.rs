//! PCI devices of the host: taken for a domain, and given back as they were.
//!
//! A domain's claim is a file that is there before the device is changed, see [`DeviceClaims`].

use std::time::Duration;

use vtax_change::pci::{DRIVER_PATIENCE, DriverState, PhysicalLink, VfSettings};
use vtax_guest::{launch::Launch, process::Qemu};
use vtax_journal::Undone;
use vtax_lab::{
    World,
    facts::{PciDevice, PciFacts},
    io::{AssignableDevice, DeviceClaim, DeviceClaims, IoList},
    step::VfState,
};
use vtax_model::{
    domain::{Constraints, DomainDevice, FunctionSettings},
    topology::Name,
};
use vtax_sys::{
    netlink::MacAddr,
    pci::{PciAddress, PciTree},
};

use crate::{
    bindings::BoundDevice,
    error::BindError,
    step::{DomainStep, StepReceipt},
};

/// The driver that hands devices to QEMU.
const VFIO: &str = "vfio-pci";
/// For the first device, QEMU maps all memory of the domain in the IOMMU: in an emulated server page by page.
const PLUGGED: Duration = Duration::from_secs(180);
/// A domain's system lets a device go within this time.
const RELEASED: Duration = Duration::from_secs(30);

/// The PCI devices of this machine, with who has them.
pub(crate) struct HostIo {
    list: IoList,
    claims: DeviceClaims,
}

impl HostIo {
    pub(crate) fn look(world: &World) -> Result<HostIo, BindError> {
        let list = IoList::new(PciFacts::gather()?, world)?;
        Ok(HostIo { list, claims: DeviceClaims::of(world) })
    }

    /// What the domain's devices are at this boot. Each of them can be had, or is the domain's already.
    pub(crate) fn devices(&self, domain: &Name, constraints: &Constraints) -> Result<Vec<BoundDevice>, BindError> {
        let bound = |device: &DomainDevice| {
            // What they are to be set to must be possible, too.
            let functions = self.steps(domain, device).and_then(|_| self.functions(domain, device))?;
            Ok(BoundDevice { name: device.name.clone(), functions })
        };
        constraints.io.iter().map(bound).collect()
    }

    /// The steps that take a device for a domain.
    pub(crate) fn steps(&self, domain: &Name, device: &DomainDevice) -> Result<Vec<DomainStep>, BindError> {
        let found = self.found(domain, device)?;
        found.functions.iter().map(|function| self.step(domain, function, device.settings)).collect()
    }

    /// The functions of a device.
    pub(crate) fn functions(&self, domain: &Name, device: &DomainDevice) -> Result<Vec<PciAddress>, BindError> {
        Ok(self.found(domain, device)?.functions.iter().map(|function| function.device).collect())
    }

    fn found(&self, domain: &Name, device: &DomainDevice) -> Result<AssignableDevice, BindError> {
        let wrong = |error| BindError::Assign { domain: domain.clone(), error: Box::new(error) };
        let found = self.list.assignable(&device.name).map_err(wrong)?;
        self.list.check_assignable(&found, domain).map_err(wrong)?;
        Ok(found)
    }

    fn step(&self, domain: &Name, function: &PciDevice, wanted: FunctionSettings) -> Result<DomainStep, BindError> {
        let driver = DriverState::from(function);
        let (function_of, settings, set) = match function.physfn {
            Some(physical) => self.virtual_function(function, physical, wanted)?,
            None => (None, VfSettings::default(), VfSettings::default()),
        };
        // What the domain has already was otherwise before.
        let own = self.claims.find(function.device)?.filter(|claim| claim.owner == *domain);
        let was = own.map_or(VfState { settings, driver }, |claim| claim.was);
        let claim = DeviceClaim { owner: domain.clone(), device: function.device, function_of, was };
        Ok(DomainStep::AssignFunction { claims: self.claims.clone(), claim: Box::new(claim), set })
    }

    /// Where a virtual function is set, how it is set now, and what is to be set. Without a link of its physical function it
    /// can't be set.
    #[expect(clippy::type_complexity, reason = "three parts of one step")]
    fn virtual_function(
        &self,
        function: &PciDevice,
        physical: PciAddress,
        wanted: FunctionSettings,
    ) -> Result<(Option<(PciAddress, u32)>, VfSettings, VfSettings), BindError> {
        let name = || function.name.clone();
        let physical = self.list.facts().device(physical);
        let link = physical.and_then(|physical| physical.netdev.as_ref());
        let (Some(physical), Some(link), Some(vf)) = (physical, link, &function.vf) else {
            return match wanted == FunctionSettings::default() {
                true => Ok((None, VfSettings::default(), VfSettings::default())),
                false => Err(BindError::NoFunctionLink { function: name() }),
            };
        };
        if !link.up {
            return Err(BindError::PhysicalDown { function: name(), link: link.name.clone() });
        }
        let set = VfSettings {
            mac: wanted.mac_addr.map(|mac| MacAddr(mac.octets())),
            vlan: Some((wanted.pvid.map_or(0, |vlan| vlan.get()), 0)),
            ..VfSettings::default()
        };
        Ok((Some((physical.device, vf.index)), VfSettings::found(vf), set))
    }
}

/// Whether a domain can have a device, by what is known now.
pub(crate) fn check(world: &World, domain: &Name, device: &DomainDevice) -> Result<(), BindError> {
    HostIo::look(world)?.found(domain, device).map(drop)
}

pub(crate) fn assign(claims: &DeviceClaims, claim: &DeviceClaim, set: &VfSettings) -> Result<StepReceipt, BindError> {
    let (tree, device) = (PciTree::live(), claim.device);
    claims.take(claim)?;
    if let Some((physical, index)) = claim.function_of {
        // A driver reads a function's address only when it takes the function.
        tree.rebind(device, None, None, DRIVER_PATIENCE).map_err(BindError::kernel(device))?;
        if let Some(mut link) = PhysicalLink::here(physical)? {
            link.configure_vf(index, set)?;
        }
    }
    tree.bind(device, Some(VFIO), DRIVER_PATIENCE).map_err(BindError::kernel(device))?;
    Ok(StepReceipt::default())
}

/// Gives a device back, unless it is another domain's.
pub(crate) fn give_back(claims: &DeviceClaims, claim: &DeviceClaim) -> Result<Undone, BindError> {
    match claims.find(claim.device)? {
        Some(found) if found.owner == claim.owner => {}
        _ => return Ok(Undone::AlreadyGone),
    }
    let undone = restore(claim)?;
    claims.give_up(claim.device)?;
    Ok(undone)
}

fn restore(claim: &DeviceClaim) -> Result<Undone, BindError> {
    let (tree, device) = (PciTree::live(), claim.device);
    if tree.device(device).map_err(BindError::kernel(device))?.is_none() {
        return Ok(Undone::AlreadyGone);
    }
    let restore_settings = || -> Result<bool, BindError> {
        let Some((physical, index)) = claim.function_of else { return Ok(false) };
        let Some(mut link) = PhysicalLink::here(physical)? else { return Ok(false) };
        Ok(link.restore_vf(index, &claim.was.settings)?)
    };
    let kept = restore_settings()?;
    if kept {
        tree.rebind(device, None, None, DRIVER_PATIENCE).map_err(BindError::kernel(device))?;
    }
    let returned = claim.was.driver.restore(device)?;
    // The driver has told the NIC the function's address since. The NIC may not have known it before.
    let kept_again = returned == Undone::Reverted && restore_settings()?;
    Ok(if kept || kept_again { Undone::Reverted } else { returned })
}

/// Gives back all devices of a domain whose journal can't be read.
pub(crate) fn give_back_all(world: &World, domain: &Name) -> Result<(), BindError> {
    let claims = DeviceClaims::of(world);
    let own = claims.all()?.into_iter().filter(|claim| claim.owner == *domain);
    own.into_iter().try_for_each(|claim| give_back(&claims, &claim).map(drop))
}

pub(crate) fn plug(launch: &Launch, process: &str, port: u32, device: PciAddress) -> Result<StepReceipt, BindError> {
    attached(launch, process)?.plug_device(port, device, PLUGGED)?;
    Ok(StepReceipt::default())
}

pub(crate) fn unplug(launch: &Launch, process: &str, port: u32, device: PciAddress) -> Result<Undone, BindError> {
    let mut qemu = attached(launch, process)?;
    match qemu.is_alive() && qemu.unplug_device(port, device, RELEASED)? {
        true => Ok(Undone::Reverted),
        false => Ok(Undone::AlreadyGone),
    }
}

fn attached(launch: &Launch, process: &str) -> Result<Qemu, BindError> {
    let process = process.parse().map_err(BindError::kernel(&launch.name))?;
    Ok(Qemu::attach(launch.clone(), process))
}
