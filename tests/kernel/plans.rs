//! Plans that fit the question: number of rounds, detectable differences, and the message if there are none.

use std::process::Stdio;

use super::{
    Bench, assert_nothing_left,
    bench::{printed, wait_until},
    json,
};

/// A study with one comparison, whose samples take a few tens of milliseconds.
const PAIR: &str = r#"
    id = "pair"
    title = "One pair"
    baseline = "native"
    [matrix]
    methods = ["native", "veth"]
    mtu = [1500]
    transports = ["udp"]
    tests = ["rr"]
    [plan]
    samples = 7
    duration = "30ms"
"#;

fn told(bench: &Bench, arguments: &[&str], status: i32) -> String {
    let output = bench.vtax(arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {told}");
    told
}

fn rounds(bench: &Bench) -> u64 {
    let result = json(bench, &["results", "export", "last"]);
    result["plan"]["samples"].as_u64().expect("a number")
}

#[test]
fn detectable_differences_come_from_the_first_rounds_and_then_from_the_last_run() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let first = told(&bench, &["run", "pair.toml"], 0);
    assert!(first.contains("plan: 7 rounds, about") && first.contains("reported after the first 6 rounds"), "{first}");
    assert!(first.contains("after 6 rounds: 7 rounds, about"), "{first}");
    let second = told(&bench, &["run", "pair.toml"], 0);
    assert!(second.contains("(from your run pair-") && !second.contains("after 6 rounds"), "{second}");
    let few = told(&bench, &["run", "pair.toml", "--samples", "3"], 0);
    assert!(few.contains("3 rounds cannot show any difference: one comparison needs at least 6"), "{few}");
    assert_nothing_left(&bench);
}

/// A dry run prints what a run would print before it starts.
#[test]
fn a_dry_run_tells_the_plan_and_changes_nothing() {
    let bench = Bench::new().with("pair.toml", PAIR);
    insta::assert_snapshot!(bench.printed(&["run", "pair.toml", "--dry-run", "--seed", "7"]));
    assert!(!bench.state().exists(), "it made a store");
    let run = told(&bench, &["run", "pair.toml"], 0);
    assert!(
        run.contains("plan: 7 rounds, about 1 s; detectable differences are reported after the first 6 rounds"),
        "{run}"
    );
    let dry = json(&bench, &["run", "pair.toml", "--dry-run", "--json"]);
    let again = told(&bench, &["run", "pair.toml"], 0);
    assert!(again.contains(dry["told"][0].as_str().expect("a sentence")), "{dry}\n{again}");
    assert_eq!((dry["samples"].as_u64(), dry["first_round"].as_array().map(Vec::len)), (Some(21), Some(3)));
    assert!(dry["known_from"].as_str().is_some_and(|run| run.starts_with("pair-")), "{dry}");
    assert!(dry["shown"][0]["test"] == "rr" && dry["lab"]["steps"].as_u64() > Some(5), "{dry}");
    assert_eq!(bench.printed(&["results", "list"]).lines().count(), 4, "two runs under a head and a rule");
    assert_nothing_left(&bench);
}

#[test]
fn a_run_tells_each_sample_or_nothing() {
    let bench = Bench::new().with("pair.toml", PAIR);
    assert_eq!(told(&bench, &["run", "pair.toml", "--quiet"], 0), "");
    let all = told(&bench, &["run", "pair.toml", "-v"], 0);
    assert_eq!(all.lines().filter(|line| line.starts_with("sample ")).count(), 21, "{all}");
    assert!(bench.refused(&["run", "pear.toml", "-q"]).contains("no-such-study"));
}

#[test]
fn a_dry_run_refuses_what_a_run_refuses() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let refused = |arguments: &[&str]| bench.refused(&[&["run", "pair.toml", "--dry-run"], arguments].concat());
    assert!(refused(&["--methods", "vteh"]).contains("vteh"));
    assert!(refused(&["--format", "csv"]).contains("--format json"));
    let congestion = bench.refused(&["run", "demo", "--dry-run", "--congestion", "reno2"]);
    assert!(congestion.contains("no such congestion control"), "{congestion}");
    let few = bench.printed(&["run", "pair.toml", "--dry-run", "--samples", "3"]);
    assert!(few.contains("3 rounds cannot show any difference: one comparison needs at least 6"), "{few}");
    let shows = bench.printed(&["run", "pair.toml", "--dry-run", "--show", "2%"]);
    assert!(shows.contains("plan: 6 rounds first, to estimate how many --show 2% needs"), "{shows}");
    let precise = bench.printed(&["run", "pair.toml", "--dry-run", "--confidence", "95", "--width", "10"]);
    assert!(precise.contains("plan: at most 30 rounds, about 3 s"), "{precise}");
}

#[test]
fn a_budget_is_kept_by_a_pilot_and_by_the_last_run() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let first = told(&bench, &["run", "pair.toml", "--budget", "15s"], 0);
    assert!(first.contains("plan: 6 rounds first") && first.contains("--budget 15s: "), "{first}");
    assert!(rounds(&bench) >= 6, "{first}");
    let short = bench.refused(&["run", "pair.toml", "--budget", "1ms"]);
    assert!(short.contains("too short for one round, according to the run pair-"), "{short}");
    let noisy = bench.refused(&["run", "pair.toml", "--show", "0.000001%"]);
    assert!(noisy.contains("too noisy"), "{noisy}");
    assert_nothing_left(&bench);
}

#[test]
fn a_pilot_that_finds_no_number_of_rounds_ends_with_1() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let told = told(&bench, &["run", "pair.toml", "--show", "0.000001%"], 1);
    assert!(told.contains("warning: --show 0.000001%: too noisy") && told.contains("first 6 rounds"), "{told}");
    assert_nothing_left(&bench);
}

#[test]
fn kill_9_in_a_pilot_is_resumed_until_the_rounds_are_chosen() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let mut command = bench.command(&["run", "pair.toml", "--budget", "10s"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
    wait_until("a sample has landed", || bench.landed() >= 1);
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    wait_until("the agents are gone with vtax", || super::processes_of(bench.path()).is_empty());
    let told = told(&bench, &["run", "--resume", "last"], 0);
    assert!(told.contains("--budget 10s: "), "{told}");
    assert!(rounds(&bench) >= 6, "{told}");
    assert_nothing_left(&bench);
}

/// Regression test: `--confidence 95 --width 10` ended at 30 rounds with 131 [121, 141], without a warning and with
/// exit status 0.
#[test]
fn a_precision_that_was_not_reached_ends_with_1_and_can_be_extended() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let first = told(&bench, &["run", "pair.toml", "--confidence", "95", "--width", "0.001", "--max", "3"], 1);
    assert!(first.contains("NOT PRECISE ENOUGH: after 3 rounds") && first.contains("2 of 2 cells"), "{first}");
    let second = told(&bench, &["run", "--resume", "last", "--samples", "5"], 1);
    assert!(second.contains("NOT PRECISE ENOUGH: after 5 rounds"), "{second}");
    assert_eq!(bench.landed(), 5 * 3);
    assert_nothing_left(&bench);
}

/// Regression test: such a comparison used to print no warning.
#[test]
fn a_run_is_not_compared_with_itself_nor_with_what_it_shares_nothing_with() {
    let bench = Bench::new().with("pair.toml", PAIR);
    let few = ["run", "pair.toml", "--samples", "1"];
    printed(&bench.vtax(&few));
    let same = bench.refused(&["results", "compare", "last", "last"]);
    assert!(same.contains("are the same run, pair-"), "{same}");
    let first = json(&bench, &["results", "export", "last"])["id"].as_str().expect("an id").to_owned();
    printed(&bench.vtax(&[
        "run",
        "demo",
        "--methods",
        "native",
        "--mtu",
        "9000",
        "--samples",
        "1",
        "--duration",
        "30ms",
    ]));
    let unlike = bench.refused(&["results", "compare", &first, "last"]);
    assert!(unlike.contains("no cell in common") && unlike.contains("native, 1 cell"), "{unlike}");
    assert_nothing_left(&bench);
}
