//! Import of one configuration into another: from a file, or from a saved one.

use super::{
    Configuration, Constraints, DomainError, NewSwitch, NewVnet, PRIMARY, disk::VolumeUsers, mac_addresses::MacOwners,
};
use crate::topology::Name;

impl Configuration {
    /// Adds all domains of another configuration with their constraints. The services that they use must exist.
    pub fn add_domains_of(&mut self, other: &Configuration) -> Result<(), DomainError> {
        other.domains.keys().try_for_each(|name| self.add_domain(name))?;
        let mut taken = Taken::of(self);
        other.domains.iter().try_for_each(|(name, domain)| self.rebuild_domain(name, domain, &mut taken))
    }

    /// Rebuilds it for a host by one change after another, so that a file written by hand is checked like a command.
    pub fn rebuilt(self, host: &str) -> Result<Configuration, DomainError> {
        let mut all = Configuration::new(host);
        all.add_all_of(self)?;
        Ok(all)
    }

    /// Adds all domains and services of another configuration. None of their names may be in use.
    pub fn add_all_of(&mut self, other: Configuration) -> Result<(), DomainError> {
        for name in other.domains.keys() {
            self.add_domain(name)?;
        }
        self.rebuild_disk_services(&other)?;
        for (name, service) in &other.consoles {
            self.add_console_service(name, service.clone())?;
        }
        for (name, switch) in other.switches {
            self.add_switch(NewSwitch::of(name, switch))?;
        }
        let mut taken = Taken::of(self);
        self.rebuild_devices(&other.devices, &mut taken.macs)?;
        for (name, domain) in &other.domains {
            self.rebuild_domain(name, domain, &mut taken)?;
        }
        let primary: Name = PRIMARY.parse().expect("a name");
        self.primary.failure_policy = other.primary.failure_policy;
        self.set_masters(&primary, other.primary.masters)
    }

    /// Copies the failure policy, masters and autostart of domains that another configuration has as well. `primary` is
    /// included if anything is set for it.
    pub fn set_domains_of(&mut self, other: &Configuration) -> Result<(), DomainError> {
        let primary: Name = PRIMARY.parse().expect("a name");
        let of_primary = (&primary, &other.primary);
        let found = other.domains.iter().chain((other.primary != Constraints::default()).then_some(of_primary));
        let found: Vec<(&Name, &Constraints)> = found.collect();
        // Otherwise masters that swap roles would be a cycle.
        found.iter().try_for_each(|(name, _)| self.set_masters(name, Vec::new()))?;
        for (name, domain) in found {
            self.set_failure_policy(name, domain.failure_policy)?;
            if *name != primary {
                self.set_autostart(name, domain.autostart)?;
            }
            self.set_masters(name, domain.masters.clone())?;
        }
        Ok(())
    }

    fn rebuild_domain(&mut self, name: &Name, domain: &Constraints, taken: &mut Taken) -> Result<(), DomainError> {
        domain.cpus.clone().map_or(Ok(()), |cpus| self.set_cpus(name, cpus))?;
        domain.memory.map_or(Ok(()), |memory| self.set_memory(name, memory))?;
        for (variable, value) in &domain.variables {
            self.set_variable(name, *variable, value.clone())?;
        }
        for vnet in &domain.vnets {
            self.add_vnet_beside(NewVnet::of(name, vnet), &mut taken.macs)?;
        }
        self.rebuild_disks(name, domain, &mut taken.volumes)?;
        domain.io.iter().try_for_each(|device| self.rebuild_device(name, device, &mut taken.macs))?;
        self.set_console(name, domain.console.clone())?;
        self.set_failure_policy(name, domain.failure_policy)?;
        if domain.autostart {
            self.set_autostart(name, true)?;
        }
        self.set_masters(name, domain.masters.clone())
    }
}

/// Names and addresses already assigned in a rebuilt configuration.
struct Taken {
    macs: MacOwners,
    volumes: VolumeUsers,
}

impl Taken {
    fn of(all: &Configuration) -> Taken {
        Taken { macs: all.mac_owners(), volumes: VolumeUsers::of(all) }
    }
}
