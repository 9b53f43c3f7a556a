//! The target's side: its resources, compared with an offer.

use std::{collections::BTreeSet, path::Path};

use vtax_guest::launch::{DOMAIN_DRIVERS, Version};
use vtax_host::inspect;
use vtax_lab::{Facts, GuestNeeds};
use vtax_model::{
    domain::Volume,
    foreign::ForeignText,
    guest::{Accelerator, System},
    topology::Name,
    units::ByteSize,
};

use super::{MigrationOffer, MigrationVerdict, check, copies::DiskCopy};
use crate::{
    backend::{BackendError, DiskBackend},
    bindings::Bindings,
    capacity::HostCapacity,
    domains::Domains,
    error::BindError,
    ldm_host::LdmHost,
    store::{StoredState, boot},
    switch::SwitchAbilities,
};

/// Facts about the target with which an offer is compared.
pub(super) struct TargetFacts<'a> {
    pub(super) state: &'a StoredState,
    /// Resources of the bound domains there.
    pub(super) others: &'a [Bindings],
    pub(super) capacity: &'a HostCapacity,
    pub(super) abilities: SwitchAbilities,
    /// QEMU there, or why it has no usable one.
    pub(super) guests: Result<TargetGuests, ForeignText>,
    /// Boot of its machine.
    pub(super) boot: &'a str,
    pub(super) look: &'a dyn Fn(&Volume) -> Result<DiskBackend, BackendError>,
    /// Returns true if a file has no data.
    pub(super) is_empty: &'a dyn Fn(&Path) -> bool,
    /// Returns the free space on a file's file system.
    pub(super) free: &'a dyn Fn(&Path) -> ByteSize,
    /// Ports on which no other program listens.
    pub(super) is_free: &'a dyn Fn(u16) -> bool,
}

/// QEMU of the target.
#[derive(Debug, Clone)]
pub(super) struct TargetGuests {
    pub(super) qemu: Version,
    pub(super) accel: Accelerator,
    /// True if it has qboot. Every QEMU has SeaBIOS.
    pub(super) has_qboot: bool,
    /// CPU features that guests would see.
    pub(super) features: BTreeSet<ForeignText>,
}

impl LdmHost {
    /// Compares an offer with this host. `name` is the domain's name here.
    pub(crate) fn check_migration(&self, offer: &MigrationOffer, name: &Name) -> Result<MigrationVerdict, BindError> {
        offer.check()?;
        let domains = self.domains()?;
        let facts = TargetFacts {
            state: &self.read()?,
            others: &domains.survey()?.holdings()?,
            capacity: &HostCapacity::look(),
            abilities: SwitchAbilities::probe(),
            guests: self.target_guests(&domains, offer.running().is_some())?,
            boot: &boot(),
            look: &DiskBackend::look,
            // An unreadable file is reported as one with data, and an inaccessible file system as full.
            is_empty: &|path| DiskCopy::is_empty(path).unwrap_or(false),
            free: &|path| DiskCopy::free(path).unwrap_or(ByteSize(0)),
            is_free: &|port| domains.is_free(port),
        };
        let verdict = check::verdict(offer, name, &facts)?;
        Ok(MigrationVerdict { machine: Box::new(inspect::environment(&inspect::SystemRoot::live())), ..verdict })
    }

    /// Features are only needed for a system that runs.
    fn target_guests(&self, domains: &Domains, is_live: bool) -> Result<Result<TargetGuests, ForeignText>, BindError> {
        // The offered system is ignored: the other host would choose which files are read here.
        let needs = GuestNeeds::new(&self.agent().unwrap_or_default(), None)
            .with_driver(&System::default(), &DOMAIN_DRIVERS.join(","));
        let facts = Facts::gather(domains.world())?.with_guests(domains.world(), &needs);
        let found = facts.guests.expect("they were looked for").qemu;
        Ok(found.map_err(|unsupported| unsupported.to_string().into()).and_then(|qemu| {
            let features = if is_live { qemu.program.cpu_features(qemu.accel) } else { Ok(BTreeSet::new()) };
            let features = features.map_err(|error| ForeignText::from(error.to_string()))?;
            let has_qboot = qemu.program.qboot.is_some();
            Ok(TargetGuests { qemu: qemu.program.version, accel: qemu.accel, has_qboot, features })
        }))
    }
}
