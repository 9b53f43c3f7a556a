//! Everything that the user has configured, and changes to it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    AltMac, ConsoleService, Constraints, CpuDemand, DiskService, DomainError, FailurePolicy, HostDevices, NewSwitch,
    NewVnet, PRIMARY, PortRange, Switch, SwitchChange, UserName, Variable, VirtualConsole, VirtualNic, VnetChange,
    mac_addresses::MacOwners,
};
use crate::{
    guest::{GuestSize, Mac},
    topology::Name,
    units::ByteSize,
};

/// All domains with their constraints, and the services that they use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Identity of this host. Addresses chosen by vtax are derived from it.
    pub host: String,
    /// The domain that is the host.
    #[serde(default)]
    pub primary: Constraints,
    /// The other domains.
    #[serde(default)]
    pub domains: BTreeMap<Name, Constraints>,
    /// The virtual switches.
    #[serde(default)]
    pub switches: BTreeMap<Name, Switch>,
    /// Console services (vcc) by name; their port ranges do not overlap.
    #[serde(default)]
    pub consoles: BTreeMap<Name, ConsoleService>,
    /// Disk services (vds) by name, with the volumes that they export.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disk_services: BTreeMap<Name, DiskService>,
    /// Settings of the host's PCI devices.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub devices: HostDevices,
}

impl Configuration {
    /// Maximum number of domains besides `primary`.
    pub const MOST_DOMAINS: usize = 512;
    /// Maximum number of switches, console services, or disk services.
    pub const MOST_SERVICES: usize = 512;
    /// Maximum number of volumes of all disk services.
    pub const MOST_VOLUMES: usize = 16_384;
    /// Maximum number of devices that domains have, that `primary` has released, or that have settings.
    pub const MOST_DEVICES: usize = 4_096;

    /// A host without domains.
    pub fn new(host: &str) -> Configuration {
        Configuration { host: host.to_owned(), ..Configuration::default() }
    }

    /// Returns the addresses of these vnets that a NIC here already has, each with the vnet, the NIC and its domain.
    pub fn taken_macs<'a>(&self, vnets: &'a [VirtualNic]) -> Vec<(&'a Name, Mac, String, Name)> {
        let owners = self.mac_owners();
        let macs = vnets.iter().flat_map(|vnet| vnet.macs().map(move |mac| (&vnet.name, mac)));
        let taken = macs.filter_map(|(vnet, mac)| owners.owner(mac).map(|(nic, domain)| (vnet, mac, nic, domain)));
        taken.collect()
    }

    /// Returns the owners of all addresses. An assigned virtual function belongs to its domain.
    pub(super) fn mac_owners(&self) -> MacOwners {
        let mut owners = MacOwners::new(&self.host);
        let primary: Name = PRIMARY.parse().expect("a name");
        for (function, settings) in &self.devices.functions {
            settings.mac_addr.into_iter().for_each(|mac| owners.insert(mac, function, &primary));
        }
        for (domain, constraints) in &self.domains {
            for device in &constraints.io {
                device.settings.mac_addr.into_iter().for_each(|mac| owners.insert(mac, &device.name, domain));
            }
            for vnet in &constraints.vnets {
                vnet.macs().for_each(|mac| owners.insert(mac, vnet.name.as_str(), domain));
            }
        }
        owners
    }

    /// Returns the constraints of a domain; `primary` has some, too.
    pub fn domain(&self, name: &Name) -> Result<&Constraints, DomainError> {
        match name.as_str() {
            PRIMARY => Ok(&self.primary),
            _ => self.domains.get(name).ok_or_else(|| self.no_domain(name)),
        }
    }

    pub(super) fn no_domain(&self, name: &Name) -> DomainError {
        DomainError::unknown("domain", name, self.domains.keys())
    }

    pub(super) fn domain_mut(&mut self, name: &Name) -> Result<&mut Constraints, DomainError> {
        self.existing(name)?;
        match name.as_str() {
            PRIMARY => Ok(&mut self.primary),
            _ => Ok(self.domains.get_mut(name).expect("it exists")),
        }
    }

    /// Returns a domain that is not `primary`.
    pub(super) fn guest_mut(&mut self, name: &Name) -> Result<&mut Constraints, DomainError> {
        match name.as_str() {
            PRIMARY => Err(DomainError::Primary),
            _ => self.domain_mut(name),
        }
    }

    /// Adds a domain without CPUs, memory and devices.
    pub fn add_domain(&mut self, name: &Name) -> Result<(), DomainError> {
        if name.as_str() == PRIMARY || self.domains.contains_key(name) {
            return Err(DomainError::Exists { what: "domain", name: name.clone() });
        }
        check_room("domains", self.domains.len(), Configuration::MOST_DOMAINS)?;
        self.domains.insert(name.clone(), Constraints::default());
        Ok(())
    }

    /// Removes domains, which may be masters of each other. The caller has checked that they are inactive.
    pub fn remove_domains(&mut self, names: &[Name]) -> Result<(), DomainError> {
        let mut all = self.clone();
        names.iter().try_for_each(|name| all.set_masters(name, Vec::new()))?;
        names.iter().try_for_each(|name| all.remove_domain(name))?;
        *self = all;
        Ok(())
    }

    pub(super) fn remove_domain(&mut self, name: &Name) -> Result<(), DomainError> {
        self.guest_mut(name)?;
        if let Some(slave) = self.slaves(name).next() {
            return Err(DomainError::IsMaster { master: name.clone(), slave: slave.clone() });
        }
        self.remove_moved_domain(name)
    }

    /// Removes a domain that has moved to another host. Domains that depend on it keep it as a master: they follow it,
    /// or it returns.
    pub fn remove_moved_domain(&mut self, name: &Name) -> Result<(), DomainError> {
        self.guest_mut(name)?;
        let users = self.used_services(name);
        if let Some(service) = users.into_iter().next() {
            return Err(DomainError::Serves { domain: name.clone(), service });
        }
        self.domains.remove(name);
        Ok(())
    }

    /// The switches, console and disk services that run in a domain.
    fn used_services(&self, domain: &Name) -> Vec<Name> {
        let switches = self.switches.iter().filter(|(_, switch)| switch.service == *domain).map(|(name, _)| name);
        let consoles = self.consoles.iter().filter(|(_, service)| service.domain == *domain).map(|(name, _)| name);
        let disks = self.disk_services.iter().filter(|(_, service)| service.domain == *domain).map(|(name, _)| name);
        switches.chain(consoles).chain(disks).cloned().collect()
    }

    /// Sets the CPU constraint of a domain. An empty list of cores removes its named cores.
    pub fn set_cpus(&mut self, name: &Name, cpus: CpuDemand) -> Result<(), DomainError> {
        let had = &mut self.guest_mut(name)?.cpus;
        let takes_away = matches!((&had, &cpus), (Some(CpuDemand::Cids(_)), CpuDemand::Cids(none)) if none.is_empty());
        if !takes_away && !(1..=CpuDemand::MOST).contains(&cpus.count()) {
            return Err(DomainError::value("number of CPUs", &cpus.count().to_string(), "1 to 256"));
        }
        *had = Some(cpus).filter(|_| !takes_away);
        Ok(())
    }

    /// Sets the memory constraint of a domain.
    pub fn set_memory(&mut self, name: &Name, memory: ByteSize) -> Result<(), DomainError> {
        const MIB: u64 = 1 << 20;
        if memory < GuestSize::LEAST_MEMORY || !memory.0.is_multiple_of(MIB) {
            return Err(DomainError::value("memory", &memory.to_string(), "whole MiB, at least 96 MiB"));
        }
        self.guest_mut(name)?.memory = Some(memory);
        Ok(())
    }

    /// Sets a variable; its value may be empty.
    pub fn set_variable(&mut self, name: &Name, variable: Variable, value: String) -> Result<(), DomainError> {
        // Common text files contain neither of the last two, and XML cannot represent them.
        if value.chars().any(|letter| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}')) {
            return Err(DomainError::value(variable.into(), &value, "one line of text"));
        }
        self.guest_mut(name)?.variables.insert(variable, value);
        Ok(())
    }

    /// Removes a variable. It is not an error if it isn't set.
    pub fn remove_variable(&mut self, name: &Name, variable: Variable) -> Result<(), DomainError> {
        self.guest_mut(name)?.variables.remove(&variable);
        Ok(())
    }

    /// Sets what happens to the domains that have this one as a master.
    pub fn set_failure_policy(&mut self, name: &Name, policy: FailurePolicy) -> Result<(), DomainError> {
        self.domain_mut(name)?.failure_policy = policy;
        Ok(())
    }

    /// Sets whether a domain is bound and started when the host boots. `primary` always runs then.
    pub fn set_autostart(&mut self, name: &Name, autostart: bool) -> Result<(), DomainError> {
        self.guest_mut(name)?.autostart = autostart;
        Ok(())
    }

    /// Adds a switch. It is an error if its name is taken or its service domain does not exist.
    pub fn add_switch(&mut self, new: NewSwitch) -> Result<(), DomainError> {
        let NewSwitch { name, service, default_vlan, change } = new;
        self.existing(&service)?;
        if self.switches.contains_key(&name) {
            return Err(DomainError::Exists { what: "switch", name });
        }
        check_room("switches", self.switches.len(), Configuration::MOST_SERVICES)?;
        let mut switch = Switch::new(service, default_vlan);
        change.apply(&mut switch)?;
        self.check_net_dev(&name, &switch)?;
        self.switches.insert(name, switch);
        Ok(())
    }

    pub fn set_switch(&mut self, name: &Name, change: SwitchChange) -> Result<(), DomainError> {
        let mut switch = self.switch(name)?.clone();
        change.apply(&mut switch)?;
        self.check_net_dev(name, &switch)?;
        self.switches.insert(name.clone(), switch);
        Ok(())
    }

    /// Removes a switch that no vnet uses.
    pub fn remove_switch(&mut self, name: &Name) -> Result<(), DomainError> {
        self.switch(name)?;
        let user = self.domains.iter().find_map(|(domain, constraints)| {
            let vnet = constraints.vnets.iter().find(|vnet| vnet.switch == *name)?;
            Some((vnet.name.clone(), domain.clone()))
        });
        if let Some((vnet, domain)) = user {
            return Err(DomainError::SwitchInUse { switch: name.clone(), vnet, domain });
        }
        self.switches.remove(name);
        Ok(())
    }

    pub fn switch(&self, name: &Name) -> Result<&Switch, DomainError> {
        self.switches.get(name).ok_or_else(|| DomainError::unknown("switch", name, self.switches.keys()))
    }

    /// A link connects only one switch with the outside.
    fn check_net_dev(&self, name: &Name, switch: &Switch) -> Result<(), DomainError> {
        let others = self.served_by(&switch.service).filter(|(other, _)| *other != name).count();
        if !switch.is_of_primary() && switch.net_dev.is_some() && others >= Configuration::MOST_SERVED {
            return Err(DomainError::TooMany { what: "switches of one guest", most: Configuration::MOST_SERVED });
        }
        let same = |(other, found): &(&Name, &Switch)| {
            *other != name && found.service == switch.service && found.net_dev == switch.net_dev
        };
        match (&switch.net_dev, self.switches.iter().find(same)) {
            (Some(link), Some((other, _))) => {
                Err(DomainError::NetDevTaken { link: link.clone(), switch: other.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Console services run in `primary`, which has all serial ports, and so do disk services: their files are the
    /// host's.
    pub(super) fn primary_service(&self, domain: &Name) -> Result<(), DomainError> {
        match domain.as_str() {
            PRIMARY => Ok(()),
            _ => self.existing(domain).and(Err(DomainError::ServiceInGuest { domain: domain.clone() })),
        }
    }

    /// Adds a virtual NIC to a domain, as a port of a switch.
    pub fn add_vnet(&mut self, new: NewVnet) -> Result<(), DomainError> {
        let mut macs = self.mac_owners();
        self.add_vnet_beside(new, &mut macs)
    }

    pub(super) fn add_vnet_beside(&mut self, new: NewVnet, macs: &mut MacOwners) -> Result<(), DomainError> {
        let NewVnet { name, switch, domain, change } = new;
        let mac = change.mac.unwrap_or_else(|| macs.free(name.as_str(), &domain, &[]));
        self.switch(&switch)?;
        let constraints = self.guest_mut(&domain)?;
        if constraints.vnet(&name).is_some() {
            return Err(DomainError::VnetExists { vnet: name, domain });
        }
        let id = match change.id {
            Some(id) => id,
            None => (0..).find(|id| constraints.vnets.iter().all(|vnet| vnet.id != *id)).expect("there is a free one"),
        };
        constraints.vnets.push(VirtualNic::new(name.clone(), switch, mac, id));
        let set = self.set_vnet_beside(&domain, &name, VnetChange { mac: Some(mac), id: Some(id), ..change }, macs);
        set.inspect_err(|_| {
            // A refused change leaves nothing behind.
            let constraints = self.domains.get_mut(&domain).expect("it exists");
            constraints.vnets.pop();
        })
    }

    /// Changes a virtual NIC.
    pub fn set_vnet(&mut self, domain: &Name, name: &Name, change: VnetChange) -> Result<(), DomainError> {
        let mut macs = self.mac_owners();
        self.set_vnet_beside(domain, name, change, &mut macs)
    }

    fn set_vnet_beside(
        &mut self,
        domain: &Name,
        name: &Name,
        change: VnetChange,
        macs: &mut MacOwners,
    ) -> Result<(), DomainError> {
        let mut vnet = self.vnet(domain, name)?.clone();
        if let Some(switch) = change.switch.clone() {
            self.switch(&switch)?;
            vnet.switch = switch;
        }
        if let Some(mac) = change.mac {
            vnet.mac = macs.check(mac, name.as_str(), domain)?;
        }
        if let Some(wanted) = change.alt_macs.clone() {
            let had = vnet.alt_macs.iter().copied().map(AltMac::Given);
            vnet.alt_macs = alt_macs(&wanted.applied::<Vec<_>>(had), &vnet, domain, macs)?;
        }
        if let Some(id) = change.id {
            vnet.id = self.check_id(id, domain, name)?;
        }
        vnet.apply(change)?;
        vnet.macs().for_each(|mac| macs.insert(mac, name.as_str(), domain));
        let vnets = &mut self.guest_mut(domain)?.vnets;
        let place = vnets.iter_mut().find(|vnet| vnet.name == *name).expect("it exists");
        *place = vnet;
        Ok(())
    }

    /// Removes a virtual NIC.
    pub fn remove_vnet(&mut self, domain: &Name, name: &Name) -> Result<(), DomainError> {
        self.vnet(domain, name)?;
        self.guest_mut(domain)?.vnets.retain(|vnet| vnet.name != *name);
        Ok(())
    }

    /// Returns a vnet, or an error if the domain has none of this name.
    pub fn vnet(&self, domain: &Name, name: &Name) -> Result<&VirtualNic, DomainError> {
        let vnets = &self.domain(domain)?.vnets;
        let found = vnets.iter().find(|vnet| vnet.name == *name);
        found.ok_or_else(|| DomainError::unknown("vnet", name, vnets.iter().map(|vnet| &vnet.name)))
    }

    fn check_id(&self, id: u32, domain: &Name, name: &Name) -> Result<u32, DomainError> {
        if id >= VirtualNic::MOST {
            return Err(DomainError::value("id", &id.to_string(), "0 to 15"));
        }
        match self.domain(domain)?.vnets.iter().find(|vnet| vnet.id == id && vnet.name != *name) {
            Some(other) => Err(DomainError::IdTaken { id, vnet: other.name.clone(), domain: domain.clone() }),
            None => Ok(id),
        }
    }

    /// Adds a console service. It is an error if its name or a port is taken, or if its domain is not `primary`.
    pub fn add_console_service(&mut self, name: &Name, service: ConsoleService) -> Result<(), DomainError> {
        self.primary_service(&service.domain)?;
        if self.consoles.contains_key(name) {
            return Err(DomainError::Exists { what: "console service", name: name.clone() });
        }
        check_room("console services", self.consoles.len(), Configuration::MOST_SERVICES)?;
        self.check_ports(name, service.ports)?;
        self.consoles.insert(name.clone(), service);
        Ok(())
    }

    /// Changes a console service: the ports that it may use, and who may use its consoles (everybody by default). Only
    /// fields that are present are changed.
    pub fn set_console_service(
        &mut self,
        name: &Name,
        ports: Option<PortRange>,
        users: Option<BTreeSet<UserName>>,
    ) -> Result<(), DomainError> {
        let mut service = self.console_service(name)?.clone();
        service.ports = ports.unwrap_or(service.ports);
        self.check_ports(name, service.ports)?;
        if let Some(users) = users {
            service.users = Some(users).filter(|users| !users.is_empty());
        }
        self.consoles.insert(name.clone(), service);
        Ok(())
    }

    /// Removes a console service that no domain names.
    pub fn remove_console_service(&mut self, name: &Name) -> Result<(), DomainError> {
        self.console_service(name)?;
        let user = self.domains.iter().find(|(_, domain)| domain.console.service.as_ref() == Some(name));
        if let Some((domain, _)) = user {
            return Err(DomainError::ConsoleInUse { service: name.clone(), domain: domain.clone() });
        }
        self.consoles.remove(name);
        Ok(())
    }

    pub fn console_service(&self, name: &Name) -> Result<&ConsoleService, DomainError> {
        self.consoles.get(name).ok_or_else(|| DomainError::unknown("console service", name, self.consoles.keys()))
    }

    fn check_ports(&self, name: &Name, ports: PortRange) -> Result<(), DomainError> {
        let clash = self.consoles.iter().find(|(other, service)| *other != name && service.ports.overlaps(ports));
        match clash {
            Some((service, _)) => Err(DomainError::PortsTaken { ports: ports.to_string(), service: service.clone() }),
            None => Ok(()),
        }
    }

    /// Sets how the console of a domain is reached. Only fields that are present are changed.
    pub fn set_console(&mut self, name: &Name, change: VirtualConsole) -> Result<(), DomainError> {
        if let Some(service) = &change.service {
            self.console_service(service)?;
        }
        let mut console = self.domain(name)?.console.clone();
        console.service = change.service.or(console.service);
        console.group = change.group.or(console.group);
        console.port = change.port.or(console.port);
        self.check_port(name, &console)?;
        self.guest_mut(name)?.console = console;
        Ok(())
    }

    /// One port belongs to one group of consoles.
    fn check_port(&self, name: &Name, console: &VirtualConsole) -> Result<(), DomainError> {
        let Some(port) = console.port else { return Ok(()) };
        if port < PortRange::LEAST {
            return Err(DomainError::value("port", &port.to_string(), "1024 to 65535"));
        }
        let group = console.group.as_ref().unwrap_or(name);
        let other = self.domains.iter().find(|(other, domain)| {
            domain.console.port == Some(port) && domain.console.group.as_ref().unwrap_or(other) != group
        });
        match other {
            Some((domain, _)) if domain != name => Err(DomainError::PortTaken { port, domain: domain.clone() }),
            _ => Ok(()),
        }
    }
}

/// Refuses to exceed `most`.
pub(super) fn check_room(what: &'static str, count: usize, most: usize) -> Result<(), DomainError> {
    if count < most { Ok(()) } else { Err(DomainError::TooMany { what, most }) }
}

/// The alternate addresses of a vnet. An automatic address that it already has is kept.
fn alt_macs(wanted: &[AltMac], vnet: &VirtualNic, domain: &Name, owners: &MacOwners) -> Result<Vec<Mac>, DomainError> {
    if wanted.len() > VirtualNic::MOST_ALT_MACS {
        return Err(DomainError::TooMany { what: "additional addresses of a vnet", most: VirtualNic::MOST_ALT_MACS });
    }
    let mut macs: Vec<Mac> = Vec::new();
    for alt in wanted {
        let mac = match alt {
            AltMac::Auto => {
                let taken: Vec<Mac> = macs.iter().copied().chain([vnet.mac]).collect();
                owners.free(vnet.name.as_str(), domain, &taken)
            }
            AltMac::Given(mac) => owners.check(*mac, vnet.name.as_str(), domain)?,
        };
        if macs.contains(&mac) || mac == vnet.mac {
            let (nic, domain) = (vnet.name.to_string(), domain.to_string());
            return Err(DomainError::MacTaken { mac, nic, domain });
        }
        macs.push(mac);
    }
    Ok(macs)
}
