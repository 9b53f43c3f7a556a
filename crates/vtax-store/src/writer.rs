//! Writer of runs.

use std::time::Instant;

use rusqlite::{Connection, Transaction, ffi, params};
use serde::Serialize;
use vtax_model::{
    cell::{Arm, Turn},
    run::{Failure, RunHeader, RunState, Sample, SampleTimes},
};

use crate::{Store, StoreError, error::StoreLocation, findings, lock::RunLock, read_run, schema, state_of};

/// Writer of a run in progress. If it is dropped without [`RunWriter::finish`], the run counts as killed.
#[derive(Debug)]
pub struct RunWriter {
    place: StoreLocation,
    pub(crate) connection: Connection,
    lock: RunLock,
    id: String,
    /// Duration of earlier sessions.
    earlier_seconds: f64,
    begun: Instant,
}

impl Store {
    /// Stores the plan of a new run, which is then running.
    pub fn create_run(&self, header: &RunHeader) -> Result<RunWriter, StoreError> {
        let place = &self.place;
        let mut writer = RunWriter::begin(place, &header.id)?;
        let text = writer.json(header, "plan")?;
        match insert_run(&mut writer.connection, header, &text) {
            Err(error) if is_duplicate(&error) => Err(StoreError::Exists { id: header.id.clone() }),
            Err(error) => Err(place.doing("keeping the plan of a run")(error)),
            Ok(()) => Ok(writer),
        }
    }

    /// Resumes a run that was stopped or killed; `id` as in [`Store::load`].
    pub fn resume(&self, id: &str) -> Result<RunWriter, StoreError> {
        let id = self.find(id)?;
        let mut writer = RunWriter::begin(&self.place, &id)?;
        let doing = self.place.doing("resuming a run");
        // From here on, no other process can change the state.
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

    /// Extends a run, even a complete one, to this number of rounds. Plan and state are stored together.
    pub fn extend(&self, id: &str, rounds: u32) -> Result<RunWriter, StoreError> {
        let id = self.find(id)?;
        let mut writer = RunWriter::begin(&self.place, &id)?;
        let doing = self.place.doing("extending a run");
        let step = writer.connection.transaction().map_err(&doing)?;
        // From here on, no other process can change the plan.
        let run = read_run(&step, &self.place, &id)?.readings()?;
        let header = match run.extended(rounds) {
            Ok(header) => header,
            Err(error) => {
                drop(step);
                writer.leave_as_it_was(run.state)?;
                return Err(error.into());
            }
        };
        let text = json(&header, &id, "plan")?;
        step.execute(NEW_PLAN, params![id, text]).map_err(&doing)?;
        step.execute("UPDATE run SET state = 'running' WHERE id = ?1", [&id]).map_err(&doing)?;
        findings::forget(&step, &self.place, &id)?;
        step.commit().map_err(&doing)?;
        writer.earlier_seconds = run.wall_seconds;
        Ok(writer)
    }
}

impl RunWriter {
    /// Releases the run unchanged. A complete run has no lock file.
    fn leave_as_it_was(self, state: RunState) -> Result<(), StoreError> {
        if state == RunState::Complete { self.lock.retire(&self.place) } else { Ok(()) }
    }

    /// Replaces the plan of the run, once its first rounds have shown how many are needed.
    pub fn replan(&mut self, header: &RunHeader) -> Result<(), StoreError> {
        let updated = self.connection.execute(NEW_PLAN, params![self.id, self.json(header, "plan")?]);
        updated.map(drop).map_err(self.place.doing("keeping the plan of a run"))
    }

    fn begin(place: &StoreLocation, id: &str) -> Result<RunWriter, StoreError> {
        let (place, lock, connection) = (place.clone(), RunLock::take(place, id)?, schema::connect(place)?);
        Ok(RunWriter { place, connection, lock, id: id.to_owned(), earlier_seconds: 0.0, begun: Instant::now() })
    }

    /// Stores samples that were taken together. When this returns, either all of them are on the disk, or none.
    pub fn samples(&mut self, samples: &[Sample]) -> Result<(), StoreError> {
        let row = |sample: &Sample| {
            let mut sample = sample.clone();
            let SampleTimes { rtt, from_send } = sample.figures.take_times();
            let [rtt, from_send] = [rtt, from_send].map(|times| times.map(|times| times.to_bytes()));
            Ok(NewRow { turn: sample.turn(), body: self.json(&sample, "sample")?, rtt, from_send })
        };
        let rows = samples.iter().map(row).collect::<Result<Vec<_>, StoreError>>()?;
        self.insert(&rows, |step, id, NewRow { turn: (round, Turn { cell, arm }), body, rtt, from_send }| {
            let insert = "INSERT INTO sample (run, cell, arm, round, body, rtt, rtt_from_send)
                          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            step.execute(insert, params![id, *cell as i64, arm_name(*arm), round, body, rtt, from_send])
        })
    }

    /// Stores a failed sample.
    pub fn failure(&mut self, failure: &Failure) -> Result<(), StoreError> {
        let row = NewRow { turn: failure.turn(), body: self.json(failure, "failure")?, rtt: None, from_send: None };
        self.insert(&[row], |step, id, NewRow { turn: (round, Turn { cell, arm }), body, .. }| {
            let insert = "INSERT INTO failure (run, cell, arm, round, body) VALUES (?1, ?2, ?3, ?4, ?5)";
            step.execute(insert, params![id, *cell as i64, arm_name(*arm), round, body])
        })
    }

    /// Ends this session, which took `wall_seconds` in addition to earlier ones. The findings of a complete run are
    /// stored in the same transaction.
    pub fn finish(self, state: RunState, wall_seconds: f64) -> Result<(), StoreError> {
        match state {
            RunState::Complete => {
                // No one else writes this run, so its samples are read before the database is locked.
                let found = findings::computed(&self.connection, &self.place, &self.id);
                let doing = self.place.doing("keeping the findings of a run");
                let step = self.connection.unchecked_transaction().map_err(&doing)?;
                self.set_state(state, wall_seconds)?;
                findings::replace(&step, &self.place, &self.id, &found)?;
                step.commit().map_err(&doing)?;
                self.lock.retire(&self.place)
            }
            RunState::Running | RunState::Stopped => self.set_state(state, wall_seconds),
        }
    }

    /// Inserts rows, replacing earlier failures. The time spent is stored in the same transaction, because vtax may be
    /// killed next.
    fn insert(
        &mut self,
        rows: &[NewRow],
        insert: impl Fn(&Transaction<'_>, &str, &NewRow) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        let seconds = self.earlier_seconds + self.begun.elapsed().as_secs_f64();
        let doing = self.place.doing("keeping a sample");
        let step = self.connection.transaction().map_err(&doing)?;
        for row in rows {
            let (round, Turn { cell, arm }) = row.turn;
            let forget = "DELETE FROM failure WHERE run = ?1 AND cell = ?2 AND arm = ?3 AND round = ?4";
            step.execute(forget, params![self.id, cell as i64, arm_name(arm), round]).map_err(&doing)?;
            insert(&step, &self.id, row).map_err(|error| match is_duplicate(&error) {
                true => StoreError::Twice { id: self.id.clone(), cell, arm, round },
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

/// Row of a sample or of a failure.
struct NewRow {
    turn: (u32, Turn),
    body: String,
    rtt: Option<Vec<u8>>,
    from_send: Option<Vec<u8>>,
}

const NEW_PLAN: &str = "UPDATE plan SET header = ?2 WHERE run = ?1";

fn insert_run(connection: &mut Connection, header: &RunHeader, text: &str) -> rusqlite::Result<()> {
    let step = connection.transaction()?;
    let run = "INSERT INTO run (id, started, study, title, label, quick, state, wall_seconds)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', 0.0)";
    let RunHeader { id, started, study, label, quick, .. } = header;
    step.execute(run, params![id, started, study.id.as_str(), study.title.raw(), label.raw(), quick])?;
    step.execute("INSERT INTO plan (run, header) VALUES (?1, ?2)", params![header.id, text])?;
    step.commit()
}

pub(crate) fn json(data: &impl Serialize, id: &str, what: &'static str) -> Result<String, StoreError> {
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
