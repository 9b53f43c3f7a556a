//! Records of migrations, next to the stored constraints: they persist across reboots.
//!
//! The source has one for each departing domain, as long as the target may own it. The target has one for each attempt,
//! by its identity: for a guest that it owns, until the source has confirmed that it knows.

use std::{fs, io, num::NonZeroU8, path::PathBuf, str::FromStr, time::Duration};

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
    /// The number of channels for its memory, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) channels: Option<NonZeroU8>,
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
        Ok(ArrivalRecord { id, domain, phase, is_live, copies: Vec::new(), channels: None, holder, boot: boot() })
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

    /// Returns the domains with a record of their departure, which may be unreadable.
    pub(crate) fn leaving(&self) -> Result<Vec<Name>, DomainStoreError> {
        self.recorded(DEPARTURES)
    }

    pub(super) fn arrival(&self, id: &MigrationId) -> Result<Option<ArrivalRecord>, DomainStoreError> {
        read_json(&self.arrival_path(id))
    }

    /// Returns the records of arrivals. An unreadable one may be about any domain.
    pub(crate) fn arrivals(&self) -> Result<Vec<Result<ArrivalRecord, DomainStoreError>>, DomainStoreError> {
        let ids: Vec<MigrationId> = self.recorded(ARRIVALS)?;
        Ok(ids.iter().filter_map(|id| self.arrival(id).transpose()).collect())
    }

    /// Returns the records of migrations that cannot be read. They concern neither lists nor other domains.
    pub(crate) fn unreadable_migrations(&self) -> Result<Vec<DomainStoreError>, DomainStoreError> {
        let departures: Vec<DomainStoreError> =
            self.leaving()?.iter().filter_map(|domain| self.departure(domain).err()).collect();
        Ok(departures.into_iter().chain(self.arrivals()?.into_iter().filter_map(Result::err)).collect())
    }

    /// Returns the target of a domain that is leaving this host or arriving here. Fails if that is unknown.
    pub(crate) fn target_of(&self, domain: &Name) -> Result<Option<String>, DomainStoreError> {
        if let Some(record) = self.departure(domain)? {
            return Ok(Some(record.target));
        }
        let arrivals = self.arrivals()?.into_iter().collect::<Result<Vec<_>, _>>()?;
        let is_it = |record: &ArrivalRecord| record.domain == *domain && record.phase == ArrivalPhase::Prepared;
        Ok(arrivals.iter().any(is_it).then(|| "this host".to_owned()))
    }

    /// Returns the names of all records of a kind.
    fn recorded<T: FromStr>(&self, kind: &str) -> Result<Vec<T>, DomainStoreError> {
        let folder = self.folder().join(kind);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(DomainStoreError::file("read", &folder))?,
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let records = paths.iter().filter(|path| path.extension().is_some_and(|it| it == "json"));
        Ok(records.filter_map(|path| path.file_stem()?.to_str()?.parse().ok()).collect())
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
        let target = self.store.target_of(domain)?;
        target.map_or(Ok(()), |target| Err(BindError::Migrates { domain: domain.clone(), target }))
    }

    /// Returns true if a domain is arriving with its memory, and this host doesn't own it yet.
    pub(crate) fn is_arriving(&self, domain: &Name) -> Result<bool, BindError> {
        let is_it = |record: &ArrivalRecord| record.domain == *domain && record.phase == ArrivalPhase::Prepared;
        let arrivals = self.store.arrivals()?.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(arrivals.iter().any(|record| is_it(record) && record.is_live))
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
