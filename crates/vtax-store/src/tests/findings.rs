//! Findings are stored when a run is completed, and are searched by index.

use rusqlite::StatementStatus;
use vtax_model::{evidence::EvidenceFinding, metric::Metric, run::Run, workload::TestKind};

use super::*;

/// Stores a complete synthetic run of the demo on this machine.
fn stored(dir: &Path, id: &str, started: &str, machine: &str) {
    let run = demo(id, started, machine);
    let store = Store::open(dir).expect("opens");
    let mut writer = store.create_run(&run.header).expect("new");
    writer.samples(&run.samples).expect("land");
    writer.finish(RunState::Complete, 1.0).expect("ends");
}

fn demo(id: &str, started: &str, machine: &str) -> Run {
    let mut run = vtax_synthetic::built_in("demo");
    run.header.id = id.into();
    run.header.started = started.into();
    run.header.environment.hostname = machine.into();
    run
}

fn found(dir: &Path, filter: &FindingFilter) -> Vec<EvidenceFinding> {
    Store::read(dir).and_then(|store| store.findings(filter)).expect("findings")
}

fn all(dir: &Path) -> Vec<EvidenceFinding> {
    found(dir, &FindingFilter::default())
}

/// Executes SQL in the database of a store that no one else uses.
fn change(dir: &Path, sql: &str) {
    let connection = Connection::open(dir.join("results.db")).expect("opens");
    connection.execute_batch(sql).expect("valid SQL");
}

#[test]
fn a_complete_run_has_its_findings_and_they_go_with_it() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    let store = Store::open(dir.path()).expect("opens");
    let expected = vtax_model::evidence::findings(&store.document("demo-1").expect("figures"));
    assert!(expected.len() > 10);
    assert_eq!(all(dir.path()), expected);
    assert_eq!(store.runs_without_findings().expect("a number"), 0);
    store.remove(&["demo-1".to_owned()], |_| {}).expect("removed");
    assert!(all(dir.path()).is_empty());
}

#[test]
fn an_extended_run_has_findings_again_once_it_is_complete() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    let store = Store::open(dir.path()).expect("opens");
    let rounds = store.load("demo-1").expect("a run").header.rounds();
    let writer = store.extend("demo-1", rounds + 1).expect("extends");
    assert!(all(dir.path()).is_empty(), "they are of fewer rounds");
    writer.finish(RunState::Stopped, 1.0).expect("ends");
    assert!(all(dir.path()).is_empty(), "it isn't complete");
    store.resume("demo-1").expect("resumes").finish(RunState::Complete, 1.0).expect("ends");
    assert!(!all(dir.path()).is_empty());
}

#[test]
fn older_runs_get_their_findings_at_the_first_write_and_never_by_reading() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    let expected = all(dir.path());
    for older in [
        "DELETE FROM finding; UPDATE run SET analysis = 0",
        "UPDATE finding SET body = '{}'; UPDATE run SET analysis = 0",
    ] {
        change(dir.path(), older);
        assert!(all(dir.path()).is_empty());
        assert_eq!(Store::read(dir.path()).and_then(|store| store.runs_without_findings()).expect("a number"), 1);
        drop(Store::open(dir.path()).expect("opens"));
        assert_eq!(all(dir.path()), expected);
    }
}

#[test]
fn an_unreadable_run_does_not_block_writers() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    change(dir.path(), "UPDATE run SET analysis = 0; UPDATE plan SET header = '{}'");
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(store.runs_without_findings().expect("a number"), 0);
    assert!(all(dir.path()).is_empty());
}

/// Version 4 had no findings, and the medium is read-only.
#[test]
fn a_store_without_the_table_has_no_findings_to_readers() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    change(dir.path(), "DROP TABLE finding; ALTER TABLE run DROP COLUMN analysis; PRAGMA user_version = 4");
    let store = Store::read(dir.path()).expect("opens");
    assert_eq!(store.list().expect("a list").len(), 1);
    assert!(store.findings(&FindingFilter::default()).expect("none").is_empty());
    assert_eq!(store.runs_without_findings().expect("a number"), 1);
    drop(store);
    drop(Store::open(dir.path()).expect("migrates"));
    assert!(!all(dir.path()).is_empty());
}

#[test]
fn a_filter_selects_by_every_condition() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    stored(dir.path(), "demo-2", "2026-02-01T00:00:00Z", "hv2");
    let everything = all(dir.path());
    assert!(everything[0].run == "demo-2" && everything.last().expect("some").run == "demo-1");
    let selects = |filter: FindingFilter, holds: &dyn Fn(&EvidenceFinding) -> bool| {
        let selected: Vec<_> = everything.iter().filter(|finding| holds(finding)).cloned().collect();
        assert!(!selected.is_empty() && selected.len() < everything.len(), "{filter:?}");
        assert_eq!(found(dir.path(), &filter), selected, "{filter:?}");
    };
    let usual = FindingFilter::default;
    let bridge = vtax_synthetic::row("bridge");
    selects(FindingFilter { method: Some(bridge), ..usual() }, &|finding| finding.cell.row == bridge);
    selects(FindingFilter { metric: Some(Metric::Cpu), ..usual() }, &|finding| finding.metric == Metric::Cpu);
    selects(FindingFilter { test: Some(TestKind::Rr), ..usual() }, &|finding| finding.cell.kind() == TestKind::Rr);
    selects(FindingFilter { machine: Some("hv1".into()), ..usual() }, &|finding| finding.run == "demo-1");
    selects(FindingFilter { since: Some("2026-01-15".into()), ..usual() }, &|finding| finding.run == "demo-2");
    let both = FindingFilter { metric: Some(Metric::Rtt), machine: Some("hv2".into()), ..usual() };
    selects(both, &|finding| finding.metric == Metric::Rtt && finding.run == "demo-2");
    assert_eq!(found(dir.path(), &FindingFilter { limit: 3, ..usual() }), everything[..3]);
    let store = Store::read(dir.path()).expect("opens");
    assert_eq!(store.machines_with_findings().expect("names"), ["hv1", "hv2"]);
}

/// Work is counted because time depends on the machine: a step of SQLite takes less than 1 µs.
#[test]
fn ten_thousand_runs_are_searched_in_bounded_work() {
    let dir = folder();
    stored(dir.path(), "demo-1", "2026-01-01T00:00:00Z", "hv1");
    // The findings of a run are stored in reverse.
    let first = all(dir.path()).pop().expect("some");
    change(
        dir.path(),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
         INSERT INTO finding (run, started, method, row, metric, test, machine, body)
         SELECT run, datetime(1700000000 + i * 60, 'unixepoch'), method, row, metric, test, machine, body
         FROM n, (SELECT * FROM finding ORDER BY nth LIMIT 6)",
    );
    let connection = Connection::open(dir.path().join("results.db")).expect("opens");
    let usual = || FindingFilter { limit: 200, ..FindingFilter::default() };
    let (method, metric, test) = (first.cell.row, first.metric, first.cell.kind());
    let filters = [
        usual(),
        FindingFilter { method: Some(method), ..usual() },
        FindingFilter { metric: Some(metric), ..usual() },
        FindingFilter { test: Some(test), since: Some("2023".into()), ..usual() },
        FindingFilter { method: Some(method), metric: Some(metric), test: Some(test), ..usual() },
    ];
    for filter in filters {
        let (query, values) = filter.query();
        let mut statement = connection.prepare(&query).expect("valid SQL");
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(0));
        assert_eq!(rows.expect("rows").count(), 200, "{filter:?}");
        let [scanned, sorted, steps] = [StatementStatus::FullscanStep, StatementStatus::Sort, StatementStatus::VmStep]
            .map(|status| statement.get_status(status));
        assert!(sorted == 0 && scanned <= 200 && steps < 10_000, "{filter:?}: {scanned} {sorted} {steps}");
    }
}
