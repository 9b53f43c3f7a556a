//! The disks of an offer: those shared by both hosts, and those to be copied.

use std::collections::BTreeMap;

use vtax_model::{
    domain::{Constraints, DomainState, VirtualDisk, Volume, VolumeFormat, VolumeOption},
    topology::Name,
    units::ByteSize,
};

use super::super::{
    CopyObstacle, DiskObstacle, copies::DiskCopy, offer::MigrationOffer, source::boot_file, target::TargetFacts,
};
use crate::{backend::DiskBackend, disk};

/// Returns the obstacles, and the disks that are copied.
pub(super) fn compare(
    offer: &MigrationOffer,
    constraints: &Constraints,
    facts: &TargetFacts<'_>,
) -> (Vec<DiskObstacle>, Vec<DiskCopy>) {
    let (mut found, mut copies) = (Vec::new(), Vec::new());
    for disk in &constraints.disks {
        match of_disk(offer, disk, facts) {
            Ok(Some(copy)) => match copies.iter().find(|other: &&DiskCopy| other.id == copy.id) {
                Some(other) => found.push(twice(&copy, other)),
                None => copies.push(copy),
            },
            Ok(None) => {}
            Err(obstacle) => found.push(obstacle),
        }
    }
    found.extend(room(&copies, facts));
    if let Some((name, file)) = boot_file(constraints) {
        found.extend(match (facts.look)(&file) {
            Err(error) => Some(DiskObstacle::Missing { disk: name, why: error.to_string().into() }),
            // Any copy of a kernel can be booted, and a running one is no longer read.
            Ok(_) if name.as_str() == "kernel" => None,
            Ok(backend) => differs(offer, &name, &backend, facts),
        });
    }
    (found, copies)
}

/// Returns the copy required for a disk, if any.
fn of_disk(
    offer: &MigrationOffer,
    disk: &VirtualDisk,
    facts: &TargetFacts<'_>,
) -> Result<Option<DiskCopy>, DiskObstacle> {
    let name = || disk.name.clone();
    let none = || DiskObstacle::NoVolume { disk: name(), volume: disk.volume.clone() };
    let volume = facts.state.configuration.volume(&disk.volume).map_err(|_| none())?;
    let Ok(was) = offer.configuration.volume(&disk.volume) else { return Ok(None) };
    if was.has(VolumeOption::Ro) != volume.has(VolumeOption::Ro) {
        return Err(DiskObstacle::Access { disk: name(), volume: disk.volume.clone() });
    }
    let backend = (facts.look)(volume);
    let backend = backend.map_err(|error| DiskObstacle::Missing { disk: name(), why: error.to_string().into() })?;
    let path = disk::bound_path(&disk.volume, volume, &backend);
    disk::check_others(&path, volume, facts.others)
        .map_err(|error| DiskObstacle::InUse { disk: name(), why: error.to_string().into() })?;
    match differs(offer, &disk.name, &backend, facts) {
        None => Ok(None),
        Some(DiskObstacle::Unproven { .. }) if offer.copy_disks => {
            check_copy(offer, &disk.name, (was, volume), &backend, facts)?;
            Ok(Some(DiskCopy::new(&disk.name, &backend)))
        }
        Some(obstacle) => Err(obstacle),
    }
}

fn check_copy(
    offer: &MigrationOffer,
    disk: &Name,
    (was, volume): (&Volume, &Volume),
    to: &DiskBackend,
    facts: &TargetFacts<'_>,
) -> Result<(), DiskObstacle> {
    let is_device = to.is_device || offer.disk(disk).is_none_or(|disk| disk.id.is_device());
    let either = |has: fn(&Volume) -> bool| has(was) || has(volume);
    let why = match () {
        () if offer.state != DomainState::Active => CopyObstacle::AtRest,
        () if either(|volume| volume.mpgroup.is_some()) => CopyObstacle::Paths,
        () if either(|volume| volume.format == VolumeFormat::Qcow2) => CopyObstacle::Qcow2,
        () if either(|volume| volume.slice.is_some() || volume.has(VolumeOption::Slice)) => CopyObstacle::Slice,
        () if is_device => CopyObstacle::Device,
        () if either(|volume| volume.has(VolumeOption::Ro)) => CopyObstacle::ReadOnly,
        () if (facts.is_empty)(&to.path) => return Ok(()),
        () => {
            let path = to.path.display().to_string().into();
            return Err(DiskObstacle::Written { disk: disk.clone(), path, size: to.size });
        }
    };
    Err(DiskObstacle::NotCopied { disk: disk.clone(), why })
}

fn twice(copy: &DiskCopy, other: &DiskCopy) -> DiskObstacle {
    let why = format!("{} is also the file of {}", copy.path.display(), other.disk);
    DiskObstacle::InUse { disk: copy.disk.clone(), why: why.into() }
}

/// Each file system needs space for all disks copied to it: sparse ones may fill up at any time.
fn room(copies: &[DiskCopy], facts: &TargetFacts<'_>) -> Vec<DiskObstacle> {
    let mut systems: BTreeMap<u64, Vec<&DiskCopy>> = BTreeMap::new();
    copies.iter().for_each(|copy| systems.entry(copy.id.device).or_default().push(copy));
    let of_system = |copies: &Vec<&DiskCopy>| {
        let wanted = ByteSize(copies.iter().map(|copy| copy.size.0).sum());
        let first = copies.first()?;
        let free = (facts.free)(&first.path);
        let (disk, path) = (first.disk.clone(), first.path.display().to_string().into());
        (wanted > free).then_some(DiskObstacle::NoRoom { disk, path, wanted, free })
    };
    systems.values().filter_map(of_system).collect()
}

/// Files have the same numbers only on one machine. On two, equal sizes prove nothing.
fn differs(offer: &MigrationOffer, name: &Name, there: &DiskBackend, facts: &TargetFacts<'_>) -> Option<DiskObstacle> {
    let path = there.path.display().to_string().into();
    match offer.disk(name) {
        Some(here) if here.size != there.size => {
            Some(DiskObstacle::Size { disk: name.clone(), path, here: here.size, there: there.size })
        }
        Some(here) if here.id == there.id && offer.boot == facts.boot => None,
        _ => Some(DiskObstacle::Unproven { disk: name.clone(), path }),
    }
}
