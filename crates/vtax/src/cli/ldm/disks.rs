//! Words of the verbs of virtual disks and of the services that export their backends.

use vtax_domain::{DomainChange, DomainEdit, NewVolume};
use vtax_model::domain::{VirtualDisk, Volume};

use super::{
    configure::edit,
    grammars::{ADD_VDISK, ADD_VDSDEV, SET_VDISK, SET_VDSDEV},
    verbs::DeferredCheck,
};
use crate::exit::Stop;

pub(super) fn add_volume(words: &[String], check: DeferredCheck) -> Result<DomainChange, Stop> {
    let words = ADD_VDSDEV.read(words)?;
    let (format, change) = words.change::<Volume>()?;
    let new = NewVolume { backend: words.name(0)?, format, change, deferred: check.deferred };
    Ok(DomainChange::AddVolume { volume: words.name(1)?, new })
}

pub(super) fn set_volume(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VDSDEV.read(words)?;
    let (_, change) = words.change::<Volume>()?;
    Ok(DomainChange::SetVolume { volume: words.name(0)?, change })
}

pub(super) fn add_disk(words: &[String]) -> Result<DomainChange, Stop> {
    let words = ADD_VDISK.read(words)?;
    let (disk, volume, domain) = (words.name(0)?, words.name(1)?, words.name(2)?);
    edit(DomainEdit::AddDisk { disk, volume, domain, change: words.change::<VirtualDisk>()? })
}

pub(super) fn set_disk(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VDISK.read(words)?;
    edit(DomainEdit::SetDisk { disk: words.name(0)?, domain: words.name(1)?, change: words.change::<VirtualDisk>()? })
}
