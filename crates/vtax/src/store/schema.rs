//! The database's tables, and how they came to be.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::{StoreError, error::StoreLocation};

/// What leads from each version of the schema to the next; the first makes version 1 of nothing.
/// `PRAGMA user_version` says which one a file has.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE run (
        id TEXT PRIMARY KEY NOT NULL,
        started TEXT NOT NULL,
        study TEXT NOT NULL,
        title TEXT NOT NULL,
        quick INTEGER NOT NULL,
        header TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'stopped', 'complete')),
        wall_seconds REAL NOT NULL
    ) STRICT;
    CREATE TABLE sample (
        landed INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES run (id),
        cell INTEGER NOT NULL,
        arm TEXT NOT NULL,
        round INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (run, cell, arm, round)
    ) STRICT;
    CREATE TABLE failure (
        landed INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES run (id),
        cell INTEGER NOT NULL,
        arm TEXT NOT NULL,
        round INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (run, cell, arm, round)
    ) STRICT;
"];

/// The schema that this vtax reads and writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// How long to wait for another vtax's transaction, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection on which a commit is on the disk when it returns.
pub(super) fn connect(place: &StoreLocation) -> Result<Connection, StoreError> {
    let doing = place.doing("opening the results");
    let connection = Connection::open(place.file()).map_err(&doing)?;
    connection.busy_timeout(PATIENCE).map_err(&doing)?;
    write_ahead(&connection).map_err(&doing)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(&doing)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(&doing)?;
    Ok(connection)
}

/// Changing the journal needs the file for oneself and does not wait for it
/// (<https://www.sqlite.org/c3ref/busy_handler.html>), so two that make one file wait here.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let wait = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / wait.as_millis() {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => std::thread::sleep(wait),
            done => return done,
        }
    }
    connection.pragma_update(None, "journal_mode", "WAL")
}

/// Brings the tables to [`VERSION`]; refuses those of a newer vtax.
pub(super) fn migrate(connection: &mut Connection, place: &StoreLocation) -> Result<(), StoreError> {
    if version(connection, place)? == VERSION {
        return Ok(());
    }
    let doing = place.doing("making the tables");
    // Asked again inside: another vtax may have been faster.
    let step = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&doing)?;
    let from = version(&step, place)?;
    for sql in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        step.execute_batch(sql).map_err(&doing)?;
    }
    step.pragma_update(None, "user_version", VERSION).map_err(&doing)?;
    step.commit().map_err(&doing)
}

fn version(connection: &Connection, place: &StoreLocation) -> Result<i64, StoreError> {
    let asked = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let found: i64 = asked.map_err(place.doing("asking for the schema's version"))?;
    if found > VERSION {
        return Err(StoreError::Newer { file: place.file(), found, known: VERSION });
    }
    Ok(found)
}
