//! What a lab's journal records beside the lab's steps.

use serde::{Deserialize, Serialize};
use vtax_journal::{Header, JournalState};
use vtax_sys::process::ProcessId;

use crate::{blueprint::Blueprint, error::LabError, world};

/// What a lab's journal records beside the lab's steps.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LabRecord {
    pub(crate) blueprint: Blueprint,
    /// The process whose namespaces a kept lab lives in, for a user without privilege.
    keeper: Option<String>,
}

impl LabRecord {
    pub(crate) const KIND: &str = "lab";

    pub(crate) fn new(blueprint: &Blueprint, keeper: Option<ProcessId>) -> LabRecord {
        LabRecord { blueprint: blueprint.clone(), keeper: keeper.as_ref().map(ProcessId::to_string) }
    }

    pub(crate) fn read(lab: &str, header: Option<&Header>) -> Result<LabRecord, LabError> {
        let unreadable = |why: String| LabError::Blueprint { lab: lab.to_owned(), why };
        let header = header.ok_or_else(|| unreadable("its journal has no header".to_owned()))?;
        LabRecord::deserialize(&header.about).map_err(|error| unreadable(error.to_string()))
    }

    /// The state of the lab. A kept lab dies with the process whose namespaces it lives in.
    pub(crate) fn state(&self, journal: JournalState) -> JournalState {
        let dead = self.keeper.as_ref().is_some_and(|keeper| !keeper.parse().is_ok_and(world::lives));
        if journal == JournalState::Kept && dead { JournalState::Abandoned } else { journal }
    }
}
