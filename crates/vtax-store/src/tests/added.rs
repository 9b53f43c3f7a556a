//! Complete runs that are stored at once.

use vtax_model::run::Run;

use super::*;

fn complete(id: &str, samples: u32) -> Run {
    let header = header(id, "2026-01-01T00:00:00Z");
    let samples = (1..=samples).map(|round| sample(0, Arm::A, round)).collect();
    let failure = Failure { cell: 1, arm: Arm::A, round: 1, error: "cancelled".into(), partial: None };
    Run { header, state: RunState::Complete, wall_seconds: 3.5, samples, failures: vec![failure] }
}

#[test]
fn a_complete_run_is_added_with_its_findings() {
    let dir = folder();
    let store = Store::open(dir.path()).expect("opens");
    let run = complete("demo-1", 2);
    store.add(&run).expect("there is room");
    assert_eq!(whole(&store, "demo-1"), run.samples);
    let back = store.load("demo-1").expect("there");
    assert_eq!((back.state, back.wall_seconds, &back.failures), (RunState::Complete, 3.5, &run.failures));
    let listed = &store.list().expect("lists")[0];
    assert_eq!((listed.state, listed.samples, listed.failures), (Condition::Complete, 2, 1));
    assert_eq!(store.runs_without_findings().expect("searched"), 0);
    assert!(matches!(store.add(&run), Err(StoreError::Exists { id }) if id == "demo-1"));
}

#[test]
fn a_run_that_does_not_fit_leaves_nothing() {
    let dir = folder();
    let store = Store::open(dir.path()).expect("opens");
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).expect("pages");
    store.connection.pragma_update(None, "max_page_count", pages + 8).expect("limited");
    let error = store.add(&complete("demo-1", 10_000)).expect_err("it is too large");
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert_eq!(store.list().expect("lists"), []);
    store.add(&complete("demo-1", 1)).expect("a smaller one fits");
}

const STORE: &str = "VTAX_TEST_ADDED_STORE";

/// Each killed process may leave a whole run, but no part of one.
#[test]
fn a_kill_at_any_moment_leaves_whole_runs_only() {
    let dir = folder();
    drop(Store::open(dir.path()).expect("opens"));
    for kill in 0..KILLS {
        let (_, module) = module_path!().split_once("::").expect("the test program's name, then the module");
        let mut program = Command::new(std::env::current_exe().expect("a test program"));
        program.args(["--exact", &format!("{module}::adds_until_it_is_killed"), "--ignored", "--nocapture"]);
        program.env(STORE, dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = program.spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let added = out.filter(|line| line == "added").take(2).count();
        std::thread::sleep(Duration::from_micros(u64::from(kill) * 977 % 5_000));
        child.kill().expect("SIGKILL");
        child.wait().expect("dead");
        assert_eq!(added, 2, "it has added some before it was killed");
    }
    let store = Store::open(dir.path()).expect("opens");
    let listed = store.list().expect("lists");
    assert!(listed.len() >= 2 * KILLS as usize, "{}", listed.len());
    for run in listed {
        assert_eq!((run.state, run.samples, run.failures), (Condition::Complete, 100, 1), "{}", run.id);
    }
}

#[test]
#[ignore = "the victim of a_kill_at_any_moment_leaves_whole_runs_only, which starts it"]
fn adds_until_it_is_killed() {
    let dir = std::env::var_os(STORE).expect("started by the other test");
    let store = Store::open(Path::new(&dir)).expect("opens");
    for number in 0..5_000 {
        store.add(&complete(&format!("demo-{}-{number}", std::process::id()), 100)).expect("there is room");
        let mut out = std::io::stdout();
        writeln!(out, "\nadded").and_then(|()| out.flush()).expect("a reader");
    }
}
