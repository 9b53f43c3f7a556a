//! What has landed in a run since somebody looked at it last, for those who watch a run that another vtax measures.

use vtax_model::run::{Failure, RunHeader, Sample, SampleSource};

use crate::{Condition, Store, StoreError, from_json, samples::StoredSamples};

/// The most samples that are read at once. The others come with the next news.
const MOST: usize = 512;

/// What somebody has seen of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunSeen {
    plan: Option<String>,
    /// Where the last sample landed.
    sample: Option<i64>,
    /// Where the last failure landed.
    failure: Option<i64>,
}

/// Samples and failures stored since the last look.
#[derive(Debug, Clone, PartialEq)]
pub struct RunNews {
    /// The plan, if it is new.
    pub plan: Option<RunHeader>,
    /// The next samples, in the order in which they landed.
    pub samples: Vec<Sample>,
    /// The next samples that could not be taken.
    pub failures: Vec<Failure>,
    /// What becomes of the run.
    pub state: Condition,
    /// How long its sessions took, those that have ended.
    pub wall_seconds: f64,
}

impl RunNews {
    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.plan.is_none() && self.samples.is_empty() && self.failures.is_empty()
    }
}

impl Store {
    /// What has happened in a run since `seen`, which is brought up to date. `id` as in [`Store::load`].
    pub fn news(&self, id: &str, seen: &mut RunSeen) -> Result<RunNews, StoreError> {
        let id = &self.find(id)?;
        let doing = self.place.doing("reading what is new in a run");
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
