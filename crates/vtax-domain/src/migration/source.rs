//! The source's side: the offer, and the obstacles here.

use std::collections::BTreeSet;

use vtax_guest::{process::Qemu, qmp::PATIENCE};
use vtax_model::{
    domain::{Configuration, Constraints, DomainError, DomainState, PRIMARY, Variable, Volume, VolumeFormat},
    foreign::ForeignText,
    topology::Name,
};

use super::{
    Obstacle, SourceObstacle,
    offer::{MigrationOffer, OfferedDisk, OfferedGuest},
};
use crate::{
    backend::DiskBackend,
    bound::BoundDomain,
    error::BindError,
    ldm_host::LdmHost,
    store::{StoredState, boot},
};

impl LdmHost {
    /// Describes a domain to another host, and finds the obstacles here.
    pub(crate) fn offer_migration(&self, domain: &Name) -> Result<(MigrationOffer, Vec<Obstacle>), BindError> {
        if domain.as_str() == PRIMARY {
            return Err(DomainError::Primary.into());
        }
        let (state, domains) = (self.read()?, self.domains()?);
        let wanted = state.configuration.domain(domain)?;
        let bound = domains.find(domain)?;
        let now = bound.as_ref().map_or_else(|| wanted.clone(), |bound| bound.constraints_now(&state.configuration));
        let mut obstacles = obstacles(domain, &now, &state);
        let mut offer = MigrationOffer::new(domain, &state.configuration, now, boot());
        offer.disks = disks(offer.constraints()?, &offer.configuration);
        if let Some(bound) = bound {
            offer.state = bound.state();
            describe_guest(&bound, &mut offer, &mut obstacles);
        }
        Ok((offer, obstacles.into_iter().map(Obstacle::from).collect()))
    }
}

/// Returns the obstacles here according to the configuration.
pub(super) fn obstacles(domain: &Name, now: &Constraints, state: &StoredState) -> Vec<SourceObstacle> {
    let all = &state.configuration;
    let mut found: Vec<SourceObstacle> = Vec::new();
    found.extend(state.pending.is_some().then_some(SourceObstacle::Reconfiguring));
    found.extend(now.io.iter().map(|device| SourceObstacle::Function { device: device.name.as_str().into() }));
    let served = all.switches.iter().filter(|(_, switch)| switch.service == *domain);
    found.extend(served.map(|(name, _)| SourceObstacle::Serves { switch: name.clone(), clients: clients(name, all) }));
    found.extend(all.slaves(domain).map(|slave| SourceObstacle::IsMaster { slave: slave.clone() }));
    found
}

/// Returns the domains with a vnet on a switch.
fn clients(switch: &Name, all: &Configuration) -> Vec<Name> {
    let uses = |constraints: &Constraints| constraints.vnets.iter().any(|vnet| vnet.switch == *switch);
    all.domains.iter().filter(|(_, constraints)| uses(constraints)).map(|(name, _)| name.clone()).collect()
}

/// Describes the domain's disks, and the file that it boots. Unreadable ones are omitted: the target then has no
/// evidence about them.
fn disks(constraints: &Constraints, all: &Configuration) -> Vec<OfferedDisk> {
    let own =
        constraints.disks.iter().filter_map(|disk| Some((disk.name.clone(), all.volume(&disk.volume).ok()?.clone())));
    let looked = own.chain(boot_file(constraints)).filter_map(|(name, volume)| {
        let DiskBackend { id, size, .. } = DiskBackend::look(&volume).ok()?;
        Some(OfferedDisk { name, id, size })
    });
    looked.collect()
}

/// Returns the file that a domain boots, if the user has set one, in the form of a disk.
pub(super) fn boot_file(constraints: &Constraints) -> Option<(Name, Volume)> {
    let path = |variable| constraints.variables.get(&variable).filter(|value| !value.is_empty());
    let (name, path) =
        path(Variable::Image).map(|path| ("image", path)).or_else(|| Some(("kernel", path(Variable::Kernel)?)))?;
    Some((name.parse().expect("a name"), Volume::new(path.clone(), VolumeFormat::Raw)))
}

/// Adds its QEMU to the offer, and QEMU's reasons against a migration.
fn describe_guest(bound: &BoundDomain, offer: &mut MigrationOffer, obstacles: &mut Vec<SourceObstacle>) {
    if bound.is_abandoned || bound.state() == DomainState::Binding {
        obstacles.push(SourceObstacle::Interrupted);
    }
    let Some(guest) = &bound.guest else { return };
    let mut guest = OfferedGuest { launch: Box::new(guest.launch.clone()), features: BTreeSet::new() };
    if bound.state() == DomainState::Active {
        match bound.qemu() {
            None => obstacles.push(SourceObstacle::Rebooting),
            Some(qemu) => obstacles.extend(ask(qemu, &mut guest)),
        }
    }
    offer.guest = Some(guest);
}

/// Asks QEMU for the features that the guest sees, and for its reasons against a migration.
fn ask(mut qemu: Qemu, guest: &mut OfferedGuest) -> Vec<SourceObstacle> {
    let answers = qemu.monitor(PATIENCE).and_then(|mut monitor| {
        guest.features = monitor.cpu_features(guest.launch.accel)?;
        monitor.migration_blockers()
    });
    match answers {
        Ok(blockers) => blockers.into_iter().map(of_qemu).collect(),
        Err(error) => vec![SourceObstacle::Hung { why: error.to_string().into() }],
    }
}

/// QEMU names the directory: "Migration is disabled when VirtFS export path '…' is mounted in the guest using
/// mount_tag '…'".
pub(super) fn of_qemu(why: ForeignText) -> SourceObstacle {
    match why.raw().contains("VirtFS") {
        true => SourceObstacle::CarriedPrograms,
        false => SourceObstacle::Qemu { why },
    }
}
