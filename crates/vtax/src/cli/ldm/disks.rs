//! Verbs of virtual disks and of the services that export their backends.

use std::{collections::BTreeSet, path};

use miette::miette;
use vtax_domain::{check_backend, find_format};
use vtax_model::{
    domain::{Configuration, DiskChange, Volume, VolumeChange, VolumeFormat, VolumeName, VolumeOption},
    topology::Name,
};

use super::{
    change::{ChangingHost, HostChange},
    verbs::DeferredCheck,
    words::{Grammar, LdmWords},
};
use crate::exit::{Blamed, Exit, Stop};

const ADD_VDSDEV: Grammar =
    Grammar::new("add-vdsdev", &["options", "slice", "mpgroup", "format"], &["BACKEND", "VOLUME@SERVICE"]);
const SET_VDSDEV: Grammar = Grammar::new("set-vdsdev", &["options", "slice", "mpgroup"], &["VOLUME@SERVICE"]);
const ADD_VDISK: Grammar = Grammar::new("add-vdisk", &["timeout", "id"], &["DISK", "VOLUME@SERVICE", "DOMAIN"]);
const SET_VDISK: Grammar = Grammar::new("set-vdisk", &["timeout", "volume"], &["DISK", "DOMAIN"]);

pub(super) fn add_service(host: ChangingHost<'_>, name: &Name, domain: Name) -> Result<Exit, Stop> {
    host.edit(|all| all.add_disk_service(name, domain))?;
    Ok(Exit::Done)
}

pub(super) fn remove_service(host: ChangingHost<'_>, name: &Name, force: bool) -> Result<Exit, Stop> {
    host.change(|change| {
        no_bound_domain_has(change, |volume| volume.service == *name)?;
        change.edit(|all| all.remove_disk_service(name, force))?;
        Ok(Exit::Done)
    })
}

pub(super) fn add_volume(host: ChangingHost<'_>, words: &[String], check: DeferredCheck) -> Result<Exit, Stop> {
    let words = ADD_VDSDEV.read(words)?;
    let written: String = words.name(0)?;
    let name: VolumeName = words.name(1)?;
    let format: Option<VolumeFormat> = words.property("format")?;
    let absolute = path::absolute(&written).ok().and_then(|path| path.into_os_string().into_string().ok());
    let VolumeChange { options, slice, mpgroup } = volume_change(&words)?;
    let backend = absolute.unwrap_or(written);
    let volume = Volume {
        format: format.map_or_else(|| find_format(&backend), Ok).or_input()?,
        backend,
        options: options.unwrap_or_default(),
        slice: slice.flatten(),
        mpgroup: mpgroup.flatten(),
    };
    host.change(|change| {
        change.configuration().clone().add_volume(&name, volume.clone()).or_input()?;
        if !check.deferred {
            check_backend(&volume).or_input()?;
        }
        change.edit(|all| all.add_volume(&name, volume))?;
        Ok(Exit::Done)
    })
}

pub(super) fn set_volume(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_VDSDEV.read(words)?;
    words.some_property()?;
    let (name, properties): (VolumeName, VolumeChange) = (words.name(0)?, volume_change(&words)?);
    host.change(|change| {
        let paths = change.configuration().paths(&name).or_input()?;
        let paths: Vec<VolumeName> = paths.into_iter().map(|(path, _)| path).collect();
        no_bound_domain_has(change, |volume| paths.contains(volume))?;
        change.edit(|all| all.set_volume(&name, properties))?;
        Ok(Exit::Done)
    })
}

pub(super) fn remove_volume(host: ChangingHost<'_>, name: &VolumeName, force: bool) -> Result<Exit, Stop> {
    host.change(|change| {
        no_bound_domain_has(change, |volume| volume == name)?;
        change.edit(|all| all.remove_volume(name, force))?;
        Ok(Exit::Done)
    })
}

fn volume_change(words: &LdmWords<'_>) -> Result<VolumeChange, Stop> {
    let options = words.list::<VolumeOption>("options")?;
    Ok(VolumeChange {
        options: options.map(|options| options.into_iter().collect::<BTreeSet<_>>()),
        slice: words.removable("slice")?,
        mpgroup: words.removable("mpgroup")?,
    })
}

/// Refuses to change a volume in use, because its domain would no longer match its constraints.
fn no_bound_domain_has(change: &HostChange<'_>, is_it: impl Fn(&VolumeName) -> bool) -> Result<(), Stop> {
    for bound in change.bound()? {
        if let Some(disk) = bound.bindings.disks.iter().find(|disk| disk.paths.iter().any(|path| is_it(&path.volume))) {
            let (domain, state, disk) = (bound.name(), bound.state(), &disk.disk.name);
            return Err(Stop::input(miette!(
                code = "domain-state",
                "{domain} is {state} and uses it as {disk}; stop and unbind the domain first, or remove the disk \
                 (vtax ldm rm-vdisk {disk} {domain})"
            )));
        }
    }
    Ok(())
}

pub(super) fn add_disk(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = ADD_VDISK.read(words)?;
    let (name, volume, domain): (Name, VolumeName, Name) = (words.name(0)?, words.name(1)?, words.name(2)?);
    let change = DiskChange { volume: None, id: words.property("id")?, timeout: words.property("timeout")? };
    host.edit_disk(&domain, &name, |all: &mut Configuration| all.add_disk(&domain, &name, volume, change))
}

pub(super) fn set_disk(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_VDISK.read(words)?;
    words.some_property()?;
    let (name, domain): (Name, Name) = (words.name(0)?, words.name(1)?);
    let change = DiskChange { volume: words.property("volume")?, id: None, timeout: words.property("timeout")? };
    host.edit_disk(&domain, &name, |all: &mut Configuration| all.set_disk(&domain, &name, change))
}

pub(super) fn remove_disk(host: ChangingHost<'_>, name: &Name, domain: &Name) -> Result<Exit, Stop> {
    host.edit_disk(domain, name, |all| all.remove_disk(domain, name))
}
