//! Changes that the host follows immediately: stored state and host change together.
//!
//! A change is recorded before anything on the host changes, and everything that could fail for lack of space fails
//! before that. If the host refuses the change, or it can't be saved, the host's previous state is restored. If vtax is
//! killed in between, the next command that changes something completes the change.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_journal::JournalError;
use vtax_model::{domain::Configuration, topology::Name};
use vtax_sys::{
    directory,
    record::{self, RecordError},
};

use crate::{
    draft::FileDraft,
    error::BindError,
    hot_plug::ChangeEffect,
    locked::LockedDomains,
    store::{LONGEST, StoredState},
};

const FILE: &str = "change.json";
/// Two states and the differences between them.
const LARGEST: u64 = 3 * LONGEST;

/// Object that can be changed while domains are bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LiveObject {
    /// Virtual switch.
    Switch(Name),
    /// Virtual NIC of a domain.
    Vnet {
        /// Domain that has the NIC, or will have it.
        domain: Name,
        /// Name of the NIC.
        vnet: Name,
    },
    /// Virtual disk of a domain.
    Disk {
        /// Domain that has the disk, or will have it.
        domain: Name,
        /// Name of the disk, which is its serial number in the domain.
        disk: Name,
    },
    /// PCI device of a domain.
    Device {
        /// Domain that has the device, or will have it; `primary` for the host.
        domain: Name,
        /// Name of the device in `list-io`.
        device: String,
    },
}

/// Change that is being made, or was when vtax was killed.
#[derive(Debug, Serialize, Deserialize)]
struct UnfinishedChange {
    objects: Vec<LiveObject>,
    was: StoredState,
    now: StoredState,
}

impl LiveObject {
    fn is_in(&self, all: &Configuration) -> bool {
        match self {
            LiveObject::Switch(name) => all.switches.contains_key(name),
            LiveObject::Vnet { domain, vnet } => all.vnet(domain, vnet).is_ok(),
            LiveObject::Disk { domain, disk } => all.disk(domain, disk).is_ok(),
            LiveObject::Device { domain, device } => {
                all.domain(domain).is_ok_and(|domain| domain.io.iter().any(|own| own.name == *device))
            }
        }
    }
}

impl LockedDomains<'_> {
    /// Makes a change that the host follows immediately: all of it, or nothing. Returns the latest effect of its parts.
    pub fn change(
        &self,
        objects: &[LiveObject],
        was: &StoredState,
        now: &StoredState,
    ) -> Result<ChangeEffect, BindError> {
        let change = UnfinishedChange { objects: objects.to_vec(), was: was.clone(), now: now.clone() };
        self.record(&change)?;
        let changed = self.carry_out(&change);
        self.forget_change();
        changed
    }

    /// Completes the change that was interrupted when vtax was killed, if any. If its state cannot be saved, the next
    /// command retries it.
    pub(crate) fn finish_change(&self, kept: &Configuration) -> Result<(), BindError> {
        let Some(change) = self.unfinished().map_err(JournalError::from)? else { return Ok(()) };
        if ![&change.was, &change.now].iter().any(|state| state.configuration == *kept) {
            // A later command could not complete this change, and saved another one.
            self.forget_change();
            return Ok(());
        }
        let finished = self.carry_out(&change);
        let is_saved = !matches!(&finished, Err(BindError::Store(_)));
        if is_saved {
            self.forget_change();
        }
        finished.map(drop)
    }

    /// New objects are saved before the host gets them, and removed objects stay saved until they no longer exist. So a
    /// domain has nothing that isn't in the configuration, whenever vtax is killed.
    fn carry_out(&self, change: &UnfinishedChange) -> Result<ChangeEffect, BindError> {
        let UnfinishedChange { objects, was, now } = change;
        let (new, old) = (self.store.draft("new", now)?, self.store.draft("old", was)?);
        let (was, now) = (&was.configuration, &now.configuration);
        let is_new = objects.iter().all(|object| !object.is_in(was));
        let (first, last) = if is_new { (Some(new), None) } else { (None, Some(new)) };
        let changed = first
            .map_or(Ok(()), |new| Ok(new.commit()?))
            .and_then(|()| self.follow_all(objects, was, now))
            .and_then(|effect| last.map_or(Ok(effect), |new| Ok(new.commit().map(|()| effect)?)));
        if changed.is_err() {
            // Refused changes were not made, and are refused again; the reason was already reported.
            let _ = self.follow_all(objects, now, was);
            if is_new {
                old.commit()?;
            }
        }
        changed
    }

    fn follow_all(
        &self,
        objects: &[LiveObject],
        was: &Configuration,
        now: &Configuration,
    ) -> Result<ChangeEffect, BindError> {
        let effects = objects.iter().map(|object| self.follow(object, was, now));
        let effects = effects.collect::<Result<Vec<_>, BindError>>()?;
        Ok(if effects.contains(&ChangeEffect::AtBoot) { ChangeEffect::AtBoot } else { ChangeEffect::Now })
    }

    fn follow(&self, object: &LiveObject, was: &Configuration, now: &Configuration) -> Result<ChangeEffect, BindError> {
        match object {
            LiveObject::Switch(name) => self.follow_switch(name, was, now).map(|()| ChangeEffect::Now),
            LiveObject::Vnet { domain, vnet } => self.follow_vnet(domain, vnet, was, now),
            LiveObject::Disk { domain, disk } => self.follow_disk(domain, disk, was, now),
            LiveObject::Device { domain, device } => self.follow_device(domain, device, was, now),
        }
    }

    /// Returns the record of a change that was interrupted when vtax was killed. A damaged record stays, so that every
    /// command reports it.
    fn unfinished(&self) -> Result<Option<UnfinishedChange>, RecordError> {
        let path = self.change_file();
        let Some(text) = record::read(&path, LARGEST)? else { return Ok(None) };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| {
            let why = format!("{error}; the host may differ from the stored state; move the file away");
            RecordError::Damaged { path, why }
        })
    }

    fn record(&self, change: &UnfinishedChange) -> Result<(), BindError> {
        let written = directory::create_private(self.folder())
            .and_then(|()| FileDraft::write(self.folder(), FILE, "new", change));
        written.and_then(FileDraft::commit).map_err(BindError::file("write", &self.change_file()))
    }

    fn forget_change(&self) {
        // If it stays, the host is set up once more in the same way.
        let _ = fs::remove_file(self.change_file());
    }

    fn change_file(&self) -> PathBuf {
        self.folder().join(FILE)
    }
}
