//! Changes to disk services, volumes and virtual disks.

use super::{
    DiskChange, DiskService, VirtualDisk, Volume, VolumeChange, VolumeFormat, VolumeName, VolumeOption,
    exports::{Exports, VolumeUsers},
};
use crate::{
    domain::{Configuration, Constraints, DomainError, configuration::check_room},
    topology::Name,
};

impl Configuration {
    /// Adds a disk service that exports nothing yet.
    pub fn add_disk_service(&mut self, name: &Name, domain: Name) -> Result<(), DomainError> {
        self.primary_service(&domain)?;
        if self.disk_services.contains_key(name) {
            return Err(DomainError::Exists { what: "disk service", name: name.clone() });
        }
        check_room("disk services", self.disk_services.len(), Configuration::MOST_SERVICES)?;
        self.disk_services.insert(name.clone(), DiskService { domain, volumes: Default::default() });
        Ok(())
    }

    /// Removes a disk service; with `force`, also its volumes, and the disks backed by them.
    pub fn remove_disk_service(&mut self, name: &Name, force: bool) -> Result<(), DomainError> {
        let volumes: Vec<Name> = self.disk_service(name)?.volumes.keys().cloned().collect();
        if let Some(volume) = volumes.first().filter(|_| !force) {
            return Err(DomainError::VolumesLeft { service: name.clone(), volume: volume.clone() });
        }
        for volume in volumes {
            self.remove_volume(&VolumeName { volume, service: name.clone() }, true)?;
        }
        self.disk_services.remove(name);
        Ok(())
    }

    pub fn disk_service(&self, name: &Name) -> Result<&DiskService, DomainError> {
        self.disk_services
            .get(name)
            .ok_or_else(|| DomainError::unknown("disk service", name, self.disk_services.keys()))
    }

    /// Adds a file or a block device to a disk service as a volume.
    pub fn add_volume(&mut self, name: &VolumeName, volume: Volume) -> Result<(), DomainError> {
        let mut exports = Exports::of(self);
        self.add_volume_beside(name, volume, &mut exports)
    }

    fn add_volume_beside(
        &mut self,
        name: &VolumeName,
        volume: Volume,
        exports: &mut Exports,
    ) -> Result<(), DomainError> {
        let VolumeName { volume: own, service } = name;
        if self.disk_service(service)?.volumes.contains_key(own) {
            return Err(DomainError::VolumeExists { volume: name.clone() });
        }
        let count = self.disk_services.values().map(|service| service.volumes.len()).sum();
        check_room("volumes", count, Configuration::MOST_VOLUMES)?;
        Volume::check_backend(&volume.backend)?;
        self.check_volume(name, &volume, exports)?;
        exports.insert(name.clone(), &volume);
        self.put_volume(name, volume);
        Ok(())
    }

    /// Changes how a volume is exported. Options and slice apply to all paths of its group. The caller has checked that
    /// no bound domain has it.
    pub fn set_volume(&mut self, name: &VolumeName, change: VolumeChange) -> Result<(), DomainError> {
        let was = self.volume(name)?;
        let mut volume = was.clone();
        change.fill(&mut volume);
        let mut all = self.clone();
        if was.mpgroup == volume.mpgroup {
            for (path, found) in self.paths(name)? {
                let Volume { options, slice, .. } = volume.clone();
                all.put_volume(&path, Volume { options, slice, ..found.clone() });
            }
        }
        all.put_volume(name, volume);
        let (exports, users) = (Exports::of(&all), VolumeUsers::of(&all));
        for (path, changed) in all.paths(name)? {
            all.check_volume(&path, changed, &exports)?;
            check_shared(&path, changed, &users)?;
        }
        *self = all;
        Ok(())
    }

    /// Removes a volume from a disk service; with `force`, also the disks backed by it.
    pub fn remove_volume(&mut self, name: &VolumeName, force: bool) -> Result<(), DomainError> {
        self.volume(name)?;
        let users: Vec<(Name, Name)> =
            self.disks_at(name).map(|(domain, disk)| (domain.clone(), disk.name.clone())).collect();
        if let Some((domain, disk)) = users.first().filter(|_| !force) {
            return Err(DomainError::VolumeInUse { volume: name.clone(), disk: disk.clone(), domain: domain.clone() });
        }
        for (domain, disk) in users {
            self.remove_disk(&domain, &disk)?;
        }
        if let Some(service) = self.disk_services.get_mut(&name.service) {
            service.volumes.remove(&name.volume);
        }
        Ok(())
    }

    pub fn volume(&self, name: &VolumeName) -> Result<&Volume, DomainError> {
        let volumes = &self.disk_service(&name.service)?.volumes;
        volumes.get(&name.volume).ok_or_else(|| DomainError::unknown("volume", &name.volume, volumes.keys()))
    }

    /// All volumes, by service and name.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeName, &Volume)> {
        self.disk_services.iter().flat_map(|(service, exports)| {
            let named = |volume: &Name| VolumeName { volume: volume.clone(), service: service.clone() };
            exports.volumes.iter().map(move |(name, volume)| (named(name), volume))
        })
    }

    /// Returns the volume itself, and then the others of its group: each is a path to the same
    /// blocks.
    pub fn paths(&self, name: &VolumeName) -> Result<Vec<(VolumeName, &Volume)>, DomainError> {
        let own = self.volume(name)?;
        let group = own.mpgroup.as_ref();
        let others =
            self.volumes().filter(|(other, found)| other != name && group.is_some() && found.mpgroup.as_ref() == group);
        Ok(std::iter::once((name.clone(), own)).chain(others).collect())
    }

    fn put_volume(&mut self, name: &VolumeName, volume: Volume) {
        let service = self.disk_services.get_mut(&name.service).expect("it exists");
        service.volumes.insert(name.volume.clone(), volume);
    }

    /// Checks a volume against the others.
    fn check_volume(&self, name: &VolumeName, volume: &Volume, exports: &Exports) -> Result<(), DomainError> {
        if volume.slice.is_some() && volume.has(VolumeOption::Slice) {
            return Err(DomainError::SliceTwice { volume: name.clone() });
        }
        if volume.slice.is_some() && volume.format == VolumeFormat::Qcow2 {
            return Err(DomainError::SliceOfImage { volume: name.clone() });
        }
        if volume.mpgroup.is_some() && volume.format == VolumeFormat::Qcow2 {
            return Err(DomainError::GroupOfImages { volume: name.clone() });
        }
        let mut paths = 0;
        for other in exports.beside(name, volume) {
            let found = self.volume(other)?;
            let one_group = volume.mpgroup.is_some() && volume.mpgroup == found.mpgroup;
            let both_read = volume.has(VolumeOption::Ro) && found.has(VolumeOption::Ro);
            if volume.overlaps(found) && !one_group && !both_read {
                return Err(DomainError::BackendTaken { backend: volume.backend.clone(), volume: other.clone() });
            }
            if one_group
                && (volume.slice != found.slice || volume.options != found.options || volume.format != found.format)
            {
                return Err(DomainError::GroupDiffers { volume: name.clone(), other: other.clone() });
            }
            paths += usize::from(one_group);
        }
        match volume.mpgroup {
            Some(_) => check_room("volumes of one mpgroup", paths, Volume::MOST_PATHS),
            None => Ok(()),
        }
    }

    /// Returns all virtual disks, each with its domain.
    pub fn disks_at<'a>(&'a self, volume: &'a VolumeName) -> impl Iterator<Item = (&'a Name, &'a VirtualDisk)> {
        self.disks().filter(move |(_, disk)| disk.volume == *volume)
    }

    /// All virtual disks, each with its domain.
    pub(super) fn disks(&self) -> impl Iterator<Item = (&Name, &VirtualDisk)> {
        self.domains.iter().flat_map(|(name, domain)| domain.disks.iter().map(move |disk| (name, disk)))
    }

    /// Adds a virtual disk to a domain.
    pub fn add_disk(
        &mut self,
        domain: &Name,
        name: &Name,
        volume: VolumeName,
        change: DiskChange,
    ) -> Result<(), DomainError> {
        let mut users = VolumeUsers::of(self);
        self.add_disk_beside(domain, name, volume, change, &mut users)
    }

    fn add_disk_beside(
        &mut self,
        domain: &Name,
        name: &Name,
        volume: VolumeName,
        change: DiskChange,
        users: &mut VolumeUsers,
    ) -> Result<(), DomainError> {
        self.volume(&volume)?;
        let disks = &self.guest_mut(domain)?.disks;
        if disks.iter().any(|disk| disk.name == *name) {
            return Err(DomainError::DiskExists { disk: name.clone(), domain: domain.clone() });
        }
        check_room("disks of a domain", disks.len(), VirtualDisk::MOST as usize)?;
        let free = (0..).find(|id| disks.iter().all(|disk| disk.id != *id)).expect("there is a free one");
        let id = change.id.unwrap_or(free);
        let new = VirtualDisk { name: name.clone(), volume, id, timeout: None };
        let changed = self.changed_disk(domain, new, change, users)?;
        users.insert(&changed.volume, self.volume(&changed.volume).ok(), domain, name);
        self.guest_mut(domain)?.disks.push(changed);
        Ok(())
    }

    /// Changes a virtual disk.
    pub fn set_disk(&mut self, domain: &Name, name: &Name, change: DiskChange) -> Result<(), DomainError> {
        let disk = self.disk(domain, name)?.clone();
        let changed = self.changed_disk(domain, disk, change, &VolumeUsers::of(self))?;
        let disks = &mut self.guest_mut(domain)?.disks;
        *disks.iter_mut().find(|disk| disk.name == *name).expect("it exists") = changed;
        Ok(())
    }

    fn changed_disk(
        &self,
        domain: &Name,
        mut disk: VirtualDisk,
        change: DiskChange,
        users: &VolumeUsers,
    ) -> Result<VirtualDisk, DomainError> {
        let DiskChange { volume, id, timeout } = change;
        disk.volume = volume.unwrap_or(disk.volume);
        disk.id = id.unwrap_or(disk.id);
        disk.timeout = timeout.map_or(disk.timeout, |seconds| Some(seconds).filter(|seconds| *seconds > 0));
        self.check_disk(domain, &disk, users)?;
        Ok(disk)
    }

    fn check_disk(&self, domain: &Name, disk: &VirtualDisk, users: &VolumeUsers) -> Result<(), DomainError> {
        let volume = self.volume(&disk.volume)?;
        if disk.id >= VirtualDisk::MOST {
            return Err(DomainError::value("id", &disk.id.to_string(), "0 to 31"));
        }
        let others = self.domain(domain)?.disks.iter();
        if let Some(other) = others.into_iter().find(|other| other.id == disk.id && other.name != disk.name) {
            return Err(DomainError::DiskIdTaken { id: disk.id, disk: other.name.clone(), domain: domain.clone() });
        }
        let mut users = users.users(&disk.volume, volume).iter();
        let is_other = |(of, name): &&(Name, Name)| of != domain || *name != disk.name;
        match users.find(is_other).filter(|_| !volume.has(VolumeOption::Ro)) {
            Some((of, name)) => {
                Err(DomainError::VolumeTaken { volume: disk.volume.clone(), disk: name.clone(), domain: of.clone() })
            }
            None => Ok(()),
        }
    }

    /// Removes a virtual disk from a domain.
    pub fn remove_disk(&mut self, domain: &Name, name: &Name) -> Result<(), DomainError> {
        self.disk(domain, name)?;
        self.guest_mut(domain)?.disks.retain(|disk| disk.name != *name);
        Ok(())
    }

    /// Returns a disk, or an error if the domain has none of this name.
    pub fn disk(&self, domain: &Name, name: &Name) -> Result<&VirtualDisk, DomainError> {
        let disks = &self.domain(domain)?.disks;
        let found = disks.iter().find(|disk| disk.name == *name);
        found.ok_or_else(|| DomainError::unknown("vdisk", name, disks.iter().map(|disk| &disk.name)))
    }

    /// Adopts the disk services of another configuration, for one that is being rebuilt.
    pub(in crate::domain) fn rebuild_disk_services(&mut self, from: &Configuration) -> Result<(), DomainError> {
        for (name, service) in &from.disk_services {
            self.add_disk_service(name, service.domain.clone())?;
        }
        let mut exports = Exports::of(self);
        from.volumes().try_for_each(|(name, volume)| self.add_volume_beside(&name, volume.clone(), &mut exports))
    }

    pub(in crate::domain) fn rebuild_disks(
        &mut self,
        name: &Name,
        domain: &Constraints,
        users: &mut VolumeUsers,
    ) -> Result<(), DomainError> {
        domain.disks.iter().try_for_each(|disk| {
            let change = DiskChange { volume: None, id: Some(disk.id), timeout: disk.timeout };
            self.add_disk_beside(name, &disk.name, disk.volume.clone(), change, users)
        })
    }
}

/// Several disks share one volume only if none of them can write to it.
fn check_shared(name: &VolumeName, volume: &Volume, users: &VolumeUsers) -> Result<(), DomainError> {
    match users.users(name, volume) {
        [(domain, disk), (other, _), ..] if !volume.has(VolumeOption::Ro) => Err(DomainError::VolumeShared {
            volume: name.clone(),
            disk: disk.clone(),
            domain: domain.clone(),
            other: other.clone(),
        }),
        _ => Ok(()),
    }
}
