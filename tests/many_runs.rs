//! A store with as many runs as a user has after years.

use std::path::Path;

use vtax_model::run::RunState;
use vtax_store::Store;

/// Stores rows of runs without samples in one transaction. The store itself uses one transaction per run.
pub(crate) fn store_in(state: &Path, count: i64) {
    let header = vtax_synthetic::header("demo-0", "2026-01-01T00:00:00Z");
    let store = Store::open(state).expect("it opens");
    store.create_run(&header).expect("a run").finish(RunState::Complete, 1.0).expect("kept");
    drop(store);
    let database = rusqlite::Connection::open(state.join("results.db")).expect("it opens");
    let copies = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";
    let run = "INSERT INTO run (id, started, study, title, quick, state, wall_seconds)
               SELECT 'demo-' || i, started, study, title, quick, state, wall_seconds FROM run, n WHERE id = 'demo-0'";
    let plan = "INSERT INTO plan (run, header) SELECT 'demo-' || i, header FROM plan, n WHERE run = 'demo-0'";
    for insert in [run, plan] {
        database.execute(&format!("{copies} {insert}"), [count - 1]).expect("kept");
    }
}
