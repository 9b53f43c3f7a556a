//! Removing runs.

use rusqlite::params;

use crate::{RunSummary, Store, StoreError, lock::RunLock};

/// What of a run is in which table, in the order in which it may go.
const TABLES: [&str; 4] = [
    "DELETE FROM sample WHERE run = ?1",
    "DELETE FROM failure WHERE run = ?1",
    "DELETE FROM plan WHERE run = ?1",
    "DELETE FROM run WHERE id = ?1",
];

impl Store {
    /// Removes a run with all of its samples, and returns its id. Refuses a run that is being written. `id` as in
    /// [`Store::load`].
    pub fn remove(&self, id: &str) -> Result<String, StoreError> {
        let id = self.find(id)?;
        let lock = RunLock::take(&self.place, &id)?;
        let doing = self.place.doing("removing a run");
        let step = self.connection.unchecked_transaction().map_err(&doing)?;
        for table in TABLES {
            step.execute(table, params![id]).map_err(&doing)?;
        }
        step.commit().map_err(&doing)?;
        lock.retire(&self.place)?;
        Ok(id)
    }

    /// Gives the space of removed runs back to the disk. While others read or write the store, that is left for later.
    pub fn shrink(&self) -> Result<(), StoreError> {
        match self.connection.execute_batch("VACUUM").map_err(self.place.doing("giving space back")) {
            Err(StoreError::Busy { .. }) => Ok(()),
            done => done,
        }
    }
}

/// The runs that are not worth keeping: those without a sample, and all but the newest `keep` of each study. `runs` has
/// the newest first. A run that is being written is never among them.
pub fn worthless(runs: &[RunSummary], keep: Option<usize>) -> Vec<&RunSummary> {
    let mut worthless = Vec::new();
    let mut kept: Vec<&str> = Vec::new();
    for run in runs.iter().filter(|run| run.state != crate::Condition::Running) {
        let newer = kept.iter().filter(|study| **study == run.study).count();
        if run.samples == 0 || keep.is_some_and(|keep| newer >= keep) {
            worthless.push(run);
        } else {
            kept.push(&run.study);
        }
    }
    worthless
}
