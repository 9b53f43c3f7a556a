//! Changes of the virtual NICs and virtual functions of bound or running domains.

use vtax_journal::{BatchId, Journal};
use vtax_model::{
    domain::{Configuration, DomainDevice, DomainState, LinkProp, VirtualNic, VnetProtection, before_boot},
    guest::Backend,
    topology::Name,
};
use vtax_step::{PlugDevice, PlugNic};

use crate::{
    bound::BoundDomain,
    error::BindError,
    host_io::{self, HostIo},
    locked::LockedDomains,
    plan,
    step::DomainStep,
    supervisor_process,
    switch::{self, SwitchAbilities},
};

/// Time at which a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEffect {
    /// Immediately, or the domain isn't bound.
    Now,
    /// At the domain's next boot.
    AtBoot,
}

impl LockedDomains<'_> {
    /// Applies the current configuration of a domain's virtual NIC.
    pub fn follow_vnet(
        &self,
        domain: &Name,
        vnet: &Name,
        was: &Configuration,
        now: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let bound = match self.running(domain)? {
            Ok(bound) => bound,
            Err(effect) => return Ok(effect),
        };
        match (was.vnet(domain, vnet).ok(), now.vnet(domain, vnet).ok()) {
            // It was about to be removed, and stays.
            (None, Some(new)) if bound.constraints_now(now).vnet(&new.name) == Some(new) => {
                self.change_vnet(&bound, new, new, now)
            }
            (None, Some(new)) => self.plug(&bound, new, now),
            (Some(_), None) => self.unplug(&bound, vnet),
            (Some(was), Some(new)) => self.change_vnet(&bound, was, new, now),
            (None, None) => Ok(ChangeEffect::Now),
        }
    }

    /// Adds or removes a domain's device according to the current configuration. `DeviceKind::is_hot_pluggable` says
    /// which ones can be added and removed while it runs.
    pub fn follow_device(
        &self,
        domain: &Name,
        device: &str,
        was: &Configuration,
        now: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let of = |all: &Configuration| {
            let found = all.domain(domain).ok()?.io.iter().find(|found| found.name == device);
            found.cloned()
        };
        let (was, now) = (of(was), of(now));
        if let (None, Some(new)) = (&was, &now) {
            host_io::check(self.world(), domain, new)?;
        }
        let bound = match self.running(domain)? {
            Ok(bound) => bound,
            Err(effect) => return Ok(effect),
        };
        let has = bound.bindings.devices.iter().any(|own| own.name == device);
        match (was, now) {
            // It was about to be removed at the next boot, and stays.
            (None, Some(_)) if has => Ok(ChangeEffect::Now),
            (None, Some(new)) if new.kind.is_hot_pluggable() => self.plug_device(&bound, &new),
            (Some(_), None) => self.unplug_device(&bound, device),
            (Some(was), Some(now)) => host_io::change(self.world(), &was, &now).map(|is_now| match is_now {
                true => ChangeEffect::Now,
                false => ChangeEffect::AtBoot,
            }),
            (None, None) => Ok(ChangeEffect::Now),
            (None, Some(_)) => Ok(ChangeEffect::AtBoot),
        }
    }

    /// Returns the domain, if it runs; otherwise the time at which a change takes effect. A bound domain is bound again
    /// before it is started.
    pub(crate) fn running(&self, domain: &Name) -> Result<Result<BoundDomain, ChangeEffect>, BindError> {
        Ok(match self.find(domain)? {
            None => Err(ChangeEffect::Now),
            Some(bound) if bound.state() != DomainState::Active || bound.qemu().is_none() => Err(ChangeEffect::AtBoot),
            Some(bound) => Ok(bound),
        })
    }

    fn plug_device(&self, bound: &BoundDomain, new: &DomainDevice) -> Result<ChangeEffect, BindError> {
        let Some(port) = free_port(bound) else { return Ok(ChangeEffect::AtBoot) };
        let Some((launch, process)) = bound.running_guest() else { return Ok(ChangeEffect::AtBoot) };
        let host = HostIo::look(self.world())?;
        let mut steps = host.steps(bound.name(), new)?;
        for device in host.functions(bound.name(), new)? {
            let (launch, process, name) = (launch.clone(), process.clone(), new.name.clone());
            steps.push(DomainStep::PlugDevice(PlugDevice { launch, process, port, name, device }));
        }
        self.extend(bound.name(), steps)
    }

    /// Only devices in hot-plug slots can be unplugged: virtual functions. The others stay until the domain's next
    /// boot.
    fn unplug_device(&self, bound: &BoundDomain, name: &str) -> Result<ChangeEffect, BindError> {
        if let Some(plugged) = bound.plugged_devices.iter().find(|plugged| plugged.name == name) {
            return self.undo_plugged(bound.name(), plugged.batch);
        }
        let Some(found) = bound.bindings.devices.iter().find(|device| device.name == name) else {
            return Ok(ChangeEffect::Now);
        };
        let (Some(port), [device]) = (found.port, found.functions.as_slice()) else { return Ok(ChangeEffect::AtBoot) };
        let Some((launch, process)) = bound.running_guest() else { return Ok(ChangeEffect::AtBoot) };
        let step = HostIo::look(self.world())?.return_step(*device, (launch, process), port, name)?;
        step.map_or(Ok(ChangeEffect::Now), |step| self.extend(bound.name(), vec![step]))
    }

    fn plug(
        &self,
        bound: &BoundDomain,
        vnet: &VirtualNic,
        configuration: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let Some(port) = free_port(bound) else { return Ok(ChangeEffect::AtBoot) };
        let Some((guest, process)) = bound.running_guest() else { return Ok(ChangeEffect::AtBoot) };
        self.realize(&vnet.switch, configuration)?;
        let nic = plan::bound_nic(bound.bindings.id, vnet);
        let switch = configuration.switch(&vnet.switch)?;
        // Its slot is a hot-plug slot.
        let mut launch = plan::nic(vnet, &nic, switch, backend(bound));
        launch.slot = None;
        let uplink = self.uplink(&vnet.switch, configuration)?;
        let mut steps = plan::steps_of(bound.name(), vnet, &nic, configuration, SwitchAbilities::probe(), uplink)?;
        steps.push(DomainStep::PlugNic(PlugNic { launch: guest, process, port, nic: Box::new(launch) }));
        let effect = self.extend(bound.name(), steps)?;
        if vnet.linkprop == LinkProp::PhysState {
            // A supervisor only checks at its start which NICs follow a carrier.
            supervisor_process::end(&self.directory(bound.name()));
            self.start_supervisor(bound.name())?;
        }
        Ok(effect)
    }

    /// Runs more steps for a domain, or none of them if one fails.
    pub(crate) fn extend(&self, domain: &Name, steps: Vec<DomainStep>) -> Result<ChangeEffect, BindError> {
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let plugged = journal.execute(steps, &mut self.site());
        plugged.map_err(|error| BindError::Build { object: domain.clone(), error: Box::new(error) })?;
        journal.keep()?;
        Ok(ChangeEffect::Now)
    }

    pub(crate) fn undo_plugged(&self, domain: &Name, batch: BatchId) -> Result<ChangeEffect, BindError> {
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        journal.undo_batch(batch, &mut self.site()).map_err(Box::new)?;
        journal.keep()?;
        Ok(ChangeEffect::Now)
    }

    /// A NIC that the domain was started with is in a slot without hot-plugging.
    fn unplug(&self, bound: &BoundDomain, vnet: &Name) -> Result<ChangeEffect, BindError> {
        let Some(plugged) = bound.plugged.iter().find(|plugged| plugged.nic.vnet == *vnet) else {
            return Ok(ChangeEffect::AtBoot);
        };
        self.undo_plugged(bound.name(), plugged.batch)
    }

    /// VLANs and further addresses change immediately, and the MTU on the host. The domain itself sees a changed
    /// address, MTU or number only at its next boot.
    fn change_vnet(
        &self,
        bound: &BoundDomain,
        was: &VirtualNic,
        new: &VirtualNic,
        configuration: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let Some(nic) = bound.bindings.nics.iter().find(|nic| nic.vnet == new.name) else {
            return Ok(ChangeEffect::AtBoot);
        };
        let abilities = SwitchAbilities::probe();
        abilities.check(&new.switch, configuration)?;
        if was.switch != new.switch || switch::link_name(&new.switch) != nic.switch {
            // Its link stays a port of the switch that it was started with.
            return Ok(ChangeEffect::AtBoot);
        }
        let switch = configuration.switch(&new.switch)?;
        let mut site = self.site();
        let host = site.own()?;
        if abilities.vlans {
            let vlans = plan::port_vlans(new, switch);
            let uplink = self.uplink(&new.switch, configuration)?;
            host.set_vlans(&nic.tap, &nic.switch, &vlans, uplink.as_deref())?;
        }
        if abilities.guards_addresses {
            // Until its next boot, it has the address that it was started with.
            let macs: Vec<_> = new.macs().chain([was.mac]).collect();
            match new.protection {
                VnetProtection::MacNospoof => host.guard_only(&nic.switch, &nic.tap, &macs)?,
                VnetProtection::Off => host.unguard(&nic.switch, &nic.tap)?,
            }
        }
        host.set_mtu(&nic.tap, new.mtu_on(switch).get())?;
        Ok(if before_boot(was, new) == *new { ChangeEffect::Now } else { ChangeEffect::AtBoot })
    }
}

/// Returns an empty slot.
fn free_port(bound: &BoundDomain) -> Option<u32> {
    let nics = bound.plugged.iter().map(|plugged| plugged.port);
    let taken: Vec<u32> = nics.chain(bound.bindings.devices.iter().filter_map(|device| device.port)).collect();
    let ports = bound.guest.as_ref().map_or(0, |guest| guest.launch.spare_ports);
    (0..ports).find(|port| !taken.contains(port))
}

/// Returns the backend that serves the rings of its other NICs.
fn backend(bound: &BoundDomain) -> Backend {
    let nics = bound.guest.iter().flat_map(|guest| &guest.launch.nics);
    let backends = nics.filter_map(|nic| match &nic.kind {
        vtax_guest::launch::NicKind::Virtio { nic, .. } => nic.backend,
        _ => None,
    });
    backends.into_iter().next().unwrap_or(Backend::Userspace)
}
