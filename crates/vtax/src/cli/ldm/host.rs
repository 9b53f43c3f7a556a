//! The host whose domains a command is about: this machine.

use std::fs;

use miette::miette;
use vtax_domain::{DomainStore, EditError, LockedStore, StoredState};
use vtax_model::domain::{Configuration, DomainError};
use vtax_run::Locations;
use vtax_sys::state;

use crate::exit::{Blamed, Stop};

/// The host, and where it keeps what domains are to have.
#[derive(Debug)]
pub(super) struct LdmHost {
    store: DomainStore,
    id: String,
}

impl LdmHost {
    pub(super) fn new(places: &Locations) -> Result<LdmHost, Stop> {
        let folder = state::folder(places.state.as_deref()).ok_or_else(|| {
            Stop::infrastructure(miette!(
                code = "no-home",
                "domains have no place to be kept: the user has no home directory; name a folder (--state DIR)"
            ))
        })?;
        Ok(LdmHost { store: DomainStore::new(&folder.join("ldm")), id: machine_id() })
    }

    /// What tells it from other hosts.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn store(&self) -> &DomainStore {
        &self.store
    }

    pub(super) fn lock(&self) -> Result<LockedStore, Stop> {
        self.store.lock().or_infrastructure()
    }

    pub(super) fn read(&self) -> Result<StoredState, Stop> {
        self.store.read(&self.id).or_infrastructure()
    }

    /// Makes a change of the configuration, and keeps it.
    pub(super) fn edit(
        &self,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Configuration, Stop> {
        self.lock()?.edit(&self.id, change).map_err(|error| match error {
            EditError::Domain(error) => Stop::input(error),
            EditError::Store(error) => Stop::infrastructure(error),
        })
    }
}

/// The number of this installation (machine-id(5)); its name where there is none.
fn machine_id() -> String {
    let read = |path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname")).unwrap_or_else(|| "host".to_owned())
}
