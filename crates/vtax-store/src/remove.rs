//! Removing runs.

use std::collections::BTreeMap;

use rusqlite::params;

use crate::{RunSummary, Store, StoreError, lock::RunLock};

/// What of a run is in which table, in the order in which it may go.
const TABLES: [&str; 4] = [
    "DELETE FROM sample WHERE run = ?1",
    "DELETE FROM failure WHERE run = ?1",
    "DELETE FROM plan WHERE run = ?1",
    "DELETE FROM run WHERE id = ?1",
];

/// How many runs are removed in one transaction, each of which waits for the disk. A lock of each is open meanwhile, and a
/// process may have 1,024 open files.
const TOGETHER: usize = 256;

impl Store {
    /// Removes runs with all of their samples, and calls `removed` with the id of each once it is gone. Each of `ids` is as
    /// in [`Store::load`]; if one is of no run, none is removed.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if a run is being written. Runs before it may be gone, as `removed` has heard.
    pub fn remove(&self, ids: &[String], mut removed: impl FnMut(&str)) -> Result<(), StoreError> {
        let mut found: Vec<String> = ids.iter().map(|id| self.find(id)).collect::<Result<_, _>>()?;
        found.dedup();
        for some in found.chunks(TOGETHER) {
            self.remove_together(some)?;
            some.iter().for_each(|id| removed(id));
        }
        Ok(())
    }

    fn remove_together(&self, ids: &[String]) -> Result<(), StoreError> {
        let locks = ids.iter().map(|id| RunLock::take(&self.place, id)).collect::<Result<Vec<_>, _>>()?;
        let doing = self.place.doing("removing a run");
        let step = self.connection.unchecked_transaction().map_err(&doing)?;
        for table in TABLES {
            let mut statement = step.prepare(table).map_err(&doing)?;
            for id in ids {
                statement.execute(params![id]).map_err(&doing)?;
            }
        }
        step.commit().map_err(&doing)?;
        locks.into_iter().try_for_each(|lock| lock.retire(&self.place))
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
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.state != crate::Condition::Running) {
        let newer = kept.entry(&run.study).or_default();
        if run.samples == 0 || keep.is_some_and(|keep| *newer >= keep) {
            worthless.push(run);
        } else {
            *newer += 1;
        }
    }
    worthless
}
