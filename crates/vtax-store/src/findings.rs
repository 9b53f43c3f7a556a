//! Findings of complete runs, searched without analysing the runs again.

use rusqlite::{Connection, ToSql, params, params_from_iter};
use vtax_model::{
    analysis::analyse,
    evidence::{ANALYSIS_VERSION, EvidenceFinding, findings},
    metric::Metric,
    run::RunState,
    study::Row,
    workload::TestKind,
};

use crate::{Store, StoreError, error::StoreLocation, read_run, writer::json};

/// Maximum number of runs whose findings are computed when a store is opened, because a measurement waits for it. The
/// others follow the next time.
pub(crate) const AT_ONCE: u32 = 500;

/// Filter of findings. All conditions that are set must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingFilter {
    /// I/O method, including all of its devices, or another row.
    pub method: Option<Row>,
    /// Metric of the value.
    pub metric: Option<Metric>,
    pub test: Option<TestKind>,
    /// Host name of the machine.
    pub machine: Option<String>,
    /// Earliest start of the run (RFC 3339, UTC).
    pub since: Option<String>,
    /// Maximum number of findings, the newest ones.
    pub limit: u32,
}

impl Default for FindingFilter {
    fn default() -> FindingFilter {
        FindingFilter { method: None, metric: None, test: None, machine: None, since: None, limit: u32::MAX }
    }
}

impl FindingFilter {
    /// Returns the query and its values.
    pub(crate) fn query(&self) -> (String, Vec<String>) {
        let row = self.method.filter(|row| !matches!(row, Row::Method(_)));
        let conditions = [
            ("method = ?", self.method.map(EvidenceFinding::method_of)),
            ("row = ?", row.map(|row| row.to_string())),
            ("metric = ?", self.metric.map(|metric| metric.name().to_owned())),
            ("test = ?", self.test.map(test)),
            ("machine = ?", self.machine.clone()),
            ("started >= ?", self.since.clone()),
        ];
        let set: Vec<(&str, String)> =
            conditions.into_iter().filter_map(|(condition, value)| Some((condition, value?))).collect();
        let (conditions, values): (Vec<&str>, Vec<String>) = set.into_iter().unzip();
        let only = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
        // Same order as the indices; the findings of a run are stored in reverse.
        let query = format!("SELECT body FROM finding {only} ORDER BY started DESC, nth DESC LIMIT {}", self.limit);
        (query, values)
    }
}

impl Store {
    /// Returns the findings that a filter selects, newest run first. Findings of another version of vtax that this one
    /// cannot read are omitted.
    pub fn findings(&self, filter: &FindingFilter) -> Result<Vec<EvidenceFinding>, StoreError> {
        let (query, values) = filter.query();
        let doing = self.place.doing("searching for findings");
        let mut statement = self.connection.prepare(&query).map_err(&doing)?;
        let bodies = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(0)).map_err(&doing)?;
        let read = |body: rusqlite::Result<String>| match body {
            Ok(body) => serde_json::from_slice(body.as_bytes()).ok().map(Ok),
            Err(error) => Some(Err(doing(error))),
        };
        self.unless_changed(bodies.filter_map(read).collect())
    }

    /// Returns the host names of all machines that have findings, sorted.
    pub fn machines_with_findings(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT DISTINCT machine FROM finding ORDER BY machine", &[], "searching for findings")
    }

    /// Returns the number of complete runs whose findings will be computed when vtax next writes to the store.
    pub fn runs_without_findings(&self) -> Result<usize, StoreError> {
        Ok(self.outdated(u32::MAX)?.len())
    }

    /// Computes the findings of complete runs that have none by this version of the analysis, newest run first.
    pub(crate) fn compute_findings(&self) -> Result<(), StoreError> {
        let doing = self.place.doing("storing the findings of a run");
        for id in self.outdated(AT_ONCE)? {
            let found = computed(&self.connection, &self.place, &id);
            let step = self.connection.unchecked_transaction().map_err(&doing)?;
            replace_if_complete(&step, &self.place, &id, &found)?;
            step.commit().map_err(&doing)?;
        }
        Ok(())
    }

    fn outdated(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        let query = "SELECT id FROM run WHERE state = 'complete' AND analysis < ?1 ORDER BY rowid DESC LIMIT ?2";
        let values: [&dyn ToSql; 2] = [&ANALYSIS_VERSION, &limit];
        self.texts(query, &values, "looking for runs without findings")
    }
}

/// Returns the findings of a run that is complete or about to be. A run that this version of vtax cannot read has none,
/// and doesn't prevent a measurement.
pub(crate) fn computed(connection: &Connection, place: &StoreLocation, id: &str) -> Vec<EvidenceFinding> {
    let document = read_run(connection, place, id).and_then(|mut run| {
        run.state = RunState::Complete;
        analyse(&run)
    });
    document.map(|document| findings(&document)).unwrap_or_default()
}

/// Stores the findings of a run, replacing earlier ones.
pub(crate) fn replace(
    connection: &Connection,
    place: &StoreLocation,
    id: &str,
    found: &[EvidenceFinding],
) -> Result<(), StoreError> {
    let doing = place.doing("storing the findings of a run");
    forget(connection, place, id)?;
    let mut statement = connection.prepare(INSERT).map_err(&doing)?;
    for finding in found.iter().rev() {
        let (row, kind) = (finding.cell.row, finding.cell.kind());
        let (method, machine) = (EvidenceFinding::method_of(row), finding.setting.machine.raw());
        let body = json(finding, id, "finding")?;
        let values =
            params![id, finding.started, method, row.to_string(), finding.metric.name(), test(kind), machine, body];
        statement.execute(values).map_err(&doing)?;
    }
    let update = "UPDATE run SET analysis = ?2 WHERE id = ?1";
    connection.execute(update, params![id, ANALYSIS_VERSION]).map(drop).map_err(doing)
}

/// Does the same as [`replace`], unless another vtax has removed or extended the run.
fn replace_if_complete(
    connection: &Connection,
    place: &StoreLocation,
    id: &str,
    found: &[EvidenceFinding],
) -> Result<(), StoreError> {
    let doing = place.doing("storing the findings of a run");
    // This changes nothing, but takes the lock of writers.
    let complete = "UPDATE run SET analysis = analysis WHERE id = ?1 AND state = 'complete'";
    match connection.execute(complete, [id]).map_err(doing)? {
        0 => Ok(()),
        _ => replace(connection, place, id, found),
    }
}

/// Removes the findings of a run.
pub(crate) fn forget(connection: &Connection, place: &StoreLocation, id: &str) -> Result<(), StoreError> {
    let doing = place.doing("removing the findings of a run");
    connection.execute("DELETE FROM finding WHERE run = ?1", [id]).map_err(&doing)?;
    connection.execute("UPDATE run SET analysis = 0 WHERE id = ?1", [id]).map(drop).map_err(doing)
}

const INSERT: &str = "
    INSERT INTO finding (run, started, method, row, metric, test, machine, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Returns the name of a kind of test as on the command line.
fn test(kind: TestKind) -> String {
    kind.to_string().to_lowercase()
}
