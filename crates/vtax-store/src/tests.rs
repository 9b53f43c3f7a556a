//! Tests of the store under kills, full disks, concurrent writers and other versions.

mod added;
mod findings;
mod locked;
mod readers;
mod space;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use vtax_model::{
    cell::Arm,
    measurement::EndReport,
    run::{Failure, Figures, PartialRecord, Sample, SampleReading, SampleSource},
};
use vtax_synthetic::{header, sample};

use super::*;

fn new_run(dir: &Path, id: &str) -> (Store, RunWriter) {
    let store = Store::open(dir).expect("opens");
    let writer = store.create_run(&header(id, "2026-01-01T00:00:00Z")).expect("new");
    (store, writer)
}

/// Returns the samples of a run with all of their contents.
fn whole(store: &Store, id: &str) -> Vec<Sample> {
    let all = store.with_run(id, |run| {
        let mut all = Vec::new();
        run.samples.samples(&mut |sample| all.push(sample.clone()))?;
        Ok(all)
    });
    all.expect("readable")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn the_page_of_formats_tells_the_version_of_the_tables() {
    let page = include_str!("../../../docs/formats.md");
    assert!(page.contains(&format!("`user_version`: it is {}.", schema::VERSION)));
}

#[test]
fn a_run_is_read_back_as_it_was_written() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let samples = [sample(3, Arm::A, 1), sample(0, Arm::APrime, 1), sample(0, Arm::A, 1)];
    writer.samples(&samples).expect("land");
    let partial = PartialRecord { initiator: Some(EndReport::default()), responder: None };
    let (error, partial) = ("the peer died".into(), Some(Box::new(partial)));
    let failure = Failure { cell: 5, arm: Arm::A, round: 1, error, partial };
    writer.failure(&failure).expect("lands");
    writer.finish(RunState::Complete, 12.5).expect("ends");
    let run = store.load("last").expect("there");
    assert_eq!(run.header, header("demo-1", "2026-01-01T00:00:00Z"));
    assert_eq!((run.state, run.wall_seconds), (RunState::Complete, 12.5));
    let turns: Vec<_> = run.samples.iter().map(SampleReading::turn).collect();
    assert_eq!(turns, samples.each_ref().map(Sample::turn));
    assert_eq!(run.failures, [failure]);
    assert_eq!(whole(&store, "last"), samples);
}

#[test]
fn each_field_of_a_listed_run_is_the_runs_own() {
    let dir = folder();
    let store = Store::open(dir.path()).expect("opens");
    let header = RunHeader { quick: true, label: "before".into(), ..header("demo-1", "2026-01-01T00:00:00Z") };
    let mut writer = store.create_run(&header).expect("new");
    writer.samples(&[sample(0, Arm::A, 1), sample(0, Arm::APrime, 1)]).expect("land");
    let failure = Failure { cell: 5, arm: Arm::A, round: 1, error: "the peer died".into(), partial: None };
    writer.failure(&failure).expect("lands");
    writer.finish(RunState::Complete, 12.5).expect("ends");
    store.keep_brief("demo-1", "TCP RR 12 µs").expect("kept");
    let expected = RunSummary {
        id: "demo-1".into(),
        study: "demo".into(),
        title: header.study.title.raw().into(),
        label: "before".into(),
        brief: "TCP RR 12 µs".into(),
        started: "2026-01-01T00:00:00Z".into(),
        state: Condition::Complete,
        quick: true,
        samples: 2,
        failures: 1,
        wall_seconds: 12.5,
    };
    assert_eq!(store.list().expect("lists"), [expected]);
}

#[test]
fn a_failed_sample_that_lands_later_is_not_a_failure() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let failure = |error: &str| Failure { cell: 0, arm: Arm::A, round: 1, error: error.into(), partial: None };
    writer.failure(&Failure { round: 2, ..failure("the peer died") }).expect("lands");
    writer.failure(&failure("the peer died")).expect("lands");
    writer.failure(&failure("the peer died again")).expect("lands");
    let errors = |run: &RunReadings| run.failures.iter().map(|failure| failure.error.clone()).collect::<Vec<_>>();
    assert_eq!(errors(&store.load("demo-1").expect("there")), ["the peer died", "the peer died again"]);
    writer.samples(&[sample(0, Arm::A, 1)]).expect("lands");
    let run = store.load("demo-1").expect("there");
    assert_eq!((run.samples.len(), errors(&run)), (1, vec!["the peer died".into()]));
}

#[test]
fn a_sample_does_not_land_twice_and_a_run_does_not_begin_twice() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    writer.samples(&[sample(0, Arm::A, 1)]).expect("lands");
    let twice = writer.samples(&[sample(0, Arm::A, 1)]);
    assert!(matches!(twice, Err(StoreError::Twice { cell: 0, arm: Arm::A, round: 1, .. })), "{twice:?}");
    writer.samples(&[sample(0, Arm::APrime, 1)]).expect("is another");
    drop(writer);
    let again = store.create_run(&header("demo-1", "2026-01-01T00:00:00Z"));
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    assert_eq!(store.load("demo-1").expect("there").samples.len(), 2);
}

/// A transaction waits for the disk, so many runs are removed together.
#[test]
fn many_runs_are_removed_in_a_few_transactions_and_none_if_one_is_unknown() {
    let dir = folder();
    let store = Store::open(dir.path()).expect("it opens");
    let ids: Vec<String> = (0..600).map(|number| format!("demo-{number:03}")).collect();
    store.create_run(&header("demo-first", "2026-01-01T00:00:00Z")).expect("new");
    let copy = "INSERT INTO run (id, started, study, title, quick, state, wall_seconds)
                SELECT ?1, started, study, title, quick, state, wall_seconds FROM run WHERE id = 'demo-first'";
    let step = store.connection.unchecked_transaction().expect("a transaction");
    for id in &ids {
        step.execute(copy, [id]).expect("kept");
    }
    step.commit().expect("kept");

    let mut wrong = ids.clone();
    wrong.push("nothing".to_owned());
    let refused = store.remove(&wrong, |id| panic!("{id} is removed"));
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");

    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let told = |id: &str| {
        removed.push(id.to_owned());
        left.push(store.list().expect("it is there").len());
    };
    store.remove(&ids, told).expect("nobody writes them");
    left.dedup();
    assert_eq!((removed, left), (ids, vec![345, 89, 1]), "three transactions");
}

/// A run that is being written stays, and the remaining runs lose nothing.
#[test]
fn a_removed_run_leaves_nothing_behind() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    writer.samples(&[sample(0, Arm::A, 1)]).expect("lands");
    assert!(matches!(store.remove(&["demo-1".to_owned()], |_| ()), Err(StoreError::InUse { .. })));
    writer.failure(&Failure { cell: 1, arm: Arm::A, round: 1, error: "late".into(), partial: None }).expect("lands");
    drop(writer);
    let mut other = store.create_run(&header("other-1", "2026-01-02T00:00:00Z")).expect("new");
    other.samples(&[sample(0, Arm::A, 1), sample(0, Arm::APrime, 1)]).expect("land");
    drop(other);
    let mut removed = Vec::new();
    store.remove(&["demo".to_owned()], |id| removed.push(id.to_owned())).expect("its lock is free");
    assert_eq!(removed, ["demo-1"]);
    store.shrink().expect("nobody else reads");
    assert!(matches!(store.remove(&["demo-1".to_owned()], |_| ()), Err(StoreError::NotFound { .. })));
    let left: i64 = ["sample", "failure", "plan", "run"]
        .map(|table| {
            store.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
        })
        .into_iter()
        .map(|count| count.expect("a count"))
        .sum();
    assert_eq!(left, 4, "two samples, a plan and a run");
    assert_eq!(store.load("other-1").expect("there").samples.len(), 2);
    assert_eq!(fs::read_dir(dir.path().join("locks")).expect("a folder").count(), 1);
}

#[test]
fn runs_without_samples_and_old_runs_are_worthless() {
    let run = |id: &str, study: &str, samples: u32, state: Condition| RunSummary {
        id: id.into(),
        study: study.into(),
        title: String::new(),
        label: String::new(),
        brief: String::new(),
        started: String::new(),
        state,
        quick: false,
        samples,
        failures: 0,
        wall_seconds: 1.0,
    };
    let runs = [
        run("d", "demo", 0, Condition::Running),
        run("c", "demo", 5, Condition::Complete),
        run("b", "vmdq", 5, Condition::Complete),
        run("a", "demo", 0, Condition::Killed),
        run("0", "demo", 5, Condition::Stopped),
    ];
    let ids = |keep| worthless(&runs, keep).into_iter().map(|run| run.id.as_str()).collect::<Vec<_>>();
    assert_eq!(ids(None), ["a"]);
    assert_eq!(ids(Some(1)), ["a", "0"]);
    assert_eq!(ids(Some(0)), ["c", "b", "a", "0"]);
}

#[test]
fn the_list_has_the_newest_first_and_tells_live_from_killed() {
    let dir = folder();
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(store.list().expect("lists"), []);
    let begin = |id: &str, day: &str| store.create_run(&header(id, day)).expect("new");
    begin("complete", "2026-01-01").finish(RunState::Complete, 1.0).expect("ends");
    begin("stopped", "2026-01-02").finish(RunState::Stopped, 1.0).expect("ends");
    drop(begin("killed", "2026-01-04"));
    // The clock was set back.
    let mut live = begin("live", "2026-01-03");
    live.samples(&[sample(0, Arm::A, 1)]).expect("lands");
    assert_eq!(store.load("last").expect("begun last").header.id, "live");
    let states: Vec<_> = store.list().expect("lists").into_iter().map(|run| (run.id, run.state, run.samples)).collect();
    let expected = [
        ("live", Condition::Running, 1),
        ("killed", Condition::Killed, 0),
        ("stopped", Condition::Stopped, 0),
        ("complete", Condition::Complete, 0),
    ];
    assert_eq!(states, expected.map(|(id, state, samples)| (id.to_owned(), state, samples)));
}

#[test]
fn resuming_continues_and_adds_up_the_time() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    writer.finish(RunState::Stopped, 10.0).expect("ends");
    let mut writer = store.resume("demo").expect("stopped");
    assert_eq!(store.load("demo-1").expect("there").state, RunState::Running);
    writer.samples(&[sample(0, Arm::A, 1)]).expect("lands");
    writer.finish(RunState::Complete, 5.0).expect("ends");
    let run = store.load("demo-1").expect("there");
    assert_eq!((run.wall_seconds, run.samples.len()), (15.0, 1));
    let complete = store.resume("demo-1");
    assert!(matches!(complete, Err(StoreError::Complete { .. })), "{complete:?}");
    let left = std::fs::read_dir(dir.path().join("locks")).expect("a folder").count();
    assert_eq!(left, 0, "a complete run needs no lock");
}

/// Extending a complete run was refused, although users often want it.
#[test]
fn a_complete_run_goes_on_with_more_rounds() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let planned = header("demo-1", "").plan.samples;
    writer.samples(&[sample(0, Arm::A, 1)]).expect("lands");
    writer.finish(RunState::Complete, 10.0).expect("ends");
    let mut writer = store.extend("demo", planned + 9).expect("more rounds");
    let run = store.load("demo-1").expect("there");
    assert_eq!((run.state, run.header.plan.samples), (RunState::Running, planned + 9));
    writer.samples(&[sample(0, Arm::A, planned + 9)]).expect("lands");
    drop(writer);
    // As after `kill -9`.
    assert_eq!(store.list().expect("lists")[0].state, Condition::Killed);
    let writer = store.resume("demo-1").expect("killed");
    assert_eq!(store.load("demo-1").expect("there").header.plan.samples, planned + 9);
    writer.finish(RunState::Complete, 5.0).expect("ends");
    let run = store.load("demo-1").expect("there");
    assert!(run.wall_seconds >= 15.0 && run.samples.len() == 2, "{} s", run.wall_seconds);
}

#[test]
fn a_run_is_not_extended_to_fewer_rounds_nor_while_it_is_written() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    let planned = header("demo-1", "").plan.samples;
    let busy = store.extend("demo-1", planned + 1);
    assert!(matches!(busy, Err(StoreError::InUse { .. })), "{busy:?}");
    writer.finish(RunState::Complete, 10.0).expect("ends");
    let told = store.extend("demo-1", planned).expect_err("no more than it has").to_string();
    assert!(told.contains("must be more than"), "{told}");
    let run = store.load("demo-1").expect("there");
    assert_eq!((run.state, run.header.plan.samples), (RunState::Complete, planned));
    let left = std::fs::read_dir(dir.path().join("locks")).expect("a folder").count();
    assert_eq!(left, 0, "a complete run needs no lock");
}

#[test]
fn a_run_that_is_being_written_is_not_resumed() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    let other = Store::open(dir.path()).expect("opens beside");
    let refused = other.resume("demo-1");
    assert!(matches!(refused, Err(StoreError::InUse { .. })), "{refused:?}");
    drop(writer);
    let first = store.resume("demo-1").expect("killed");
    assert!(other.resume("demo-1").is_err());
    drop(first);
}

#[test]
fn several_processes_create_one_store_and_write_to_it_simultaneously() {
    let dir = folder();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let path = dir.path();
            scope.spawn(move || {
                let (_, mut writer) = new_run(path, &format!("run-{thread}"));
                for round in 1..=20 {
                    writer.samples(&[sample(0, Arm::A, round)]).expect("lands");
                }
            });
        }
    });
    let listed = Store::open(dir.path()).expect("opens").list().expect("lists");
    assert_eq!(listed.len(), 6);
    assert!(listed.iter().all(|run| run.samples == 20));
}

#[test]
fn a_newer_schema_is_refused_by_its_number() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    writer.connection.pragma_update(None, "user_version", schema::VERSION + 1).expect("writable");
    drop((store, writer));
    for opened in [Store::open(dir.path()), Store::read(dir.path())] {
        let error = opened.expect_err("newer").to_string();
        assert!(error.contains(&format!("its schema is {}, this one knows {}", schema::VERSION + 1, schema::VERSION)));
        assert!(error.contains("--state DIR"), "{error}");
    }
}

#[test]
fn a_file_that_is_not_a_database_is_reported_as_damaged() {
    let dir = folder();
    std::fs::write(dir.path().join("results.db"), "this is no database, and long enough to be seen as none").unwrap();
    let error = Store::open(dir.path()).expect_err("damaged");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("results.db"), "{error}");
}

#[test]
fn a_place_that_is_a_file_is_named() {
    let dir = folder();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Store::open(&file).expect_err("no folder").to_string();
    assert!(error.contains("/file is not a directory"), "{error}");
}

#[test]
fn a_plan_of_another_version_is_named_and_the_list_still_works() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    writer.connection.execute("UPDATE plan SET header = '{}'", []).expect("writable");
    let error = store.load("demo-1").expect_err("another version").to_string();
    assert!(error.contains("the plan of the run demo-1"), "{error}");
    assert_eq!(store.list().expect("lists").len(), 1);
}

/// Number of times that the writer is killed, each time at another moment.
const KILLS: u32 = 12;

#[test]
fn a_kill_at_any_moment_loses_at_most_the_sample_in_flight() {
    let dir = folder();
    let (store, writer) = new_run(dir.path(), "demo-1");
    drop(writer);
    let mut reported = BTreeSet::new();
    for kill in 0..KILLS {
        let mut child = spawn_writer(dir.path(), kill);
        let out = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let mut landings = out.filter_map(|line| landed(&line));
        // Every third writer is killed early, perhaps while it opens the store; the others after some samples and a
        // part of the next one.
        let samples = if kill % 3 == 0 { 0 } else { 3 * kill as usize };
        reported.extend(landings.by_ref().take(samples));
        std::thread::sleep(Duration::from_micros(u64::from(kill) * 977 % 5_000));
        child.kill().expect("SIGKILL");
        child.wait().expect("dead");
        reported.extend(landings);
        let kept = check_after_kill(&store);
        assert!(kept.is_superset(&reported), "lost: {:?}", reported.difference(&kept));
        let unreported = kept.difference(&reported).count();
        assert!(unreported <= 1 + kill as usize, "{unreported} samples more than were reported");
    }
    println!("{KILLS} kills, {} samples", reported.len());
    assert!(reported.len() > KILLS as usize, "the writer got to write: {}", reported.len());
}

/// Checks the database after a kill, and returns the keys of the stored samples.
fn check_after_kill(store: &Store) -> BTreeSet<(usize, u32)> {
    let check: String =
        store.connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).expect("can be checked");
    assert_eq!(check, "ok");
    let listed = store.list().expect("lists");
    assert_eq!((listed.len(), listed[0].state), (1, Condition::Killed));
    let run = store.load("last").expect("there");
    assert!(run.samples.is_empty() || run.wall_seconds > 0.0, "the time is kept with each sample");
    run.samples.iter().map(|sample| (sample.cell, sample.round)).collect()
}

/// Starts this test program again as the writer to be killed.
fn spawn_writer(dir: &Path, session: u32) -> Child {
    let (_, module) = module_path!().split_once("::").expect("the test program's name, then the module");
    let mut program = Command::new(std::env::current_exe().expect("a test program"));
    program.args(["--exact", &format!("{module}::writes_until_it_is_killed"), "--ignored", "--nocapture"]);
    program.env(STORE, dir).env(SESSION, session.to_string());
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts")
}

const STORE: &str = "VTAX_TEST_STORE";
const SESSION: &str = "VTAX_TEST_SESSION";

#[test]
#[ignore = "the victim of a_kill_at_any_moment_loses_at_most_the_sample_in_flight, which starts it"]
fn writes_until_it_is_killed() {
    let dir = std::env::var_os(STORE).expect("started by the other test");
    let session: usize = std::env::var(SESSION).expect("started by the other test").parse().expect("a number");
    let store = Store::open(Path::new(&dir)).expect("opens");
    let mut writer = store.resume("demo-1").expect("killed");
    for round in 1..5_000 {
        writer.samples(&[sample(session, Arm::A, round)]).expect("lands");
        let mut out = std::io::stdout();
        writeln!(out, "\nlanded {session} {round}").and_then(|()| out.flush()).expect("a reader");
    }
}

/// Parses a line if it was written completely.
fn landed(line: &str) -> Option<(usize, u32)> {
    let mut words = line.strip_prefix("landed ")?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The rows of a run contain arbitrary data: its plan, a sample and a failure, each terminated by a byte that occurs in
/// no text.
#[test]
fn fuzz_stores() {
    let dir = folder();
    let (store, mut writer) = new_run(dir.path(), "demo-1");
    let (sample, error) = (sample(0, Arm::A, 1), "late".into());
    let failure = Failure { cell: 1, arm: Arm::A, round: 1, error, partial: None };
    writer.samples(std::slice::from_ref(&sample)).expect("lands");
    writer.failure(&failure).expect("lands");
    writer.finish(RunState::Stopped, 1.5).expect("ends");
    let mut small = header("demo-1", "2026-01-01T00:00:00Z");
    small.study.cells.truncate(2);
    let json = |text: serde_json::Result<String>| text.expect("it can be written").into_bytes();
    let seed = [
        json(serde_json::to_string(&small)),
        json(serde_json::to_string(&sample)),
        json(serde_json::to_string(&failure)),
    ];
    let plain = store.load("demo-1").expect("there");
    store.connection.pragma_update(None, "synchronous", "OFF").expect("set");
    vtax_fuzz::fuzz("stores", &[seed.join(&0xff)], move |bytes| {
        let _ = &dir;
        let texts: Vec<_> = bytes.split(|byte| *byte == 0xff).map(String::from_utf8_lossy).collect();
        for (text, into) in texts.iter().zip(["plan SET header", "sample SET body", "failure SET body"]) {
            store.connection.execute(&format!("UPDATE {into} = ?1"), [text]).expect("written");
        }
        assert_eq!(store.list().expect("a list").len(), 1);
        let read = store.load("demo-1");
        if let Err(error) = &read {
            assert!(error.to_string().contains("demo-1"), "{error}");
        }
        let _ = store.complete_plans("demo");
        let run = read.ok()?;
        assert_eq!(run.samples.len(), plain.samples.len());
        Some(())
    });
}
