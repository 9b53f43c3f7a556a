//! What was measured, kept in SQLite as it lands: a killed study loses at most the sample in flight and can be resumed.
//!
//! One database a state directory, one row a sample, one transaction a row: in WAL mode with `synchronous=FULL` a
//! commit has reached the disk when it returns (<https://www.sqlite.org/wal.html>, "Performance Considerations").
//! Figures are computed from the samples anew each time, so an old run profits from a better analysis.
//!
//! The writer of a run holds a lock on a file ([`lock`]), which tells a run under way from a killed one.

mod error;
mod find;
mod lock;
mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, Transaction};
use serde::{Serialize, de::DeserializeOwned};
use vtax_model::run::{Run, RunHeader, RunState};

pub(crate) use error::StoreError;
use error::{Doing, StoreLocation};
use lock::RunLock;
pub(crate) use writer::RunWriter;

/// The runs of one state directory.
#[derive(Debug)]
pub(crate) struct Store {
    place: StoreLocation,
    connection: Connection,
}

/// A run as `vtax results list` has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunSummary {
    pub(crate) id: String,
    pub(crate) study: String,
    pub(crate) title: String,
    /// RFC 3339, UTC.
    pub(crate) started: String,
    pub(crate) state: Condition,
    /// Whether this was the short plan of `--quick`.
    pub(crate) quick: bool,
    pub(crate) samples: u32,
    pub(crate) failures: u32,
    pub(crate) wall_seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Condition {
    /// A live process writes it.
    Running,
    /// The process that wrote it has died; can be resumed.
    Killed,
    /// Ended early, in order; can be resumed.
    Stopped,
    /// Every sample was taken or has failed.
    Complete,
}

impl Store {
    pub(crate) fn open(dir: &Path) -> Result<Store, StoreError> {
        let place = StoreLocation::new(dir)?;
        let mut connection = schema::connect(&place)?;
        schema::migrate(&mut connection, &place)?;
        Ok(Store { place, connection })
    }

    /// Opens the store in `dir` to read it, also where it can't be written. A store that isn't there is empty.
    pub(crate) fn read(dir: &Path) -> Result<Store, StoreError> {
        let place = StoreLocation::to_read(dir);
        let connection = schema::connect_to_read(&place)?;
        Ok(Store { place, connection })
    }

    /// A run by its id, by the beginning of its id if no other begins so, or the newest one by `last`.
    pub(crate) fn load(&self, id: &str) -> Result<Run, StoreError> {
        let id = self.find(id)?;
        // One transaction, so that a run that is being written is read as it was at one moment.
        let doing = self.place.doing("reading a run");
        let snapshot = self.connection.unchecked_transaction().map_err(&doing)?;
        read_run(&snapshot, &id, &doing)
    }

    /// The plans of a study's newest complete runs. Plans that this version of vtax can't read are left out.
    pub(crate) fn complete_plans(&self, study: &str) -> Result<Vec<RunHeader>, StoreError> {
        let texts = self.texts(COMPLETE, &[&study], "looking for earlier runs")?;
        Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// Every run, the newest first.
    pub(crate) fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        let doing = self.place.doing("listing the runs");
        let mut statement = self.connection.prepare(LIST).map_err(&doing)?;
        let rows = statement.query_map([], |row| self.summary(row)).map_err(&doing)?;
        rows.map(|row| row.map_err(&doing)?).collect()
    }

    fn find(&self, id: &str) -> Result<String, StoreError> {
        find::find(id, self.texts(NEWEST_FIRST, &[], "looking for a run")?, &self.place)
    }

    fn texts(&self, query: &str, of: &[&dyn ToSql], what: &'static str) -> Result<Vec<String>, StoreError> {
        let doing = self.place.doing(what);
        let mut statement = self.connection.prepare(query).map_err(&doing)?;
        let rows = statement.query_map(of, |row| row.get(0)).map_err(&doing)?;
        rows.collect::<Result<_, _>>().map_err(doing)
    }

    fn summary(&self, row: &Row<'_>) -> rusqlite::Result<Result<RunSummary, StoreError>> {
        let id: String = row.get("id")?;
        let state: String = row.get("state")?;
        let state = match self.condition(&id, &state) {
            Ok(state) => state,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(RunSummary {
            id,
            study: row.get("study")?,
            title: row.get("title")?,
            started: row.get("started")?,
            state,
            quick: row.get("quick")?,
            samples: row.get("samples")?,
            failures: row.get("failures")?,
            wall_seconds: row.get("wall_seconds")?,
        }))
    }

    fn condition(&self, id: &str, state: &str) -> Result<Condition, StoreError> {
        Ok(match read_state(state, id)? {
            RunState::Complete => Condition::Complete,
            RunState::Stopped => Condition::Stopped,
            RunState::Running if RunLock::is_held(&self.place, id)? => Condition::Running,
            RunState::Running => Condition::Killed,
        })
    }
}

const LIST: &str = "
    SELECT id, study, title, started, quick, state, wall_seconds,
           (SELECT count(*) FROM sample WHERE sample.run = run.id) AS samples,
           (SELECT count(*) FROM failure WHERE failure.run = run.id) AS failures
    FROM run ORDER BY rowid DESC";

const COMPLETE: &str = "
    SELECT header FROM run WHERE study = ?1 AND state = 'complete' ORDER BY rowid DESC LIMIT 50";

const NEWEST_FIRST: &str = "SELECT id FROM run ORDER BY rowid DESC";

fn read_run(snapshot: &Transaction<'_>, id: &str, doing: &Doing<'_>) -> Result<Run, StoreError> {
    let (header, state, wall_seconds): (String, String, f64) = snapshot
        .query_row("SELECT header, state, wall_seconds FROM run WHERE id = ?1", [id], |row| row.try_into())
        .map_err(doing)?;
    Ok(Run {
        header: from_json(&header, id, "plan")?,
        state: read_state(&state, id)?,
        wall_seconds,
        samples: read_bodies(snapshot, id, doing, "sample")?,
        failures: read_bodies(snapshot, id, doing, "failure")?,
    })
}

/// The rows of `table` that belong to a run, in the order in which they landed.
fn read_bodies<T: DeserializeOwned>(
    snapshot: &Transaction<'_>,
    id: &str,
    doing: &Doing<'_>,
    table: &'static str,
) -> Result<Vec<T>, StoreError> {
    let query = format!("SELECT body FROM {table} WHERE run = ?1 ORDER BY landed");
    let mut statement = snapshot.prepare(&query).map_err(doing)?;
    let bodies = statement.query_map([id], |row| row.get::<_, String>(0)).map_err(doing)?;
    bodies.map(|body| from_json(&body.map_err(doing)?, id, table)).collect()
}

fn from_json<T: DeserializeOwned>(text: &str, id: &str, what: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Unreadable { id: id.to_owned(), what, source })
}

fn read_state(text: &str, id: &str) -> Result<RunState, StoreError> {
    from_json(&format!("{text:?}"), id, "state")
}

fn state_of(connection: &Connection, id: &str, doing: &Doing<'_>) -> Result<Option<(RunState, f64)>, StoreError> {
    let found: Option<(String, f64)> = connection
        .query_row("SELECT state, wall_seconds FROM run WHERE id = ?1", [id], |row| row.try_into())
        .optional()
        .map_err(doing)?;
    found.map(|(state, wall_seconds)| Ok((read_state(&state, id)?, wall_seconds))).transpose()
}
