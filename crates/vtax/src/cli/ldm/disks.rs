//! Words of the verbs of virtual disks and of the services that export their backends.

use std::collections::BTreeSet;

use vtax_domain::{DomainChange, DomainEdit, NewVolume};
use vtax_model::domain::{DiskChange, VolumeChange, VolumeOption};

use super::{
    configure::edit,
    verbs::DeferredCheck,
    words::{Grammar, LdmWords},
};
use crate::exit::Stop;

const ADD_VDSDEV: Grammar =
    Grammar::new("add-vdsdev", &["options", "slice", "mpgroup", "format"], &["BACKEND", "VOLUME@SERVICE"]);
const SET_VDSDEV: Grammar = Grammar::new("set-vdsdev", &["options", "slice", "mpgroup"], &["VOLUME@SERVICE"]);
const ADD_VDISK: Grammar = Grammar::new("add-vdisk", &["timeout", "id"], &["DISK", "VOLUME@SERVICE", "DOMAIN"]);
const SET_VDISK: Grammar = Grammar::new("set-vdisk", &["timeout", "volume"], &["DISK", "DOMAIN"]);

pub(super) fn add_volume(words: &[String], check: DeferredCheck) -> Result<DomainChange, Stop> {
    let words = ADD_VDSDEV.read(words)?;
    let new = NewVolume {
        backend: words.name(0)?,
        format: words.property("format")?,
        change: volume_change(&words)?,
        deferred: check.deferred,
    };
    Ok(DomainChange::AddVolume { volume: words.name(1)?, new })
}

pub(super) fn set_volume(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VDSDEV.read(words)?;
    words.some_property()?;
    Ok(DomainChange::SetVolume { volume: words.name(0)?, change: volume_change(&words)? })
}

fn volume_change(words: &LdmWords<'_>) -> Result<VolumeChange, Stop> {
    let options = words.list::<VolumeOption>("options")?;
    Ok(VolumeChange {
        options: options.map(|options| options.into_iter().collect::<BTreeSet<_>>()),
        slice: words.removable("slice")?,
        mpgroup: words.removable("mpgroup")?,
    })
}

pub(super) fn add_disk(words: &[String]) -> Result<DomainChange, Stop> {
    let words = ADD_VDISK.read(words)?;
    let change = DiskChange { volume: None, id: words.property("id")?, timeout: words.property("timeout")? };
    edit(DomainEdit::AddDisk { disk: words.name(0)?, volume: words.name(1)?, domain: words.name(2)?, change })
}

pub(super) fn set_disk(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VDISK.read(words)?;
    words.some_property()?;
    let change = DiskChange { volume: words.property("volume")?, id: None, timeout: words.property("timeout")? };
    edit(DomainEdit::SetDisk { disk: words.name(0)?, domain: words.name(1)?, change })
}
