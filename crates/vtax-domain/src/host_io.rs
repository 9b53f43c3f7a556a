//! PCI devices of the host that domains can have.

use vtax_change::pci::{DriverState, PciChangeError, PhysicalLink, VfSettings};
use vtax_guest::launch::Launch;
use vtax_lab::{
    World,
    facts::{PciDevice, PciFacts},
    io::{AssignableDevice, IoList},
};
use vtax_model::{
    domain::{Constraints, DomainDevice, FunctionSettings},
    topology::Name,
};
use vtax_step::{AssignFunction, DeviceClaim, DeviceClaims, ReturnFunction, VfState};
use vtax_sys::{netlink::MacAddr, pci::PciAddress};

use crate::{bindings::BoundDevice, error::BindError, plan::REMOVABLE, step::DomainStep};

/// PCI devices of this machine, with their owners.
pub(crate) struct HostIo {
    list: IoList,
    claims: DeviceClaims,
}

/// Intended settings of a NIC's virtual function.
struct FunctionSetting {
    /// Its physical function, and its number there.
    of: (PciAddress, u32),
    was: VfSettings,
    set: VfSettings,
}

impl HostIo {
    pub(crate) fn look(world: &World) -> Result<HostIo, BindError> {
        let list = IoList::new(PciFacts::gather()?, world)?;
        Ok(HostIo { list, claims: world.device_claims() })
    }

    /// Returns the domain's devices at this boot. Each of them is available, or already the domain's.
    pub(crate) fn devices(&self, domain: &Name, constraints: &Constraints) -> Result<Vec<BoundDevice>, BindError> {
        let mut ports = 0..REMOVABLE;
        let mut bound = |device: &DomainDevice| {
            // Their intended settings must also be possible.
            let functions = self.steps(domain, device).and_then(|_| self.functions(domain, device))?;
            let port = if device.kind.is_hot_pluggable() { ports.next() } else { None };
            Ok(BoundDevice { name: device.name.clone(), functions, port })
        };
        constraints.io.iter().map(&mut bound).collect()
    }

    /// Returns the step that removes a function from a running domain. None if the domain doesn't have it.
    pub(crate) fn return_step(
        &self,
        device: PciAddress,
        (launch, process): (Box<Launch>, String),
        port: u32,
        name: &str,
    ) -> Result<Option<DomainStep>, BindError> {
        let (name, claims) = (name.to_owned(), self.claims.clone());
        let step = |claim| ReturnFunction { launch, process, port, name, claims, claim: Box::new(claim) };
        Ok(self.claims.find(device)?.map(step).map(DomainStep::ReturnFunction))
    }

    /// Returns the steps that take a device for a domain.
    pub(crate) fn steps(&self, domain: &Name, device: &DomainDevice) -> Result<Vec<DomainStep>, BindError> {
        let found = self.found(domain, device)?;
        found.functions.iter().map(|function| self.step(domain, function, device.settings)).collect()
    }

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
        let nic = function.physfn.filter(|_| function.is_nic());
        let change = nic.map(|physical| self.virtual_function(function, physical, wanted)).transpose()?;
        let (function_of, settings, set) = match change {
            Some(FunctionSetting { of, was, set }) => (Some(of), was, set),
            None => Default::default(),
        };
        // The domain's own device had a different state before.
        let own = self.claims.find(function.device)?.filter(|claim| claim.owner == *domain);
        let was = own.map_or(VfState { settings, driver }, |claim| claim.was);
        let claim = DeviceClaim { owner: domain.clone(), device: function.device, function_of, was };
        let claim = Box::new(claim);
        Ok(DomainStep::AssignFunction(AssignFunction { claims: self.claims.clone(), claim, set }))
    }

    /// Returns the intended settings of a virtual function. Only the link of its physical function can apply them.
    fn virtual_function(
        &self,
        function: &PciDevice,
        physical: PciAddress,
        wanted: FunctionSettings,
    ) -> Result<FunctionSetting, BindError> {
        let name = || function.name.clone();
        let physical = self.list.facts().device(physical);
        let link = physical.and_then(|physical| physical.netdev.as_ref());
        let (Some(physical), Some(link), Some(vf)) = (physical, link, &function.vf) else {
            return Err(BindError::NoFunctionLink { function: name() });
        };
        if !link.up {
            return Err(BindError::PhysicalDown { function: name(), link: link.name.clone() });
        }
        let set = VfSettings {
            mac: wanted.mac_addr.map(|mac| MacAddr(mac.octets())),
            vlan: Some((wanted.pvid.map_or(0, |vlan| vlan.get()), 0)),
            ..VfSettings::default()
        };
        Ok(FunctionSetting { of: (physical.device, vf.index), was: VfSettings::found(vf), set })
    }
}

/// Checks whether a domain can have a device, as far as is currently known.
pub(crate) fn check(world: &World, domain: &Name, device: &DomainDevice) -> Result<(), BindError> {
    HostIo::look(world)?.found(domain, device).map(drop)
}

/// Applies the settings of a running domain's function. Returns `false` if they only take effect at the domain's next
/// boot.
///
/// A VLAN change takes effect immediately. The driver in the domain reads the address only when it starts, and the MTU
/// is up to the domain.
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
