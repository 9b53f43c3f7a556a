//! Changes of the virtual disks of bound or running domains, as in [`hot_plug`](crate::hot_plug) for NICs. Each disk
//! has its own port, so every disk can be added and removed while its domain runs.

use vtax_model::{
    domain::{Configuration, VirtualDisk},
    topology::Name,
};

use crate::{
    bindings::BoundDisk,
    bound::BoundDomain,
    disk,
    disk_plug::{PlugDisk, PullDisk},
    error::BindError,
    hot_plug::ChangeEffect,
    locked::LockedDomains,
    step::DomainStep,
    supervisor_process,
};

impl LockedDomains<'_> {
    /// Applies the current configuration of a domain's virtual disk. An unavailable disk is refused before anything is
    /// changed.
    pub fn follow_disk(
        &self,
        domain: &Name,
        disk: &Name,
        was: &Configuration,
        now: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let bound = match self.running(domain)? {
            Ok(bound) => bound,
            Err(effect) => return Ok(effect),
        };
        let has = bound.bindings.disks.iter().find(|own| own.disk.name == *disk);
        match (was.disk(domain, disk).ok(), now.disk(domain, disk).ok(), has) {
            // It was about to change at the next boot, and is now as before.
            (_, Some(new), Some(has)) if has.disk == *new => Ok(ChangeEffect::Now),
            (None, Some(new), None) => self.plug_disk(&bound, new, now),
            (Some(_), None, Some(has)) => self.unplug_disk(&bound, has),
            (Some(_), None, None) | (None, None, _) => Ok(ChangeEffect::Now),
            _ => Ok(ChangeEffect::AtBoot),
        }
    }

    fn plug_disk(
        &self,
        bound: &BoundDomain,
        new: &VirtualDisk,
        configuration: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let others = self.survey()?.holdings()?;
        let disk = disk::bound_disk(bound.name(), new, configuration, (&[], false), &others)?;
        let Some((launch, process)) = bound.running_guest() else { return Ok(ChangeEffect::AtBoot) };
        if new.id >= launch.disks.ports || bound.bindings.disks.iter().any(|own| own.disk.id == new.id) {
            return Ok(ChangeEffect::AtBoot);
        }
        let has_paths = disk.mpgroup.is_some();
        let step = DomainStep::PlugDisk(PlugDisk { launch, process, disk: Box::new(disk) });
        self.without_supervisor(bound, has_paths, || self.extend(bound.name(), vec![step]))
    }

    /// A supervisor only checks at its start which disks have paths that it must monitor.
    fn without_supervisor(
        &self,
        bound: &BoundDomain,
        has_paths: bool,
        change: impl FnOnce() -> Result<ChangeEffect, BindError>,
    ) -> Result<ChangeEffect, BindError> {
        if !has_paths {
            return change();
        }
        supervisor_process::end(&self.directory(bound.name()));
        let changed = change();
        self.start_supervisor(bound.name())?;
        changed
    }

    fn unplug_disk(&self, bound: &BoundDomain, disk: &BoundDisk) -> Result<ChangeEffect, BindError> {
        let has_paths = disk.mpgroup.is_some();
        if let Some(plugged) = bound.plugged_disks.iter().find(|plugged| plugged.name == disk.disk.name) {
            return self.without_supervisor(bound, has_paths, || self.undo_plugged(bound.name(), plugged.batch));
        }
        let Some((launch, process)) = bound.running_guest() else { return Ok(ChangeEffect::AtBoot) };
        let step = DomainStep::PullDisk(PullDisk { launch, process, disk: Box::new(disk.clone()) });
        self.without_supervisor(bound, has_paths, || self.extend(bound.name(), vec![step]))
    }
}
