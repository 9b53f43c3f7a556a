//! Orders about the services that export volumes, and their volumes.

use serde::{Deserialize, Serialize};
use vtax_model::{
    domain::{Volume, VolumeChange, VolumeFormat, VolumeName},
    topology::Name,
};

use crate::{
    backend::{check_backend, find_format},
    error::BindError,
    host_change::HostChange,
};

/// Volume to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Absolute path of a file or a block device.
    pub backend: String,
    /// Format of the backend; detected if absent.
    pub format: Option<VolumeFormat>,
    pub change: VolumeChange,
    /// True if the backend is only checked when a domain is bound.
    pub deferred: bool,
}

impl HostChange<'_> {
    pub(super) fn add_volume(&self, name: &VolumeName, new: NewVolume) -> Result<(), BindError> {
        let NewVolume { backend, format, change, deferred } = new;
        Volume::check_backend(&backend)?;
        let format = format.map_or_else(|| find_format(&backend), Ok).map_err(Box::new)?;
        let mut volume = Volume::new(backend, format);
        change.fill(&mut volume);
        self.configuration().clone().add_volume(name, volume.clone())?;
        if !deferred {
            check_backend(&volume).map_err(Box::new)?;
        }
        self.edit(|all| all.add_volume(name, volume)).map(drop)
    }

    pub(super) fn set_volume(&self, name: &VolumeName, change: VolumeChange) -> Result<(), BindError> {
        let paths = self.configuration().paths(name)?;
        let paths: Vec<VolumeName> = paths.into_iter().map(|(path, _)| path).collect();
        self.no_bound_domain_has(|volume| paths.contains(volume))?;
        self.edit(|all| all.set_volume(name, change)).map(drop)
    }

    pub(super) fn remove_volume(&self, name: &VolumeName, force: bool) -> Result<(), BindError> {
        self.no_bound_domain_has(|volume| volume == name)?;
        self.edit(|all| all.remove_volume(name, force)).map(drop)
    }

    pub(super) fn remove_disk_service(&self, service: &Name, force: bool) -> Result<(), BindError> {
        self.no_bound_domain_has(|volume| volume.service == *service)?;
        self.edit(|all| all.remove_disk_service(service, force)).map(drop)
    }

    /// Refuses to change a volume in use, because its domain would no longer match its constraints.
    fn no_bound_domain_has(&self, is_it: impl Fn(&VolumeName) -> bool) -> Result<(), BindError> {
        for bound in self.bound()? {
            let uses = |disk: &&crate::bindings::BoundDisk| disk.paths.iter().any(|path| is_it(&path.volume));
            if let Some(disk) = bound.bindings.disks.iter().find(uses) {
                let (domain, state) = (bound.name().clone(), bound.state());
                return Err(BindError::VolumeInUse { domain, state, disk: disk.disk.name.clone() });
            }
        }
        Ok(())
    }
}
