//! Store of measurements, written to SQLite as they are taken, so that a killed study loses at most the sample in
//! flight, and can be resumed.
//!
//! There is one database per state directory, one row per sample, and one transaction per row. In WAL mode with
//! `synchronous=FULL`, a commit is on the disk when it returns (<https://www.sqlite.org/wal.html>, "Performance
//! Considerations"). Figures are recomputed from the samples each time, so old runs benefit from improved analysis.
//! Samples are read one at a time, and are never all in memory.
//!
//! Readers ([`Store::read`]) create and change no file, so results on a read-only medium can be read.
//!
//! The writer of a run holds a lock on a file, which distinguishes a running run from a killed one.

#![forbid(unsafe_code)]

mod busy;
mod error;
mod find;
mod findings;
mod lock;
mod news;
mod remove;
mod reserve;
mod samples;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    io::{self, Write},
    path::Path,
};

use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use serde::{Serialize, de::DeserializeOwned};
use vtax_model::{
    analysis::analyse,
    result::{ResultDocument, labelled},
    run::{Failure, Run, RunHeader, RunReadings, RunState},
};

pub use error::StoreError;
use error::{Doing, FileStamp, StoreLocation};
pub use findings::FindingFilter;
use lock::RunLock;
pub use news::{RunNews, RunSeen};
pub use remove::worthless;
use samples::StoredSamples;
use schema::Access;
pub use writer::RunWriter;

/// Runs of one state directory.
#[derive(Debug)]
pub struct Store {
    place: StoreLocation,
    connection: Connection,
    /// Stamp of the database file if it is read without locks. A different stamp shows that a vtax has begun to write.
    alone: Option<FileStamp>,
}

/// Run as listed by `vtax results list`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// ID: the study's ID, the start time, and four random digits.
    pub id: String,
    /// ID of the study.
    pub study: String,
    /// Title of the study.
    pub title: String,
    /// Label chosen by the user; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Result in a few words; empty unless the run is complete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub brief: String,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// State of the run.
    pub state: Condition,
    /// Set if this was the short plan of `--quick`.
    pub quick: bool,
    /// Number of stored samples.
    pub samples: u32,
    /// Number of failed samples.
    pub failures: u32,
    /// Duration of its sessions.
    pub wall_seconds: f64,
}

impl RunSummary {
    /// Returns the label and the study's title.
    pub fn heading(&self) -> String {
        labelled(&self.label, &self.title)
    }

    /// Returns `true` if its ID or heading contains all of these words, ignoring case.
    pub fn has_words(&self, words: &str) -> bool {
        let text = format!("{} {}", self.id, self.heading()).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display, strum::EnumIter)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Condition {
    /// A live process writes it.
    Running,
    /// The process that wrote it has died. The run can be resumed.
    Killed,
    /// Stopped early, in an orderly way. The run can be resumed.
    Stopped,
    /// Every sample was taken or has failed.
    Complete,
}

impl Store {
    /// Opens the store in `dir` for writing. Directory and database are created if necessary, and findings of older
    /// runs are computed.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        let store = Store::open_at(StoreLocation::new(dir)?)?;
        reserve::hold(&store.place);
        store.compute_findings()?;
        Ok(store)
    }

    /// Opens the store in `dir` for the removal of runs, even on a full disk. Call [`Store::shrink`] at the end.
    pub fn open_to_remove(dir: &Path) -> Result<Store, StoreError> {
        let place = StoreLocation::new(dir)?;
        // Checked first: the reserve file marks a database that was emptied, and must remain in that case.
        place.has_database()?;
        reserve::release(&place);
        Store::open_at(place.clone()).inspect_err(|_| reserve::hold(&place))
    }

    /// Returns the same store with a separate connection, for another thread.
    pub fn try_clone(&self) -> Result<Store, StoreError> {
        Ok(Store { place: self.place.clone(), connection: schema::connect(&self.place)?, alone: None })
    }

    fn open_at(place: StoreLocation) -> Result<Store, StoreError> {
        let mut connection = schema::connect(&place)?;
        schema::migrate(&mut connection, &place)?;
        Ok(Store { place, connection, alone: None })
    }

    /// Opens the store in `dir` for reading, even if it cannot be written. A missing store is empty.
    pub fn read(dir: &Path) -> Result<Store, StoreError> {
        let place = StoreLocation::to_read(dir)?;
        let (access, stamp) = (Access::now(&place)?, place.stamp());
        let connection = schema::connect_to_read(&place, access)?;
        Ok(Store { place, connection, alone: stamp.filter(|_| access == Access::Alone) })
    }

    /// Reads from the store in `dir`, and again if another vtax began to write to it in the meantime.
    pub fn reading<T>(dir: &Path, read: impl Fn(&Store) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match read(&Store::read(dir)?) {
            Err(StoreError::Changed { .. }) => read(&Store::read(dir)?),
            done => done,
        }
    }

    /// Returns the readings of a run: `id` is an ID, a unique prefix of one, or `last` for the newest run.
    pub fn load(&self, id: &str) -> Result<RunReadings, StoreError> {
        self.with_run(id, |run| run.readings())
    }

    /// Passes the readings of several runs to `take`, one at a time; `take` may keep what it needs. `ids` are exact.
    /// The store is opened only once.
    pub fn each<T>(&self, ids: &[String], take: impl Fn(RunReadings) -> T) -> Result<Vec<T>, StoreError> {
        ids.iter().map(|id| self.load(id).map(&take)).collect()
    }

    /// Returns the figures of a run; `id` as in [`Store::load`].
    #[expect(clippy::redundant_closure, reason = "the function alone is for samples of one lifetime only")]
    pub fn document(&self, id: &str) -> Result<ResultDocument, StoreError> {
        self.with_run(id, |run| analyse(run))
    }

    /// Writes the result document of a run, with all samples; `id` as in [`Store::load`].
    pub fn export(&self, id: &str, out: &mut dyn Write) -> Result<io::Result<()>, StoreError> {
        self.with_run(id, |run| {
            let document = analyse(run)?.with_samples(|cell, _| run.samples.of_cell(cell));
            let written = serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from);
            run.samples.failed().map_or(Ok(written.and_then(|()| out.write_all(b"\n"))), Err)
        })
    }

    /// Writes a run as JSON, with all samples; `id` as in [`Store::load`].
    pub fn write_run(&self, id: &str, out: &mut dyn Write) -> Result<io::Result<()>, StoreError> {
        self.with_run(id, |run| {
            let written = serde_json::to_writer(&mut *out, run).map_err(io::Error::from);
            run.samples.failed().map_or(Ok(written.and_then(|()| out.flush())), Err)
        })
    }

    /// Reads a run in one transaction, so that a run that is being written is read consistently.
    fn with_run<T>(
        &self,
        id: &str,
        read: impl FnOnce(&Run<StoredSamples<'_>>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let id = self.find(id)?;
        let snapshot = self.connection.unchecked_transaction().map_err(self.place.doing("reading a run"))?;
        self.unless_changed(read_run(&snapshot, &self.place, &id).and_then(|run| read(&run)))
    }

    /// Returns the data that was read, or an error if the database has changed in the meantime.
    fn unless_changed<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        let changed = |then: &FileStamp| self.place.stamp().as_ref() != Some(then);
        match self.alone.as_ref().is_some_and(changed) {
            true => Err(StoreError::Changed { file: self.place.file() }),
            false => read,
        }
    }

    /// Stores a run's result in a few words, for the list.
    pub fn keep_brief(&self, id: &str, words: &str) -> Result<(), StoreError> {
        let update = "UPDATE run SET brief = ?2 WHERE id = ?1";
        let kept = self.connection.execute(update, [id, words]);
        kept.map(drop).map_err(self.place.doing("storing the summary of a run"))
    }

    /// Returns the plans of a study's newest complete runs. Plans that this version of vtax cannot read are skipped.
    pub fn complete_plans(&self, study: &str) -> Result<Vec<RunHeader>, StoreError> {
        let texts = self.texts(COMPLETE, &[&study], "looking for earlier runs")?;
        Ok(texts.iter().filter_map(|text| serde_json::from_slice(text.as_bytes()).ok()).collect())
    }

    /// Returns all runs, newest first.
    pub fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        let doing = self.place.doing("listing the runs");
        let mut statement = self.connection.prepare(LIST).map_err(&doing)?;
        let rows = statement.query_map([], |row| self.summary(row)).map_err(&doing)?;
        self.unless_changed(rows.map(|row| row.map_err(&doing)?).collect())
    }

    /// Finds a run. The exact ID is tried first, which avoids reading the IDs of all runs.
    fn find(&self, id: &str) -> Result<String, StoreError> {
        let doing = "looking for a run";
        let exact = self.texts("SELECT id FROM run WHERE id = ?1", &[&id], doing)?.pop();
        exact.map_or_else(|| find::find(id, self.texts(NEWEST_FIRST, &[], doing)?, &self.place), Ok)
    }

    fn texts(&self, query: &str, of: &[&dyn ToSql], what: &'static str) -> Result<Vec<String>, StoreError> {
        let doing = self.place.doing(what);
        let mut statement = self.connection.prepare(query).map_err(&doing)?;
        let rows = statement.query_map(of, |row| row.get(0)).map_err(&doing)?;
        rows.collect::<Result<_, _>>().map_err(doing)
    }

    fn summary(&self, row: &Row<'_>) -> rusqlite::Result<Result<RunSummary, StoreError>> {
        // Columns of [`LIST`], in its order: finding eleven columns by name takes longer than reading them.
        type Read = (String, String, String, String, String, String, bool, String, f64, u32, u32);
        let (id, study, title, label, brief, started, quick, state, wall_seconds, samples, failures): Read =
            row.try_into()?;
        let state = match self.condition(&id, &state) {
            Ok(state) => state,
            Err(error) => return Ok(Err(error)),
        };
        let brief = if state == Condition::Complete { brief } else { String::new() };
        Ok(Ok(RunSummary { id, study, title, label, brief, started, state, quick, samples, failures, wall_seconds }))
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
    SELECT id, study, title, label, brief, started, quick, state, wall_seconds, samples, failures FROM run
    ORDER BY rowid DESC";

const COMPLETE: &str = "
    SELECT header FROM plan JOIN run ON run.id = plan.run
    WHERE study = ?1 AND state = 'complete' ORDER BY run.rowid DESC LIMIT 50";

const NEWEST_FIRST: &str = "SELECT id FROM run ORDER BY rowid DESC";

/// Reads the run with exactly this ID.
fn read_run<'a>(
    connection: &'a Connection,
    place: &'a StoreLocation,
    id: &str,
) -> Result<Run<StoredSamples<'a>>, StoreError> {
    let doing = place.doing("reading a run");
    let run = "SELECT header, state, wall_seconds FROM run JOIN plan ON plan.run = run.id WHERE run.id = ?1";
    let (header, state, wall_seconds): (String, String, f64) =
        connection.query_row(run, [id], |row| row.try_into()).map_err(&doing)?;
    Ok(Run {
        header: from_json(&header, id, "plan")?,
        state: read_state(&state, id)?,
        wall_seconds,
        samples: StoredSamples::of(connection, place, id)?,
        failures: read_failures(connection, id, &doing)?,
    })
}

/// Returns the failures in the order in which they were stored.
fn read_failures(connection: &Connection, id: &str, doing: &Doing<'_>) -> Result<Vec<Failure>, StoreError> {
    let query = "SELECT body FROM failure WHERE run = ?1 ORDER BY landed";
    let mut statement = connection.prepare(query).map_err(doing)?;
    let bodies = statement.query_map([id], |row| row.get::<_, String>(0)).map_err(doing)?;
    bodies.map(|body| from_json(&body.map_err(doing)?, id, "failure")).collect()
}

fn from_json<T: DeserializeOwned>(text: &str, id: &str, what: &'static str) -> Result<T, StoreError> {
    serde_json::from_slice(text.as_bytes()).map_err(|source| StoreError::Unreadable { id: id.to_owned(), what, source })
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
