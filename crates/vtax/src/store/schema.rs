//! The database's tables, and how they came to be.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::{StoreError, error::StoreLocation};

/// The step from each version of the schema (`PRAGMA user_version`) to the next; the first makes version 1.
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

/// A connection that can't write. It is one to an empty database in memory, if there is no file yet.
pub(super) fn connect_to_read(place: &StoreLocation) -> Result<Connection, StoreError> {
    let doing = place.doing("reading the results");
    let file = place.file();
    if !file.try_exists().map_err(|source| place.io("looking for the results", &file, source))? {
        return nothing(place);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&file, flags).map_err(&doing)?;
    connection.busy_timeout(PATIENCE).map_err(&doing)?;
    match version(&connection, place) {
        // Nobody has written to it yet.
        Ok(0) => nothing(place),
        Ok(_) => Ok(connection),
        // A database in WAL mode needs two files beside it. Where they aren't and can't be made, nobody is writing
        // (<https://www.sqlite.org/wal.html>, "Read-Only Databases").
        Err(StoreError::ReadOnly { .. }) => {
            let uri = format!("file:{}?immutable=1", escaped(&file.to_string_lossy()));
            let connection = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).map_err(&doing)?;
            version(&connection, place).map(|_| connection)
        }
        Err(error) => Err(error),
    }
}

/// The characters that end a path in a URI (<https://www.sqlite.org/uri.html>).
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

fn nothing(place: &StoreLocation) -> Result<Connection, StoreError> {
    let mut connection = Connection::open_in_memory().map_err(place.doing("reading the results"))?;
    migrate(&mut connection, place)?;
    Ok(connection)
}

/// Changing the journal doesn't wait for other users of the file by itself
/// (<https://www.sqlite.org/c3ref/busy_handler.html>), so it is tried again.
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
