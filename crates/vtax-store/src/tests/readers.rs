//! Readers create and change nothing, whatever the state of the store, and use little memory.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    path::PathBuf,
    time::SystemTime,
};

use rusqlite::params;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use vtax_model::metric::SampleFigure;
use vtax_stats::histogram::Histogram;

use super::*;

/// Returns a sample of a second with as many different round-trip times as a real one has.
fn timed(round: u32) -> Sample {
    let mut rtt = Histogram::new();
    (0..20_000u64).for_each(|nth| rtt.record(40_000 + nth * nth % 90_001 + u64::from(round)));
    let end = EndReport { seconds: 1.0, transactions: 20_000, rtt: Some(rtt), ..EndReport::default() };
    let study = vtax_synthetic::study("demo");
    let figures = Figures::join(&study.cells[0].net().expect("of a network").spec(&study.plan), true, &end, &end);
    Sample { figures, ..sample(0, Arm::A, round) }
}

/// Returns every file in a directory with its contents and its time of last change.
fn files(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let changed = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("there");
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => drop(all.insert(path.clone(), (changed, fs::read(&path).expect("readable")))),
        }
        all.entry(path).or_insert((changed, Vec::new()));
    }
    all
}

/// Reads in every way, and returns the number of samples of the newest run.
fn read_in_every_way(dir: &Path) -> usize {
    let before = files(dir);
    let store = Store::read(dir).expect("it opens");
    let samples = store.list().expect("a list")[0].samples as usize;
    assert_eq!(store.load("last").expect("a run").samples.len(), samples);
    assert_eq!(whole(&store, "last").len(), samples);
    assert_eq!(store.news("last", &mut RunSeen::default()).expect("news").samples.len(), samples);
    let document = store.document("last").expect("figures");
    assert_eq!(document.cells.iter().map(|record| record.samples.len()).sum::<usize>(), samples);
    let (mut json, mut run) = (Vec::new(), Vec::new());
    store.export("last", &mut json).expect("it is read").expect("memory");
    store.write_run("last", &mut run).expect("it is read").expect("memory");
    assert!(store.load("no-such-run").is_err() && json.len() > 1000 && run.len() > 1000);
    assert_eq!(store.complete_plans("demo").expect("plans").len(), store.list().expect("a list").len() - 1);
    drop(store);
    let after = files(dir);
    let changed: Vec<&PathBuf> =
        after.iter().filter(|(path, file)| before.get(*path) != Some(file)).map(|(path, _)| path).collect();
    assert!(changed.is_empty() && before.len() == after.len(), "reading has changed {changed:?}");
    samples
}

/// Creates a complete run of two samples, and another one whose writer is stopped after three samples or more.
fn with_stopped_writer(dir: &Path) -> Child {
    let (store, mut writer) = new_run(dir, "demo-0");
    writer.samples(&[timed(1), timed(2)]).expect("they land");
    writer.finish(RunState::Complete, 1.0).expect("it ends");
    drop(store.create_run(&header("demo-1", "2026-01-01T00:00:00Z")).expect("new"));
    drop(store);
    let mut child = spawn_writer(dir, 1);
    let out = BufReader::new(child.stdout.take().expect("piped"));
    out.lines().map_while(Result::ok).filter_map(|line| landed(&line)).nth(2).expect("three samples");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).expect("it runs");
    // It may be in the middle of a write, and stops when that is done.
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).expect("our child").expect("it stops");
    assert!(status.stopped(), "{status:?}");
    child
}

fn end(mut child: Child) {
    child.kill().expect("SIGKILL");
    child.wait().expect("dead");
}

#[test]
fn reading_makes_and_changes_no_file_next_to_a_writer_nor_after_a_kill() {
    let dir = folder();
    let child = with_stopped_writer(dir.path());
    let beside = |ending: &str| dir.path().join(format!("results.db-{ending}"));
    assert_eq!(Store::read(dir.path()).expect("opens").list().expect("a list")[0].state, Condition::Running);
    let running = read_in_every_way(dir.path());
    end(child);
    assert!(beside("wal").exists() && beside("shm").exists());
    let killed = read_in_every_way(dir.path());
    // The writer may have been stopped after it wrote a commit to the log and before it updated the index. A concurrent
    // reader then misses the sample, which one that reads the log itself finds.
    assert!(running >= 3 && (killed == running || killed == running + 1), "{running} and {killed}");
    assert_eq!(Store::read(dir.path()).expect("opens").list().expect("a list")[0].state, Condition::Killed);
    // Copy without the index of the log.
    fs::remove_file(beside("shm")).expect("there");
    assert_eq!(read_in_every_way(dir.path()), killed);
    // The next writer finds everything.
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(store.load("last").expect("a run").samples.len(), killed);
    drop(store);
    assert!(!beside("wal").exists(), "its last user has put the log into the database");
    assert_eq!(read_in_every_way(dir.path()), killed);
    fs::write(beside("wal"), "").expect("as a reader of an older vtax left it");
    assert_eq!(read_in_every_way(dir.path()), killed);
}

#[test]
fn a_store_that_does_not_exist_is_empty_and_is_not_made() {
    let dir = folder();
    let absent = dir.path().join("absent");
    assert!(Store::read(&absent).expect("nothing to read").list().expect("empty").is_empty());
    assert!(!absent.exists());
}

#[test]
fn data_read_while_a_writer_began_is_not_trusted() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    writer.finish(RunState::Complete, 1.0).expect("it ends");
    drop(store);
    let reader = Store::read(dir.path()).expect("opens");
    assert_eq!(reader.list().expect("nobody writes").len(), 1);
    drop(new_run(dir.path(), "demo-2"));
    assert!(matches!(reader.list(), Err(StoreError::Changed { .. })));
    assert!(matches!(reader.document("demo-1"), Err(StoreError::Changed { .. })));
    assert_eq!(Store::read(dir.path()).expect("opens").list().expect("once more").len(), 2);
}

/// The list of 10,000 runs read every plan and counted every sample, and took 0.9 s.
#[test]
fn the_list_reads_short_rows_and_opens_no_lock_of_a_run_that_has_ended() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    writer.samples(&[timed(1)]).expect("lands");
    let plan = || {
        let mut statement = store.connection.prepare(&format!("EXPLAIN QUERY PLAN {LIST}")).expect("a query");
        let steps = statement.query_map([], |row| row.get::<_, String>("detail")).expect("a plan");
        steps.collect::<Result<Vec<_>, _>>().expect("steps")
    };
    assert_eq!(plan(), ["SCAN run"], "one table, in the order in which it lies there");
    let columns = "length(id) + length(started) + length(study) + length(title) + length(state)";
    let longest = format!("SELECT max({columns}) FROM run");
    let row: i64 = store.connection.query_row(&longest, [], |row| row.get(0)).expect("a row");
    assert!(row < 200, "{row} bytes");
    writer.finish(RunState::Complete, 1.0).expect("it ends");
    fs::remove_dir_all(dir.path().join("locks")).expect("no run has one");
    assert_eq!(store.list().expect("a list")[0].state, Condition::Complete);
}

/// 216 KiB were kept in memory for each sample.
#[test]
fn little_is_held_of_a_sample() {
    let sample = timed(1);
    let used = sample.figures.rtt_ns.as_ref().map(|rtt| rtt.hdr.to_bytes().len());
    assert!(used.is_some_and(|bytes| bytes > 1_000), "{used:?} bytes of histogram");
    let reading = SampleReading::of(&sample);
    let figures = SampleFigure::ALL.into_iter().filter(|figure| !reading.value(*figure).is_nan()).count();
    let held = size_of::<SampleReading>() + reading.at.capacity() + figures * size_of::<f64>();
    assert!(held < 1_000, "{held} bytes: 100,000 samples and as much again to sort them fill more than 200 MB");
    assert!(reading.parallel.is_none() && reading.host_cpu.is_none() && reading.ends.initiator.series.is_empty());
}

#[test]
fn histograms_are_kept_next_to_the_other_figures() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let samples = [timed(1), sample(0, Arm::APrime, 1), timed(2)];
    writer.samples(&samples).expect("they land");
    assert_eq!(whole(&store, "last"), samples);
    let kept = "SELECT length(body), length(rtt) FROM sample WHERE round = 2";
    let (body, rtt): (i64, i64) = store.connection.query_row(kept, [], |row| row.try_into()).expect("a row");
    assert!(body < 1_500 && rtt > 1_000, "{body} and {rtt} bytes");
    writer.connection.execute("UPDATE sample SET rtt = X'00' WHERE round = 2", []).expect("writable");
    let damaged = store.document("last").expect_err("no histogram");
    assert!(matches!(damaged, StoreError::Histogram { .. }), "{damaged:?}");
}

/// Creates a store as the first version wrote it: a complete run, then a killed one of two samples and a failure.
fn of_first_version(dir: &Path) -> [Sample; 2] {
    fs::create_dir(dir.join("locks")).expect("new");
    let connection = Connection::open(dir.join("results.db")).expect("new");
    connection.pragma_update(None, "journal_mode", "WAL").expect("a log");
    connection.execute_batch(schema::FIRST).expect("the first schema");
    connection.pragma_update(None, "user_version", 1).expect("writable");
    for (id, state) in [("demo-0", "complete"), ("demo-1", "running")] {
        let header = header(id, "2026-01-01T00:00:00Z");
        let insert = "INSERT INTO run (id, started, study, title, quick, header, state, wall_seconds)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 2.5)";
        let text = serde_json::to_string(&header).expect("JSON");
        let study = &header.study;
        let row = params![id, header.started, study.id.as_str(), study.title.raw(), header.quick, text, state];
        connection.execute(insert, row).expect("a run");
    }
    let samples = [timed(1), timed(2)];
    for sample in &samples {
        let insert = "INSERT INTO sample (run, cell, arm, round, body) VALUES ('demo-1', 0, 'A', ?1, ?2)";
        let body = serde_json::to_string(sample).expect("JSON");
        connection.execute(insert, params![sample.round, body]).expect("a sample");
    }
    let failure = Failure { cell: 0, arm: Arm::A, round: 3, error: "the peer died".into(), partial: None };
    let insert = "INSERT INTO failure (run, cell, arm, round, body) VALUES ('demo-1', 0, 'A', 3, ?1)";
    connection.execute(insert, [serde_json::to_string(&failure).expect("JSON")]).expect("a failure");
    samples
}

/// A run in progress has no result yet.
#[test]
fn the_few_words_of_a_result_are_listed_while_the_run_is_complete() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    writer.samples(&[timed(1)]).expect("lands");
    writer.finish(RunState::Complete, 1.0).expect("ends");
    let brief = |store: &Store| store.list().expect("a list")[0].brief.clone();
    assert_eq!(brief(&store), "");
    store.keep_brief("demo-1", "bridge +26 % UDP RTT").expect("kept");
    assert_eq!(brief(&store), "bridge +26 % UDP RTT");
    let _writer = store.extend("demo-1", 50).expect("it goes on");
    assert_eq!(brief(&store), "");
}

#[test]
fn a_store_of_an_older_version_is_read_unchanged_and_upgraded_by_the_next_writer() {
    for version in 1..schema::VERSION {
        let dir = folder();
        let samples = of_first_version(dir.path());
        let steps = [schema::SHORT_ROWS, schema::LABELS];
        for (step, reached) in steps.into_iter().zip(2..=version) {
            let connection = Connection::open(dir.path().join("results.db")).expect("there");
            connection.execute_batch(step).expect("the next schema");
            connection.pragma_update(None, "user_version", reached).expect("writable");
        }
        is_read_and_brought_up_to_date(dir.path(), &samples);
    }
}

fn is_read_and_brought_up_to_date(dir: &Path, samples: &[Sample]) {
    assert_eq!(read_in_every_way(dir), 2);
    let of = |store: &Store| {
        let mut json = Vec::new();
        store.export("last", &mut json).expect("it is read").expect("memory");
        (store.list().expect("a list"), json)
    };
    let read = of(&Store::read(dir).expect("opens"));
    assert_eq!((read.0[0].samples, read.0[0].failures, read.0[0].state), (2, 1, Condition::Killed));
    let store = Store::open(dir).expect("it is brought up to date");
    assert_eq!(of(&store), read);
    let version: i64 = store.connection.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a version");
    assert_eq!((version, whole(&store, "last")), (schema::VERSION, samples.to_vec()));
    // The failure of the third round is replaced.
    let mut writer = store.resume("last").expect("killed");
    writer.samples(&[timed(3)]).expect("lands");
    drop(writer);
    let listed = &store.list().expect("a list")[0];
    assert_eq!((listed.samples, listed.failures), (3, 0));
    assert_eq!(whole(&store, "last"), [samples.to_vec(), vec![timed(3)]].concat());
}

/// SQLite would wait forever for the writer of a FIFO, and follow a link.
#[test]
fn something_else_in_place_of_a_file_is_named_and_left() {
    let dir = folder();
    drop(new_run(dir.path(), "demo-1"));
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(dir.path().join("results.db"), &elsewhere).expect("ours");
    for ending in ["", "-wal", "-shm"] {
        let path = dir.path().join(format!("results.db{ending}"));
        let makes: [&dyn Fn(); 4] = [
            &|| drop(UnixListener::bind(&path).expect("new")),
            &|| fs::create_dir(&path).expect("new"),
            &|| symlink(&elsewhere, &path).expect("new"),
            &|| symlink("nowhere", &path).expect("new"),
        ];
        for make in makes {
            make();
            let (read, open) = (Store::read(dir.path()).map(drop), Store::open(dir.path()).map(drop));
            for done in [read, open, Store::open_to_remove(dir.path()).map(drop)] {
                let told = done.expect_err("it isn't a file").to_string();
                assert!(told.contains(&*path.to_string_lossy()) && told.contains("not a regular file"), "{told}");
            }
            let found = fs::symlink_metadata(&path).expect("left").file_type();
            if found.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) }.expect("ours");
        }
    }
}

#[test]
fn a_directory_may_have_any_name() {
    let base = folder();
    let dir = base.path().join(std::ffi::OsStr::from_bytes(b"a b%41?c#d\xff\n\xc3\xbc"));
    drop(new_run(&dir, "demo-1"));
    assert_eq!(Store::read(&dir).and_then(|store| store.list()).expect("readable").len(), 1);
}

/// SQLite would take such a file for a new database.
#[test]
fn an_emptied_database_is_damaged_and_an_unwritten_or_a_removed_one_is_not() {
    let dir = folder();
    let path = dir.path().join("results.db");
    fs::write(&path, "").expect("ours");
    assert_eq!(Store::read(dir.path()).and_then(|store| store.list()).expect("new").len(), 0);
    drop(new_run(dir.path(), "demo-1"));
    let whole = fs::read(&path).expect("closed");
    for length in [0, 1, 100, 511] {
        fs::write(&path, &whole[..length]).expect("ours");
        let (removing, read, open) =
            (Store::open_to_remove(dir.path()), Store::read(dir.path()), Store::open(dir.path()));
        for done in [removing, read, open].map(|opened| opened.map(drop)) {
            assert!(matches!(done, Err(StoreError::Corrupt { .. })), "{length}: {done:?}");
        }
        assert_eq!(fs::read(&path).expect("kept"), whole[..length]);
    }
    fs::remove_file(&path).expect("ours");
    assert_eq!(Store::open(dir.path()).and_then(|store| store.list()).expect("new").len(), 0);
}
