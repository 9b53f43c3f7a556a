//! Reading of journals without changing them.

use std::{fmt, path::Path};

use serde::{Deserialize, Serialize};
use vtax_sys::record::{self, RecordUse};

use crate::{
    batch::{Batch, batches},
    directory::{self, Directory},
    error::JournalError,
    line::{self, Contents, Header, LONGEST},
    record::Record,
    step::Step,
};

/// Journal at the time when it was read.
#[derive(Debug)]
pub struct Snapshot<S: Step> {
    pub id: String,
    pub state: JournalState,
    pub header: Header,
    pub records: Vec<Record<S>>,
}

/// State of a journal: used by a living process, kept, or abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalState {
    /// A living process has locked it.
    Alive,
    /// It may outlive its process until someone undoes it by name. Once that undo has begun, it is alive or abandoned
    /// like any other.
    Kept,
    /// Its owner is dead, and its changes must be undone.
    Abandoned,
}

impl fmt::Display for JournalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            JournalState::Alive => "alive",
            JournalState::Kept => "kept",
            JournalState::Abandoned => "abandoned",
        })
    }
}

impl<S: Step> Snapshot<S> {
    pub fn read(directory: &Path, id: &str) -> Result<Snapshot<S>, JournalError> {
        Snapshot::read_in(&Directory::enter(directory)?, id)
    }

    /// Returns the batches with their states.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = Batch<'_, S>> {
        batches(&self.records)
    }

    pub(crate) fn read_in(directory: &Directory, id: &str) -> Result<Snapshot<S>, JournalError> {
        let path = directory.file(id)?;
        let missing = || JournalError::Missing { id: id.to_owned(), directory: directory.path().to_owned() };
        let file = record::open(&path, RecordUse::Read)?.ok_or_else(missing)?;
        // The lock is tried before the contents are read. If the owner ends in between, everything is already written.
        let free = directory::claim(&file, &path)?;
        let bytes = record::read_open(&file, &path, LONGEST)?;
        let contents = Contents::<S>::parse(&path, &bytes)?;
        let state = match (contents.kept, free) {
            (true, _) => JournalState::Kept,
            (false, true) => JournalState::Abandoned,
            (false, false) => JournalState::Alive,
        };
        Ok(Snapshot { id: id.to_owned(), state, header: contents.header, records: contents.records })
    }
}

/// Returns the first line of a journal whose other lines may be damaged; `None` if that line can't be read either.
pub fn read_header(directory: &Path, id: &str) -> Option<Header> {
    let directory = Directory::enter(directory).ok()?;
    let path = directory.file(id).ok()?;
    line::header(&path, &record::read(&path, LONGEST).ok()??)
}

/// Names in a directory, each with its journal or the error of reading it.
pub type Scan<S> = Vec<(String, Result<Snapshot<S>, JournalError>)>;

/// Reads every journal of a directory, sorted by name. One that can't be read doesn't hide the others.
pub fn scan<S: Step>(directory: &Path) -> Result<Scan<S>, JournalError> {
    let directory = Directory::enter(directory)?;
    let ids = directory.ids()?.into_iter();
    Ok(ids.map(|id| (id.clone(), Snapshot::read_in(&directory, &id))).collect())
}
