//! Which volumes share blocks, and which disks use a volume: sorted, since rebuilding a configuration queries each of
//! thousands.

use std::collections::{BTreeMap, BTreeSet};

use super::{Volume, VolumeName, VolumeOption};
use crate::{domain::Configuration, topology::Name};

/// Volumes by what may conflict.
pub(super) struct Exports {
    /// By backend; read-only volumes are separate from the others.
    backends: BTreeMap<(String, bool), Vec<VolumeName>>,
    groups: BTreeMap<Name, Vec<VolumeName>>,
}

impl Exports {
    pub(super) fn of(all: &Configuration) -> Exports {
        let mut exports = Exports { backends: BTreeMap::new(), groups: BTreeMap::new() };
        all.volumes().for_each(|(name, volume)| exports.insert(name, volume));
        exports
    }

    pub(super) fn insert(&mut self, name: VolumeName, volume: &Volume) {
        if let Some(group) = &volume.mpgroup {
            self.groups.entry(group.clone()).or_default().push(name.clone());
        }
        self.backends.entry((volume.backend.clone(), volume.has(VolumeOption::Ro))).or_default().push(name);
    }

    /// Returns the volumes that could conflict with this one: those of its group, and those of its backend unless both
    /// are read-only.
    pub(super) fn beside(&self, name: &VolumeName, volume: &Volume) -> BTreeSet<&VolumeName> {
        let of_backend = |is_read: bool| self.backends.get(&(volume.backend.clone(), is_read)).into_iter().flatten();
        let read = Some(of_backend(true)).filter(|_| !volume.has(VolumeOption::Ro));
        let group = volume.mpgroup.as_ref().and_then(|group| self.groups.get(group));
        let met = of_backend(false).chain(read.into_iter().flatten()).chain(group.into_iter().flatten());
        met.filter(|other| *other != name).collect()
    }
}

/// Disks that use the blocks of a volume, or of a group of volumes: domains and names.
pub(in crate::domain) struct VolumeUsers(BTreeMap<Blocks, Vec<(Name, Name)>>);

/// A group of volumes by name, or a volume without a group.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Blocks {
    Group(Name),
    Volume(VolumeName),
}

impl VolumeUsers {
    pub(in crate::domain) fn of(all: &Configuration) -> VolumeUsers {
        let mut users = VolumeUsers(BTreeMap::new());
        for (domain, disk) in all.disks() {
            users.insert(&disk.volume, all.volume(&disk.volume).ok(), domain, &disk.name);
        }
        users
    }

    pub(super) fn insert(&mut self, name: &VolumeName, volume: Option<&Volume>, domain: &Name, disk: &Name) {
        self.0.entry(Blocks::of(name, volume)).or_default().push((domain.clone(), disk.clone()));
    }

    pub(super) fn users(&self, name: &VolumeName, volume: &Volume) -> &[(Name, Name)] {
        self.0.get(&Blocks::of(name, Some(volume))).map_or(&[], Vec::as_slice)
    }
}

impl Blocks {
    fn of(name: &VolumeName, volume: Option<&Volume>) -> Blocks {
        let group = volume.and_then(|volume| volume.mpgroup.clone());
        group.map_or_else(|| Blocks::Volume(name.clone()), Blocks::Group)
    }
}
