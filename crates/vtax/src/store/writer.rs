//! Writes runs.

use std::time::Instant;

use rusqlite::{Connection, ffi, params};
use serde::Serialize;
use vtax_model::{
    cell::{Arm, Turn},
    run::{Failure, RunHeader, RunState, Sample},
};

use super::{Store, StoreError, error::StoreLocation, lock::RunLock, read_run, schema, state_of};

/// Writes a run as it goes on. Dropped without [`RunWriter::finish`], the run counts as killed.
#[derive(Debug)]
pub(crate) struct RunWriter {
    place: StoreLocation,
    pub(super) connection: Connection,
    lock: RunLock,
    id: String,
    /// The time that earlier sessions took.
    earlier_seconds: f64,
    begun: Instant,
}

impl Store {
    /// Keeps the plan of a new run, which is running from now on.
    pub(crate) fn create_run(&self, header: &RunHeader) -> Result<RunWriter, StoreError> {
        let place = &self.place;
        let writer = RunWriter::begin(place, &header.id)?;
        let insert = "INSERT INTO run (id, started, study, title, quick, header, state, wall_seconds)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', 0.0)";
        let (study, text) = (&header.study, writer.json(header, "plan")?);
        let row = params![header.id, header.started, study.id.as_str(), study.title.raw(), header.quick, text];
        match writer.connection.execute(insert, row) {
            Err(error) if is_duplicate(&error) => Err(StoreError::Exists { id: header.id.clone() }),
            Err(error) => Err(place.doing("keeping the plan of a run")(error)),
            Ok(_) => Ok(writer),
        }
    }

    /// Goes on with a run that was stopped or killed. `id` as in [`Store::load`].
    pub(crate) fn resume(&self, id: &str) -> Result<RunWriter, StoreError> {
        let id = self.find(id)?;
        let mut writer = RunWriter::begin(&self.place, &id)?;
        let doing = self.place.doing("resuming a run");
        // Nobody else can change the state any more.
        let (state, seconds) = state_of(&writer.connection, &id, &doing)?
            .ok_or_else(|| StoreError::NotFound { id: id.clone(), similar: Vec::new() })?;
        if state == RunState::Complete {
            writer.leave_as_it_was(state)?;
            return Err(StoreError::Complete { id });
        }
        writer.earlier_seconds = seconds;
        writer.set_state(RunState::Running, 0.0)?;
        Ok(writer)
    }

    /// Goes on with a run, also a complete one, until it has so many rounds. Plan and state are stored together.
    pub(crate) fn extend(&self, id: &str, rounds: u32) -> Result<RunWriter, StoreError> {
        let id = self.find(id)?;
        let mut writer = RunWriter::begin(&self.place, &id)?;
        let doing = self.place.doing("extending a run");
        let step = writer.connection.transaction().map_err(&doing)?;
        // Nobody else can change the plan any more.
        let run = read_run(&step, &id, &doing)?;
        let header = match run.extended(rounds) {
            Ok(header) => header,
            Err(error) => {
                drop(step);
                writer.leave_as_it_was(run.state)?;
                return Err(error.into());
            }
        };
        let text = json(&header, &id, "plan")?;
        let update = "UPDATE run SET header = ?2, state = 'running' WHERE id = ?1";
        step.execute(update, params![id, text]).map_err(&doing)?;
        step.commit().map_err(&doing)?;
        writer.earlier_seconds = run.wall_seconds;
        Ok(writer)
    }
}

impl RunWriter {
    /// A complete run has no lock file.
    fn leave_as_it_was(self, state: RunState) -> Result<(), StoreError> {
        if state == RunState::Complete { self.lock.retire(&self.place) } else { Ok(()) }
    }

    pub(crate) fn replan(&mut self, header: &RunHeader) -> Result<(), StoreError> {
        let update = "UPDATE run SET header = ?2 WHERE id = ?1";
        let updated = self.connection.execute(update, params![self.id, self.json(header, "plan")?]);
        updated.map(drop).map_err(self.place.doing("keeping the plan of a run"))
    }

    fn begin(place: &StoreLocation, id: &str) -> Result<RunWriter, StoreError> {
        let (place, lock, connection) = (place.clone(), RunLock::take(place, id)?, schema::connect(place)?);
        Ok(RunWriter { place, connection, lock, id: id.to_owned(), earlier_seconds: 0.0, begun: Instant::now() })
    }

    /// Keeps samples that landed together: they are on the disk when this returns, or none of them is.
    pub(crate) fn samples(&mut self, samples: &[Sample]) -> Result<(), StoreError> {
        let row = |sample: &Sample| Ok((sample.turn(), self.json(sample, "sample")?));
        let rows = samples.iter().map(row).collect::<Result<Vec<_>, StoreError>>()?;
        self.insert("INSERT INTO sample (run, cell, arm, round, body) VALUES (?1, ?2, ?3, ?4, ?5)", &rows)
    }

    /// Keeps that a sample could not be taken.
    pub(crate) fn failure(&mut self, failure: &Failure) -> Result<(), StoreError> {
        let row = (failure.turn(), self.json(failure, "failure")?);
        self.insert("INSERT INTO failure (run, cell, arm, round, body) VALUES (?1, ?2, ?3, ?4, ?5)", &[row])
    }

    /// Ends this session, which took `wall_seconds`; those of earlier ones are added.
    pub(crate) fn finish(self, state: RunState, wall_seconds: f64) -> Result<(), StoreError> {
        self.set_state(state, wall_seconds)?;
        match state {
            RunState::Complete => self.lock.retire(&self.place),
            RunState::Running | RunState::Stopped => Ok(()),
        }
    }

    /// Inserts rows in place of earlier failures, with the time spent in the same transaction: vtax may be killed next.
    fn insert(&mut self, insert: &str, rows: &[((u32, Turn), String)]) -> Result<(), StoreError> {
        let seconds = self.earlier_seconds + self.begun.elapsed().as_secs_f64();
        let doing = self.place.doing("keeping a sample");
        let step = self.connection.transaction().map_err(&doing)?;
        for ((round, Turn { cell, arm }), body) in rows {
            let forget = "DELETE FROM failure WHERE run = ?1 AND cell = ?2 AND arm = ?3 AND round = ?4";
            step.execute(forget, params![self.id, *cell as i64, arm_name(*arm), round]).map_err(&doing)?;
            let inserted = step.execute(insert, params![self.id, *cell as i64, arm_name(*arm), round, body]);
            inserted.map_err(|error| match is_duplicate(&error) {
                true => StoreError::Twice { id: self.id.clone(), cell: *cell, arm: *arm, round: *round },
                false => doing(error),
            })?;
        }
        let update = "UPDATE run SET wall_seconds = ?2 WHERE id = ?1";
        step.execute(update, params![self.id, seconds]).map_err(&doing)?;
        step.commit().map_err(&doing)
    }

    fn set_state(&self, state: RunState, wall_seconds: f64) -> Result<(), StoreError> {
        let update = "UPDATE run SET state = ?2, wall_seconds = ?3 WHERE id = ?1";
        let row = params![self.id, state.to_string(), self.earlier_seconds + wall_seconds];
        let updated = self.connection.execute(update, row);
        updated.map(drop).map_err(self.place.doing("keeping the state of a run"))
    }

    fn json(&self, data: &impl Serialize, what: &'static str) -> Result<String, StoreError> {
        json(data, &self.id, what)
    }
}

fn json(data: &impl Serialize, id: &str, what: &'static str) -> Result<String, StoreError> {
    serde_json::to_string(data).map_err(|source| StoreError::Unwritable { id: id.to_owned(), what, source })
}

fn arm_name(arm: Arm) -> &'static str {
    match arm {
        Arm::A => "A",
        Arm::APrime => "A'",
    }
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    let unique = [ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_CONSTRAINT_PRIMARYKEY];
    error.sqlite_extended_error_code().is_some_and(|code| unique.contains(&code))
}
