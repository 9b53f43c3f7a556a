//! Description of a domain for another host.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vtax_guest::launch::Launch;
use vtax_model::{
    domain::{Configuration, Constraints, DiskService, DomainError, DomainState, PRIMARY, Switch},
    foreign::ForeignText,
    masters::MOST_MASTERS,
    topology::Name,
    units::ByteSize,
};

use crate::{backend::BackendId, error::BindError};

/// A domain, as described by its host to another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationOffer {
    /// Version of the fields and of their meaning.
    format: u32,
    pub domain: Name,
    pub state: DomainState,
    /// Boot of the source's machine. Files of one machine are compared by their numbers.
    pub boot: String,
    /// The domain with its current constraints, and the services that it uses. All are those of `primary` here, and
    /// switches have no links.
    pub configuration: Box<Configuration>,
    /// Its masters, which aren't part of the configuration.
    pub masters: Vec<Name>,
    /// True if disks missing at the target are to be copied.
    pub copy_disks: bool,
    /// Its disks, as they are at the source.
    pub disks: Vec<OfferedDisk>,
    /// QEMU of a bound or active domain.
    pub guest: Option<OfferedGuest>,
}

/// A disk, or the image or kernel that a domain boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedDisk {
    /// Name of the disk, or `image` or `kernel`.
    pub name: Name,
    /// Identity on the source's machine.
    pub id: BackendId,
    pub size: ByteSize,
}

/// QEMU of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedGuest {
    /// Options that it was started with. The target compares them and opens nothing that they name.
    pub launch: Box<Launch>,
    /// CPU features that an active domain sees.
    pub features: BTreeSet<ForeignText>,
}

impl MigrationOffer {
    const FORMAT: u32 = 1;
    /// Limit on the CPU features, of which QEMU 10 knows 400.
    const MOST_FEATURES: usize = 4_096;
    /// Limit on the length of a CPU feature's name.
    const LONGEST_FEATURE: usize = 64;

    /// Returns the offer of an inactive domain without disks.
    pub(super) fn new(domain: &Name, configuration: &Configuration, now: Constraints, boot: String) -> MigrationOffer {
        let masters = now.masters.clone();
        let configuration = Box::new(reduced(domain, configuration, now));
        let (format, domain, state) = (MigrationOffer::FORMAT, domain.clone(), DomainState::Inactive);
        let (copy_disks, disks) = (false, Vec::new());
        MigrationOffer { format, domain, state, boot, configuration, masters, copy_disks, disks, guest: None }
    }

    /// Returns the constraints of the domain that moves, as its host has stored them.
    pub fn constraints(&self) -> Result<&Constraints, DomainError> {
        self.configuration.domain(&self.domain)
    }

    /// Returns the configuration of the domain alone, under its name at the target.
    pub(super) fn renamed(&self, name: &Name) -> Result<Configuration, DomainError> {
        let mut alone = Configuration::new(&self.configuration.host);
        alone.domains.insert(name.clone(), self.constraints()?.clone());
        Ok(alone)
    }

    /// Returns QEMU if the domain moves with its memory.
    pub(super) fn running(&self) -> Option<&OfferedGuest> {
        self.guest.as_ref().filter(|_| self.state == DomainState::Active)
    }

    /// Checks what another machine has sent, as strictly as a hand-written configuration.
    pub(super) fn check(&self) -> Result<(), BindError> {
        if self.format != MigrationOffer::FORMAT {
            return Err(self.bad("it has another format; install the same vtax on both hosts"));
        }
        let rebuilt = (*self.configuration).clone().rebuilt(&self.configuration.host)?;
        let disks = self.constraints()?.disks.len();
        let is_long = |feature: &ForeignText| feature.raw().len() > MigrationOffer::LONGEST_FEATURE;
        match () {
            () if rebuilt.domains.len() != 1 || self.domain.as_str() == PRIMARY => {
                Err(self.bad("it is not one domain"))
            }
            () if self.masters.len() > MOST_MASTERS => Err(self.bad("it has too many masters")),
            // Its disks, and the file that it boots.
            () if self.disks.len() > disks + 1 => Err(self.bad("it describes more disks than it has")),
            () => match self.guest.as_ref().map(|guest| &guest.features) {
                Some(features) if features.len() > MigrationOffer::MOST_FEATURES || features.iter().any(is_long) => {
                    Err(self.bad("it has too many CPU features, or their names are too long"))
                }
                _ => Ok(()),
            },
        }
    }

    fn bad(&self, why: &'static str) -> BindError {
        BindError::BadOffer { domain: self.domain.clone(), why }
    }

    pub(super) fn disk(&self, name: &Name) -> Option<&OfferedDisk> {
        self.disks.iter().find(|disk| disk.name == *name)
    }
}

/// Returns the domain with these constraints and the services that it uses.
fn reduced(domain: &Name, all: &Configuration, now: Constraints) -> Configuration {
    let primary: Name = PRIMARY.parse().expect("a name");
    let mut own = Configuration::new(&all.host);
    for name in now.vnets.iter().map(|vnet| &vnet.switch) {
        let Some(switch) = all.switches.get(name) else { continue };
        let switch = Switch { service: primary.clone(), net_dev: None, mac: None, ..switch.clone() };
        own.switches.insert(name.clone(), switch);
    }
    if let Some((name, service)) = now.console.service.as_ref().and_then(|name| all.consoles.get_key_value(name)) {
        own.consoles.insert(name.clone(), service.clone());
    }
    for (name, volume) in now.disks.iter().flat_map(|disk| all.paths(&disk.volume).unwrap_or_default()) {
        let Ok(service) = all.disk_service(&name.service) else { continue };
        let exports = own.disk_services.entry(name.service);
        let exports =
            exports.or_insert_with(|| DiskService { domain: service.domain.clone(), volumes: Default::default() });
        exports.volumes.insert(name.volume, volume.clone());
    }
    own.domains.insert(domain.clone(), Constraints { masters: Vec::new(), ..now });
    own
}
