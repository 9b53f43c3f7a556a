//! Records of migrations, next to the stored constraints: they persist across reboots.
//!
//! The source has one for each departing domain, as long as the target may own it. The target has one for each attempt,
//! by its identity: for a guest that it owns, until the source has confirmed that it knows.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use vtax_model::{domain::VirtualDisk, topology::Name};
use vtax_sys::{
    directory,
    process::{Pid, ProcessId},
};

use super::{ArrivalPhase, DiskCopy, MigrationId};
use crate::{
    bound::BoundDomain,
    error::BindError,
    locked::LockedDomains,
    store::{ARRIVALS, DEPARTURES, DomainStore, DomainStoreError, LockedStore, boot, read_json, replace, sync},
};

/// Record of a domain that is leaving this host.
#[serde_as]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepartureRecord {
    pub id: MigrationId,
    pub domain: Name,
    /// Its name at the target.
    pub new_name: Name,
    /// The target, as written by the user.
    pub target: String,
    /// True if its memory moves with it.
    pub(super) is_live: bool,
    /// The process that moves it.
    #[serde_as(as = "DisplayFromStr")]
    pub(super) mover: ProcessId,
    boot: String,
}

/// Record of a domain that is arriving at this host, or has arrived.
#[serde_as]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArrivalRecord {
    pub(super) id: MigrationId,
    /// Its name here.
    pub(crate) domain: Name,
    pub(super) phase: ArrivalPhase,
    /// True if its memory moves with it.
    pub(super) is_live: bool,
    /// Its disks that are copied here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) copies: Vec<DiskCopy>,
    /// The process acting for the source here.
    #[serde_as(as = "DisplayFromStr")]
    holder: ProcessId,
    boot: String,
}

impl DepartureRecord {
    pub(super) fn new(id: MigrationId, domain: Name, new_name: Name, target: String) -> Result<Self, BindError> {
        Ok(DepartureRecord { id, domain, new_name, target, is_live: false, mover: own_process()?, boot: boot() })
    }

    /// Returns true while the process that moves the domain is alive.
    pub fn has_mover(&self) -> bool {
        self.boot == boot() && is_alive(self.mover)
    }
}

impl ArrivalRecord {
    pub(super) fn new(id: MigrationId, domain: Name, is_live: bool) -> Result<Self, BindError> {
        let (phase, holder) = (ArrivalPhase::Prepared, own_process()?);
        Ok(ArrivalRecord { id, domain, phase, is_live, copies: Vec::new(), holder, boot: boot() })
    }

    /// Returns true if no process will end this attempt: its holder has died, or the host has rebooted.
    pub(super) fn is_abandoned(&self) -> bool {
        self.phase == ArrivalPhase::Prepared && (self.is_of_other_boot() || !is_alive(self.holder))
    }

    /// Returns the disks of the bound domain that are copied here.
    pub(super) fn copied<'a>(&'a self, bound: &'a BoundDomain) -> impl Iterator<Item = &'a VirtualDisk> {
        let disks = bound.bindings.disks.iter().map(|bound| &bound.disk);
        disks.filter(|disk| self.copies.iter().any(|copy| copy.disk == disk.name))
    }

    pub(super) fn is_of_other_boot(&self) -> bool {
        self.boot != boot()
    }
}

/// A zombie counts as dead.
fn is_alive(process: ProcessId) -> bool {
    matches!(process.wait_end(Duration::ZERO), Ok(false))
}

fn own_process() -> Result<ProcessId, BindError> {
    ProcessId::of(Pid::own()).map_err(BindError::kernel("this process"))
}

impl DomainStore {
    /// Returns the record of a domain that is leaving this host.
    pub(crate) fn departure(&self, domain: &Name) -> Result<Option<DepartureRecord>, DomainStoreError> {
        read_json(&self.departure_path(domain))
    }

    pub(crate) fn departures(&self) -> Result<Vec<DepartureRecord>, DomainStoreError> {
        self.records(DEPARTURES)
    }

    pub(super) fn arrival(&self, id: &MigrationId) -> Result<Option<ArrivalRecord>, DomainStoreError> {
        read_json(&self.arrival_path(id))
    }

    pub(crate) fn arrivals(&self) -> Result<Vec<ArrivalRecord>, DomainStoreError> {
        self.records(ARRIVALS)
    }

    /// Returns the domains leaving this host or arriving here, with their target.
    pub(crate) fn moving(&self) -> Result<Vec<(Name, String)>, DomainStoreError> {
        let leaving = self.departures()?.into_iter().map(|record| (record.domain, record.target));
        let arriving = self.arrivals()?.into_iter().filter(|record| record.phase == ArrivalPhase::Prepared);
        Ok(leaving.chain(arriving.map(|record| (record.domain, "this host".to_owned()))).collect())
    }

    fn records<T: serde::de::DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>, DomainStoreError> {
        let folder = self.folder().join(kind);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(DomainStoreError::file("read", &folder))?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
        paths.sort();
        Ok(paths.iter().map(|path| read_json(path)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn departure_path(&self, domain: &Name) -> PathBuf {
        self.folder().join(DEPARTURES).join(format!("{domain}.json"))
    }

    fn arrival_path(&self, id: &MigrationId) -> PathBuf {
        self.folder().join(ARRIVALS).join(format!("{id}.json"))
    }
}

impl LockedDomains<'_> {
    /// Refuses to change a migrating domain.
    pub(crate) fn check_settled(&self, domain: &Name) -> Result<(), BindError> {
        let moving = self.store.moving()?.into_iter().find(|(moving, _)| moving == domain);
        moving.map_or(Ok(()), |(domain, target)| Err(BindError::Migrates { domain, target }))
    }

    /// Returns true if a domain is arriving with its memory, and this host doesn't own it yet.
    pub(crate) fn is_arriving(&self, domain: &Name) -> Result<bool, BindError> {
        let is_it = |record: &ArrivalRecord| record.domain == *domain && record.phase == ArrivalPhase::Prepared;
        Ok(self.store.arrivals()?.iter().any(|record| is_it(record) && record.is_live))
    }

    /// Returns true if a domain is leaving this host.
    pub(crate) fn is_leaving(&self, domain: &Name) -> bool {
        // An unreadable record is reported by commands that change the domain.
        self.store.departure(domain).ok().flatten().is_some()
    }
}

impl LockedStore {
    pub(super) fn write_departure(&self, record: &DepartureRecord) -> Result<(), DomainStoreError> {
        self.write_record(DEPARTURES, &record.domain.to_string(), record)
    }

    pub(super) fn remove_departure(&self, domain: &Name) -> Result<(), DomainStoreError> {
        self.remove_record(self.departure_path(domain))
    }

    pub(super) fn write_arrival(&self, record: &ArrivalRecord) -> Result<(), DomainStoreError> {
        self.write_record(ARRIVALS, &record.id.to_string(), record)
    }

    pub(super) fn remove_arrival(&self, id: &MigrationId) -> Result<(), DomainStoreError> {
        self.remove_record(self.arrival_path(id))
    }

    fn write_record<T: Serialize>(&self, kind: &str, name: &str, record: &T) -> Result<(), DomainStoreError> {
        let folder = self.folder().join(kind);
        directory::make_private(&folder)
            .map_err(|error| DomainStoreError::Folder { path: folder.clone(), error: Box::new(error) })?;
        replace(&folder, &format!("{name}.json"), record)
    }

    fn remove_record(&self, path: PathBuf) -> Result<(), DomainStoreError> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(DomainStoreError::file("remove", &path))?,
        }
        sync(path.parent().expect("it is in the store"))
    }
}
