use vtax_model::{
    domain::{Constraints, VirtualDisk, VolumeOption},
    topology::Name,
};

use super::super::{DiskObstacle, offer::MigrationOffer, source::boot_file, target::TargetFacts};
use crate::{backend::DiskBackend, disk};

pub(super) fn obstacles(
    offer: &MigrationOffer,
    constraints: &Constraints,
    facts: &TargetFacts<'_>,
) -> Vec<DiskObstacle> {
    let mut found: Vec<DiskObstacle> =
        constraints.disks.iter().filter_map(|disk| of_disk(offer, disk, facts)).collect();
    if let Some((name, file)) = boot_file(constraints) {
        found.extend(match (facts.look)(&file) {
            Err(error) => Some(DiskObstacle::Missing { disk: name, why: error.to_string().into() }),
            // Any copy of a kernel can be booted, and a running one is no longer read.
            Ok(_) if name.as_str() == "kernel" => None,
            Ok(backend) => differs(offer, &name, &backend, facts),
        });
    }
    found
}

fn of_disk(offer: &MigrationOffer, disk: &VirtualDisk, facts: &TargetFacts<'_>) -> Option<DiskObstacle> {
    let name = || disk.name.clone();
    let Ok(volume) = facts.state.configuration.volume(&disk.volume) else {
        return Some(DiskObstacle::NoVolume { disk: name(), volume: disk.volume.clone() });
    };
    let was = offer.configuration.volume(&disk.volume).ok()?;
    if was.has(VolumeOption::Ro) != volume.has(VolumeOption::Ro) {
        return Some(DiskObstacle::Access { disk: name(), volume: disk.volume.clone() });
    }
    let backend = match (facts.look)(volume) {
        Err(error) => return Some(DiskObstacle::Missing { disk: name(), why: error.to_string().into() }),
        Ok(backend) => backend,
    };
    let path = disk::bound_path(&disk.volume, volume, &backend);
    match disk::check_others(&path, volume, facts.others) {
        Err(error) => Some(DiskObstacle::InUse { disk: name(), why: error.to_string().into() }),
        Ok(()) => differs(offer, &disk.name, &backend, facts),
    }
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
