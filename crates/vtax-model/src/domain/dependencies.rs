//! Dependencies between domains.

use serde::{Deserialize, Serialize};
use strum::Display;

use super::{Configuration, DomainError, PRIMARY};
use crate::{
    masters::{MOST_MASTERS, masters_first},
    topology::Name,
};

/// Dependency of a domain on another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DomainDependency {
    /// The dependent domain.
    pub domain: Name,
    /// The domain that it depends on.
    pub on: Name,
    /// Reason.
    #[serde(rename = "type")]
    pub kind: DependencyKind,
    /// The device that causes it.
    pub device: String,
}

/// Reason why a domain depends on another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum DependencyKind {
    /// It has a virtual NIC at the other one's switch.
    Vnet,
    /// It has a virtual disk of the other one's disk service.
    Vdisk,
    /// It has a device below a root complex of the other one.
    Iov,
}

impl Configuration {
    /// Returns the domains that are started when the host boots: masters before those that depend on them.
    pub fn autostarted(&self) -> Vec<&Name> {
        let mut ordered = self.domains_by_masters();
        ordered.retain(|name| self.domains[*name].autostart);
        ordered
    }

    /// Returns all domains: masters before those that depend on them.
    pub fn domains_by_masters(&self) -> Vec<&Name> {
        let ordered = masters_first(self.domains.keys(), |name| self.masters_of(name));
        // No command creates a cycle. With a cycle written into the file by hand, the order is that of names.
        let mut ordered = ordered.unwrap_or_else(|_| self.domains.keys().collect());
        // A master may be primary, or on another host.
        ordered.retain(|name| self.domains.contains_key(*name));
        ordered
    }

    fn masters_of(&self, name: &Name) -> &[Name] {
        self.domain(name).map_or(&[], |domain| &domain.masters)
    }

    /// Returns the dependencies of each domain through its virtual NICs, disks and PCI devices, by name.
    pub fn dependencies(&self) -> Vec<DomainDependency> {
        let of_domain = |(domain, constraints): (&Name, &super::Constraints)| {
            let vnets = constraints.vnets.iter().filter_map(|vnet| {
                let switch = self.switches.get(&vnet.switch)?;
                let device = format!("{}/{}", vnet.switch, vnet.name);
                Some(DomainDependency {
                    domain: domain.clone(),
                    on: switch.service.clone(),
                    kind: DependencyKind::Vnet,
                    device,
                })
            });
            let devices = constraints.io.iter().filter(|device| device.kind.depends_on_primary());
            let devices = devices.map(|device| DomainDependency {
                domain: domain.clone(),
                on: PRIMARY.parse().expect("a name"),
                kind: DependencyKind::Iov,
                device: device.name.clone(),
            });
            let disks = constraints.disks.iter().filter_map(|disk| {
                let service = self.disk_services.get(&disk.volume.service)?;
                let device = format!("{}/{}", disk.volume.service, disk.name);
                let on = service.domain.clone();
                Some(DomainDependency { domain: domain.clone(), on, kind: DependencyKind::Vdisk, device })
            });
            vnets.chain(disks).chain(devices).collect::<Vec<_>>()
        };
        let mut all: Vec<DomainDependency> = self.domains.iter().flat_map(of_domain).collect();
        all.sort();
        all
    }

    /// Makes these the masters of a domain.
    pub fn set_masters(&mut self, domain: &Name, masters: Vec<Name>) -> Result<(), DomainError> {
        if masters.len() > MOST_MASTERS {
            return Err(DomainError::TooManyMasters {
                domain: domain.clone(),
                count: masters.len(),
                most: MOST_MASTERS,
            });
        }
        self.existing(domain)?;
        masters.iter().try_for_each(|master| self.existing(master))?;
        let of = |name: &Name| if name == domain { &masters } else { self.masters_of(name) };
        if let Err(cycle) = masters_first([domain], of) {
            return Err(DomainError::Cycle { domain: cycle[cycle.len() - 2].clone(), master: domain.clone() });
        }
        self.domain_mut(domain)?.masters = masters;
        Ok(())
    }

    /// Returns the domains that have this one as a master.
    pub fn slaves<'a>(&'a self, master: &'a Name) -> impl Iterator<Item = &'a Name> {
        self.domains.iter().filter(|(_, domain)| domain.masters.contains(master)).map(|(name, _)| name)
    }

    /// Checks that a domain exists; `primary` does.
    pub(super) fn existing(&self, domain: &Name) -> Result<(), DomainError> {
        match domain.as_str() == PRIMARY || self.domains.contains_key(domain) {
            true => Ok(()),
            false => Err(self.no_domain(domain)),
        }
    }
}
