//! Stored state of the domains: the current configuration, and those saved under a name. It persists across reboots.
//!
//! Each file is only ever replaced as a whole, after the new one is on the disk: a power failure leaves the old or the
//! new one. A lock lets one process at a time change them; readers need none.

mod config_name;
mod error;
mod reconfiguration;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    ops::Deref,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vtax_model::domain::{Configuration, DomainError};
use vtax_sys::{SysError, directory, lock, record};

use crate::draft::{self, FileDraft};

pub(crate) use self::reconfiguration::boot;
pub use self::{
    config_name::{BadConfigName, ConfigName},
    error::{DomainStoreError, EditError},
    reconfiguration::{DelayedReconfiguration, PrimaryChange},
};

const STATE: &str = "state.json";
const SAVED: &str = "saved";
/// Directories of the records of migrations.
pub(crate) const DEPARTURES: &str = "departures";
pub(crate) const ARRIVALS: &str = "arrivals";
const LOCK: &str = ".lock";
const FORMAT: u32 = 1;
/// Maximum length of a file: 512 domains with 16 vnets each take about 4 MB.
pub(crate) const LONGEST: u64 = 32 << 20;

/// Directory of the stored state.
#[derive(Debug, Clone)]
pub struct DomainStore {
    folder: PathBuf,
}

/// Store while this process alone may change it.
#[derive(Debug)]
pub struct LockedStore {
    store: DomainStore,
    _lock: File,
}

/// Current and pending configuration, as saved in `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredState {
    format: u32,
    /// Current configuration.
    pub configuration: Configuration,
    /// Saved configuration that was the last to be saved or set; `factory-default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<ConfigName>,
    /// Configuration from the next boot, if `primary` is in a delayed reconfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<DelayedReconfiguration>,
}

impl StoredState {
    fn new(host: &str) -> StoredState {
        StoredState { format: FORMAT, configuration: Configuration::new(host), current: None, pending: None }
    }
}

impl DomainStore {
    /// Returns the store in this directory, which need not exist.
    pub fn new(folder: &Path) -> DomainStore {
        DomainStore { folder: folder.to_owned() }
    }

    /// Returns the directory of the store, which need not exist yet.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the time of the last change. None if nothing is stored yet.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.folder.join(STATE)).and_then(|found| found.modified()).ok()
    }

    /// Returns the stored state. `host` identifies this host, for a new store.
    pub fn read(&self, host: &str) -> Result<StoredState, DomainStoreError> {
        for folder in [Some(self.folder.as_path()), self.folder.parent()].into_iter().flatten() {
            directory::check_readable(folder).map_err(|error| self.unsafe_folder(error))?;
        }
        let path = self.folder.join(STATE);
        let state = read_json(&path)?.unwrap_or_else(|| StoredState::new(host));
        match state.format {
            FORMAT => Ok(state.at_boot(&reconfiguration::boot())),
            format => Err(DomainStoreError::Format { path, format }),
        }
    }

    fn unsafe_folder(&self, error: SysError) -> DomainStoreError {
        DomainStoreError::Folder { path: self.folder.clone(), error: Box::new(error) }
    }

    /// Waits until no other process changes the store.
    pub fn lock(&self) -> Result<LockedStore, DomainStoreError> {
        directory::make_private(&self.folder).map_err(|error| self.unsafe_folder(error))?;
        let path = self.folder.join(LOCK);
        let file = record::open_lock(&path)?;
        lock::wait(&file, &path).map_err(DomainStoreError::file("lock", &path))?;
        let folders = [SAVED, DEPARTURES, ARRIVALS].map(|name| self.folder.join(name));
        folders.iter().chain([&self.folder]).for_each(|folder| draft::remove_strays(folder));
        Ok(LockedStore { store: self.clone(), _lock: file })
    }

    /// Returns the names of the saved configurations.
    pub fn saved(&self) -> Result<Vec<ConfigName>, DomainStoreError> {
        let folder = self.folder.join(SAVED);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(DomainStoreError::file("read", &folder))?,
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
        let mut names: Vec<ConfigName> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    fn saved_path(&self, name: &ConfigName) -> PathBuf {
        self.folder.join(SAVED).join(format!("{name}.json"))
    }
}

impl Deref for LockedStore {
    type Target = DomainStore;

    fn deref(&self) -> &DomainStore {
        &self.store
    }
}

impl LockedStore {
    /// Reads the current and pending configuration from the disk.
    pub fn read(&self, host: &str) -> Result<StoredState, DomainStoreError> {
        self.store.read(host)
    }

    /// Makes a change, which is saved when this returns. If the change is refused, nothing changes.
    pub fn edit(
        &self,
        host: &str,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<StoredState, EditError> {
        let mut state = self.read(host)?;
        state.change(change)?;
        self.write(&state)?;
        Ok(state)
    }

    /// Saves this state.
    pub fn write(&self, state: &StoredState) -> Result<(), DomainStoreError> {
        self.draft("new", state)?.commit()
    }

    /// Writes the state that is saved when the draft is committed, which takes no further space.
    pub(crate) fn draft(&self, purpose: &str, state: &StoredState) -> Result<StateDraft, DomainStoreError> {
        draft_of(&self.store.folder, STATE, purpose, state)
    }

    /// Saves the current configuration under a new name.
    pub fn save(&self, host: &str, name: &ConfigName) -> Result<(), DomainStoreError> {
        if name.is_factory_default() {
            return Err(DomainStoreError::FactoryDefault);
        }
        if self.store.saved_path(name).exists() {
            return Err(DomainStoreError::SavedExists { name: name.clone() });
        }
        let mut state = self.read(host)?;
        let folder = self.store.folder.join(SAVED);
        directory::make_private(&folder)
            .map_err(|error| DomainStoreError::Folder { path: folder.clone(), error: Box::new(error) })?;
        replace(&folder, &format!("{name}.json"), &state.configuration)?;
        state.current = Some(name.clone());
        self.write(&state)
    }

    /// Reads a saved configuration; that of a new host for `factory-default`.
    pub fn read_saved(&self, host: &str, name: &ConfigName) -> Result<Configuration, DomainStoreError> {
        if name.is_factory_default() {
            return Ok(Configuration::new(host));
        }
        let found = read_json(&self.store.saved_path(name))?;
        found.ok_or_else(|| self.no_saved(name))
    }

    /// Removes a saved configuration.
    pub fn remove_saved(&self, host: &str, name: &ConfigName) -> Result<(), DomainStoreError> {
        // One of this name that an earlier vtax has saved can be removed.
        if name.is_factory_default() && !self.store.saved_path(name).exists() {
            return Err(DomainStoreError::FactoryDefault);
        }
        let mut state = self.read(host)?;
        let path = self.store.saved_path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.no_saved(name)),
            removed => removed.map_err(DomainStoreError::file("remove", &path))?,
        }
        sync(&self.store.folder.join(SAVED))?;
        if state.current.as_ref() == Some(name) {
            state.current = None;
            self.write(&state)?;
        }
        Ok(())
    }

    fn no_saved(&self, name: &ConfigName) -> DomainStoreError {
        let known = self.store.saved().unwrap_or_default();
        DomainStoreError::NoSaved { name: name.clone(), known: known.iter().map(ConfigName::to_string).collect() }
    }
}

/// Returns None if there is no such file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DomainStoreError> {
    let Some(text) = record::read(path, LONGEST)? else { return Ok(None) };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| DomainStoreError::Damaged { path: path.to_owned(), why: error.to_string() })
}

/// File of the store that is written, but not yet in its place.
#[derive(Debug)]
#[must_use = "the stored state is unchanged until the draft is committed"]
pub(crate) struct StateDraft {
    draft: FileDraft,
    path: PathBuf,
}

impl StateDraft {
    pub(crate) fn commit(self) -> Result<(), DomainStoreError> {
        self.draft.commit().map_err(DomainStoreError::file("write", &self.path))
    }
}

fn draft_of<T: Serialize>(
    folder: &Path,
    name: &str,
    purpose: &str,
    content: &T,
) -> Result<StateDraft, DomainStoreError> {
    let path = folder.join(name);
    let draft = FileDraft::write(folder, name, purpose, content).map_err(DomainStoreError::file("write", &path))?;
    Ok(StateDraft { draft, path })
}

pub(crate) fn replace<T: Serialize>(folder: &Path, name: &str, content: &T) -> Result<(), DomainStoreError> {
    draft_of(folder, name, "new", content)?.commit()
}

/// Makes the names in a directory survive a power failure.
pub(crate) fn sync(folder: &Path) -> Result<(), DomainStoreError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(DomainStoreError::file("sync", folder))
}
