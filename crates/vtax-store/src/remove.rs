//! Removal of runs.

use std::collections::BTreeMap;

use rusqlite::params;

use crate::{RunSummary, Store, StoreError, lock::RunLock, reserve};

/// Deletion from each table, in an order that their references permit.
const TABLES: [&str; 5] = [
    "DELETE FROM finding WHERE run = ?1",
    "DELETE FROM sample WHERE run = ?1",
    "DELETE FROM failure WHERE run = ?1",
    "DELETE FROM plan WHERE run = ?1",
    "DELETE FROM run WHERE id = ?1",
];

/// Maximum number of runs removed in one transaction, each of which waits for the disk. The locks of all of them are
/// open at the same time, and a process may have 1,024 open files.
const TOGETHER: usize = 256;

/// Number of samples removed in one transaction on a full disk.
const PART: i64 = 16;
const SOME_SAMPLES: &str = "DELETE FROM sample WHERE landed IN (SELECT landed FROM sample WHERE run = ?1 LIMIT ?2)";
const SOME_PAGES: &str = "PRAGMA incremental_vacuum(32)";

impl Store {
    /// Removes runs with all of their samples, and calls `removed` with the ID of each. Each of `ids` is as in
    /// [`Store::load`]; if one matches no run, none is removed.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if a run is being written. Runs before it may already be removed, as reported to
    /// `removed`.
    pub fn remove(&self, ids: &[String], mut removed: impl FnMut(&str)) -> Result<(), StoreError> {
        let mut found: Vec<String> = ids.iter().map(|id| self.find(id)).collect::<Result<_, _>>()?;
        found.dedup();
        for some in found.chunks(TOGETHER) {
            match self.remove_together(some) {
                Err(StoreError::Full { .. }) => some.iter().try_for_each(|id| self.remove_in_parts(id))?,
                done => done?,
            }
            some.iter().for_each(|id| removed(id));
        }
        Ok(())
    }

    /// Removes a run in transactions that are small enough for their log to fit on a full disk, and releases the space
    /// after each. Until it is removed, the run counts as stopped.
    pub(crate) fn remove_in_parts(&self, id: &str) -> Result<(), StoreError> {
        let lock = RunLock::take(&self.place, id)?;
        let doing = self.place.doing("removing a run");
        // Log of an earlier attempt that failed.
        self.empty_log()?;
        self.connection.execute("UPDATE run SET state = 'stopped' WHERE id = ?1", [id]).map_err(&doing)?;
        let mut part = PART;
        loop {
            match self.connection.execute(SOME_SAMPLES, params![id, part]).map_err(&doing) {
                Ok(0) => break,
                Ok(_) => {}
                Err(StoreError::Full { .. }) if part > 1 => part /= 2,
                Err(error) => return Err(error),
            }
            self.return_free_pages()?;
        }
        self.delete(&[id.to_owned()])?;
        lock.retire(&self.place)
    }

    /// Truncates the unused pages of the database, a few at a time. Without `auto_vacuum`, which stores of older
    /// versions lack, the pages remain and are reused.
    fn return_free_pages(&self) -> Result<(), StoreError> {
        let doing = self.place.doing("releasing space");
        let free = || self.connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
        let mut left = free().map_err(&doing)?;
        loop {
            self.connection.execute_batch(SOME_PAGES).map_err(&doing)?;
            self.empty_log()?;
            let now = free().map_err(&doing)?;
            if now == 0 || now >= left {
                return Ok(());
            }
            left = now;
        }
    }

    /// Writes the log's contents to the database, and truncates the log.
    pub(crate) fn empty_log(&self) -> Result<(), StoreError> {
        let emptied = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        emptied.map_err(self.place.doing("writing the log to the database"))
    }

    fn remove_together(&self, ids: &[String]) -> Result<(), StoreError> {
        let locks = ids.iter().map(|id| RunLock::take(&self.place, id)).collect::<Result<Vec<_>, _>>()?;
        self.delete(ids)?;
        locks.into_iter().try_for_each(|lock| lock.retire(&self.place))
    }

    /// Deletes runs whose locks are held.
    fn delete(&self, ids: &[String]) -> Result<(), StoreError> {
        let doing = self.place.doing("removing a run");
        let step = self.connection.unchecked_transaction().map_err(&doing)?;
        for table in TABLES {
            let mut statement = step.prepare(table).map_err(&doing)?;
            for id in ids {
                statement.execute(params![id]).map_err(&doing)?;
            }
        }
        step.commit().map_err(&doing)
    }

    /// Returns the space of removed runs to the disk, unless others currently read or write the store.
    pub fn shrink(&self) -> Result<(), StoreError> {
        let compacted = self.connection.execute_batch("VACUUM").map_err(self.place.doing("releasing space"));
        let shrunk = match compacted {
            // A compact copy would need as much space as the database.
            Err(StoreError::Full { .. }) => self.empty_log().and_then(|()| self.return_free_pages()),
            done => done,
        };
        reserve::hold(&self.place);
        match shrunk {
            Err(StoreError::Busy { .. }) => Ok(()),
            done => done,
        }
    }
}

/// Returns the runs that can be pruned: those without samples, and all but the newest `keep` of each study. `runs` must
/// be sorted, newest first. A run that is being written is never included.
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
