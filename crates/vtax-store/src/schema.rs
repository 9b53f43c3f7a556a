//! Tables of the database, and their migrations.

use std::{os::unix::ffi::OsStrExt, path::Path};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use vtax_sys::directory::make_private_file;

use crate::{StoreError, busy::BusyWait, error::StoreLocation};

/// Migrations from each version of the schema (`PRAGMA user_version`) to the next; the first creates version 1.
const MIGRATIONS: [&str; 5] = [FIRST, SHORT_ROWS, LABELS, BRIEFS, FINDINGS];

pub(crate) const FIRST: &str = "
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
";

/// `vtax results list` reads short rows in a separate table, and the histograms of a sample are next to its other
/// figures, as the bytes of their V2 encoding. Samples stored by earlier versions have theirs in `body`.
pub(crate) const SHORT_ROWS: &str = "
    CREATE TABLE plan (
        run TEXT PRIMARY KEY NOT NULL REFERENCES run (id),
        header TEXT NOT NULL
    ) STRICT;
    INSERT INTO plan (run, header) SELECT id, header FROM run ORDER BY rowid;
    ALTER TABLE run DROP COLUMN header;
    ALTER TABLE run ADD COLUMN samples INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE run ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
    UPDATE run SET samples = (SELECT count(*) FROM sample WHERE sample.run = run.id),
                   failures = (SELECT count(*) FROM failure WHERE failure.run = run.id);
    ALTER TABLE sample ADD COLUMN rtt BLOB;
    ALTER TABLE sample ADD COLUMN rtt_from_send BLOB;
    CREATE TRIGGER sample_lands AFTER INSERT ON sample BEGIN
        UPDATE run SET samples = samples + 1 WHERE id = NEW.run;
    END;
    CREATE TRIGGER failure_lands AFTER INSERT ON failure BEGIN
        UPDATE run SET failures = failures + 1 WHERE id = NEW.run;
    END;
    CREATE TRIGGER failure_goes AFTER DELETE ON failure BEGIN
        UPDATE run SET failures = failures - 1 WHERE id = OLD.run;
    END;
";

/// Label of a run.
pub(crate) const LABELS: &str = "ALTER TABLE run ADD COLUMN label TEXT NOT NULL DEFAULT ''";

/// Result of a complete run, short enough for a list of thousands of runs. Recomputing it would require reading all
/// samples of all runs.
const BRIEFS: &str = "ALTER TABLE run ADD COLUMN brief TEXT NOT NULL DEFAULT ''";

/// Findings of complete runs, and the version of the analysis that computed those of a run; 0 if none has. A finding is
/// in `body`; the other columns are search criteria.
const FINDINGS: &str = "
    ALTER TABLE run ADD COLUMN analysis INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE finding (
        nth INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES run (id),
        started TEXT NOT NULL,
        method TEXT NOT NULL,
        row TEXT NOT NULL,
        metric TEXT NOT NULL,
        test TEXT NOT NULL,
        machine TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX finding_of_run ON finding (run);
    CREATE INDEX finding_of_all ON finding (method, metric, test, started);
    CREATE INDEX finding_of_method ON finding (method, started);
    CREATE INDEX finding_of_metric ON finding (metric, started);
    CREATE INDEX finding_of_test ON finding (test, started);
    CREATE INDEX finding_of_time ON finding (started);
";

/// Empty table of findings for readers of a version without one.
const NO_FINDINGS: &str = "
    CREATE TEMP VIEW finding AS SELECT
        0 AS nth, '' AS run, '' AS started, '' AS method, '' AS row, '' AS metric, '' AS test, '' AS machine, '' AS body
        WHERE 0;
";

/// Tables of version 4 in the current form, for readers.
const BRIEFS_AS_TODAY: &str = "CREATE TEMP VIEW run AS SELECT main.run.rowid AS rowid, *, 0 AS analysis FROM main.run";

/// Tables of version 1 in the current form, for readers.
const FIRST_AS_TODAY: &str = "
    CREATE TEMP VIEW plan AS SELECT id AS run, header FROM main.run;
    CREATE TEMP VIEW run AS SELECT
        main.run.rowid AS rowid, id, started, study, title, '' AS label, '' AS brief, 0 AS analysis, quick, state, wall_seconds,
        (SELECT count(*) FROM main.sample WHERE main.sample.run = main.run.id) AS samples,
        (SELECT count(*) FROM main.failure WHERE main.failure.run = main.run.id) AS failures
        FROM main.run;
    CREATE TEMP VIEW sample AS SELECT *, NULL AS rtt, NULL AS rtt_from_send FROM main.sample;
";

/// Tables of version 2 in the current form, for readers.
const SHORT_ROWS_AS_TODAY: &str =
    "CREATE TEMP VIEW run AS SELECT main.run.rowid AS rowid, *, '' AS label, '' AS brief, 0 AS analysis FROM main.run";

/// Tables of version 3 in the current form, for readers.
const LABELS_AS_TODAY: &str =
    "CREATE TEMP VIEW run AS SELECT main.run.rowid AS rowid, *, '' AS brief, 0 AS analysis FROM main.run";

/// First version with a table of findings.
const FIRST_WITH_FINDINGS: i64 = 5;

pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Opens a connection on which a commit is on the disk when it returns.
pub(crate) fn connect(place: &StoreLocation) -> Result<Connection, StoreError> {
    let doing = place.doing("opening the results");
    let file = place.file();
    place.has_database()?;
    // SQLite would create the file according to the umask. Its log gets the mode of the database. The locks of SQLite
    // belong to the process, which may have other connections: they exclude those who would remove a log in use.
    make_private_file(&file).map_err(|source| place.io("opening the results", &file, source))?;
    let mut connection = Connection::open(&file).map_err(&doing)?;
    wait_if_busy(&mut connection, place).map_err(&doing)?;
    // Takes effect in a new database, or when an old one is compacted. The database can then shrink without a copy.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(&doing)?;
    write_ahead(&connection, place).map_err(&doing)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(&doing)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(&doing)?;
    Ok(connection)
}

/// Opens a connection that changes and creates no file; to an empty database in memory if there is no file yet.
pub(crate) fn connect_to_read(place: &StoreLocation, access: Access) -> Result<Connection, StoreError> {
    let doing = place.doing("reading the results");
    if !place.has_database()? {
        return nothing(place);
    }
    let mut connection = connect_as(place, access).map_err(&doing)?;
    wait_if_busy(&mut connection, place).map_err(&doing)?;
    // The last user who closes the database would write the log into it; a reader must not.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&doing)?;
    // Sorting must not create a file.
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(&doing)?;
    let version = version(&connection, place)?;
    match version {
        // Nothing has been written to it yet.
        0 => return nothing(place),
        1 => connection.execute_batch(FIRST_AS_TODAY).map_err(&doing)?,
        2 => connection.execute_batch(SHORT_ROWS_AS_TODAY).map_err(&doing)?,
        3 => connection.execute_batch(LABELS_AS_TODAY).map_err(&doing)?,
        4 => connection.execute_batch(BRIEFS_AS_TODAY).map_err(&doing)?,
        _ => {}
    }
    if version < FIRST_WITH_FINDINGS {
        connection.execute_batch(NO_FINDINGS).map_err(&doing)?;
    }
    Ok(connection)
}

/// Access to a database in WAL mode that creates and changes none of its files (<https://www.sqlite.org/wal.html>,
/// "Read-Only Databases").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No one writes, and there is no log: the database alone.
    Alone,
    /// A process writes, or was killed: the log too, with its index. The index of a killed process is rebuilt in
    /// memory.
    WithLog,
    /// The index of the log is missing, so no one writes, and an index is built in memory.
    WithoutIndex,
}

impl Access {
    pub(crate) fn now(place: &StoreLocation) -> Result<Access, StoreError> {
        let exists = |beside: &str| {
            let path = place.beside(beside);
            path.try_exists().map_err(|source| place.io("looking for the results", &path, source))
        };
        Ok(match (exists("-wal")?, exists("-shm")?) {
            (false, _) => Access::Alone,
            (true, true) => Access::WithLog,
            (true, false) => Access::WithoutIndex,
        })
    }
}

fn connect_as(place: &StoreLocation, access: Access) -> rusqlite::Result<Connection> {
    let parameter = match access {
        Access::Alone => "immutable=1",
        Access::WithLog => "readonly_shm=1",
        Access::WithoutIndex => "vfs=unix-none",
    };
    let uri = format!("file:{}?{parameter}", escaped(&place.file()));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    if access == Access::WithoutIndex {
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    Ok(connection)
}

/// Escapes the bytes that have a meaning in a URI, and those that aren't visible ASCII
/// (<https://www.sqlite.org/uri.html>).
fn escaped(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#');
    let escape = |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    path.as_os_str().as_bytes().iter().map(escape).collect()
}

fn nothing(place: &StoreLocation) -> Result<Connection, StoreError> {
    let mut connection = Connection::open_in_memory().map_err(place.doing("reading the results"))?;
    migrate(&mut connection, place)?;
    Ok(connection)
}

fn wait_if_busy(connection: &mut Connection, place: &StoreLocation) -> rusqlite::Result<()> {
    let mut wait = BusyWait::new(place);
    connection.busy_handler(Some(move |attempts| wait.keeps_waiting(attempts)))
}

/// Enables the write-ahead log. SQLite doesn't wait for other users of the file in this case
/// (<https://www.sqlite.org/c3ref/busy_handler.html>), so it is retried.
fn write_ahead(connection: &Connection, place: &StoreLocation) -> rusqlite::Result<()> {
    let (mut wait, mut attempts) = (BusyWait::new(place), 0);
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && wait.keeps_waiting(attempts) =>
            {
                attempts += 1;
            }
            done => return done,
        }
    }
}

/// Migrates the tables to [`VERSION`]; refuses those of a newer vtax.
pub(crate) fn migrate(connection: &mut Connection, place: &StoreLocation) -> Result<(), StoreError> {
    if version(connection, place)? == VERSION {
        return Ok(());
    }
    let doing = place.doing("creating the tables");
    // Checked again inside the transaction: another vtax may have been faster.
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
    let found: i64 = asked.map_err(place.doing("reading the version of the schema"))?;
    if found > VERSION {
        return Err(StoreError::Newer { file: place.file(), found, known: VERSION });
    }
    Ok(found)
}
