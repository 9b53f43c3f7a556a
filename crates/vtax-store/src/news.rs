//! Samples stored since the last check, for watchers of a run that another vtax measures.

use vtax_model::run::{Failure, RunHeader, Sample, SampleSource};

use crate::{Condition, Store, StoreError, from_json, samples::StoredSamples};

/// Maximum number of samples read in one check. The others follow with the next one.
const MOST: usize = 512;

/// Position up to which a watcher has read a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunSeen {
    plan: Option<String>,
    /// Position of the last sample.
    sample: Option<i64>,
    /// Position of the last failure.
    failure: Option<i64>,
}

/// Samples and failures stored since the last check.
#[derive(Debug, Clone, PartialEq)]
pub struct RunNews {
    /// Plan, if it has changed.
    pub plan: Option<RunHeader>,
    /// Next samples, in the order in which they were stored.
    pub samples: Vec<Sample>,
    /// Next failed samples.
    pub failures: Vec<Failure>,
    /// State of the run.
    pub state: Condition,
    /// Duration of the sessions that have ended.
    pub wall_seconds: f64,
}

impl RunNews {
    /// Returns `true` if nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.plan.is_none() && self.samples.is_empty() && self.failures.is_empty()
    }
}

impl Store {
    /// Returns the events of a run since `seen`, which is updated; `id` as in [`Store::load`].
    pub fn news(&self, id: &str, seen: &mut RunSeen) -> Result<RunNews, StoreError> {
        let id = &self.find(id)?;
        let doing = self.place.doing("reading new samples of a run");
        let snapshot = self.connection.unchecked_transaction().map_err(&doing)?;
        let query = "SELECT header, state, wall_seconds FROM run JOIN plan ON plan.run = run.id WHERE run.id = ?1";
        let (text, state, wall_seconds): (String, String, f64) =
            snapshot.query_row(query, [id], |row| row.try_into()).map_err(&doing)?;
        let plan = (seen.plan.as_ref() != Some(&text)).then(|| from_json(&text, id, "plan")).transpose()?;
        let stored = StoredSamples::after(&snapshot, &self.place, id, seen.sample.unwrap_or(i64::MIN), MOST)?;
        let mut samples = Vec::new();
        stored.samples(&mut |sample| samples.push(sample.clone()))?;
        let (failed, failures) = {
            let query = "SELECT landed, body FROM failure WHERE run = ?1 AND landed > ?2 ORDER BY landed";
            let mut statement = snapshot.prepare(query).map_err(&doing)?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
            let rows = statement.query_map((id, seen.failure.unwrap_or(i64::MIN)), row).map_err(&doing)?;
            let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().map_err(&doing)?;
            let failures = rows.iter().map(|(_, body)| from_json(body, id, "failure")).collect::<Result<_, _>>()?;
            (rows.last().map(|(landed, _)| *landed), failures)
        };
        let news = RunNews { plan, samples, failures, state: self.condition(id, &state)?, wall_seconds };
        let news = self.unless_changed(Ok(news))?;
        *seen = RunSeen {
            plan: Some(text),
            sample: stored.last_landed().or(seen.sample),
            failure: failed.or(seen.failure),
        };
        Ok(news)
    }
}
