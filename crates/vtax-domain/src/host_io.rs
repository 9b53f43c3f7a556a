//! The PCI devices of the host as domains can have them.

use vtax_change::pci::{DriverState, PciChangeError, PhysicalLink, VfSettings};
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
use vtax_sys::{netlink::MacAddr, pci::PciAddress};

use crate::{bindings::BoundDevice, error::BindError, step::DomainStep};

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

/// Sets a function of a domain that runs as it is to be now. `false` if it is so only when the domain boots again.
///
/// The VLAN of a function changes at once. Its driver in the domain reads an address only when it starts, and the MTU is
/// the domain's own.
pub(crate) fn change(world: &World, was: &DomainDevice, now: &DomainDevice) -> Result<bool, BindError> {
    if was.settings.pvid != now.settings.pvid {
        let host = HostIo::look(world)?;
        let function = host.list.assignable(&now.name).ok().and_then(|found| found.functions.into_iter().next());
        let claim = function.map(|function| host.claims.find(function.device)).transpose()?.flatten();
        let Some((physical, index)) = claim.and_then(|claim| claim.function_of) else {
            return Ok(false);
        };
        let set =
            VfSettings { vlan: Some((now.settings.pvid.map_or(0, |vlan| vlan.get()), 0)), ..VfSettings::default() };
        let mut link = PhysicalLink::here(physical)?.ok_or(PciChangeError::NoNicLink { device: physical })?;
        link.configure_vf(index, &set)?;
    }
    Ok(was.settings.mac_addr == now.settings.mac_addr)
}
