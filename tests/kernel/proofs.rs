//! `vtax tune prove`, between a zone of a lab and the host at the other end of its wire.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    Bench,
    bench::wait_until,
    json,
    labs::Up,
    tuning::{RMEM, SMALL, bench, inside, mtu, sysctl},
};

/// Sets a receive buffer that is far too small: the window is a segment or two, so that a stream waits for a round trip
/// after each. That costs many times more than any other load on the machine, and even more if a busy machine makes the
/// round trip longer.
fn spoil(bench: &Bench, lab: &str) {
    inside(bench, lab, &["sysctl", "-qw", &format!("{RMEM}={SMALL}")]);
}

fn from(lab: &str) -> Vec<String> {
    let end = |end: &str| format!("zone:{lab}/{end}");
    ["--from".into(), end("peer"), "--to".into(), end("web-1"), "--test".into(), "tcp-stream".into()].into()
}

fn prove(lab: &str, more: &[&str]) -> Vec<String> {
    let words = ["tune", "prove", "--mode", "controlled"].map(str::to_owned);
    words.into_iter().chain(more.iter().map(|word| (*word).to_owned())).chain(from(lab)).collect()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn a_small_buffer_is_proved_to_cost_bandwidth_and_its_change_is_kept() {
    let bench = bench("t-prove");
    let _up = Up::new(&bench, "t-prove");
    spoil(&bench, "t-prove");
    let kept = bench.path().join("kept.toml").display().to_string();
    let options = ["tcp-buffers", "moderate-rcvbuf", "--budget", "60s", "--json", "--write", &kept];
    let proved = json(&bench, &words(&prove("t-prove", &options)));
    assert_eq!(proved["kept"], serde_json::json!(["tcp-buffers"]), "{proved}");
    assert_eq!(proved["without"][0]["step"], "moderate-rcvbuf", "nothing of it is bad here: {proved}");
    let gain = proved["proof"]["steps"][0]["effects"][0]["tax"]["ratio"].as_f64().expect("a ratio");
    assert!(gain > 1.1, "{proved}");
    assert_ne!(sysctl(&bench, "t-prove", RMEM), SMALL);

    // A persisted change is like any other change, and the file makes the same change elsewhere.
    let (of_run, runs) = (proved["run"].as_str().expect("an id"), bench.printed(&["results", "list"]));
    assert!(runs.contains(of_run), "{runs}");
    bench.printed(&["tune", "revert", &proved["changes"][0]["id"].to_string()]);
    assert_eq!(sysctl(&bench, "t-prove", RMEM), SMALL);
    let applied = json(&bench, &["tune", "apply", "--file", &kept, "--host", "zone:t-prove/web-1", "--json"]);
    assert_eq!(applied["changes"].as_array().map(Vec::len), Some(1), "{applied}");
    assert_ne!(sysctl(&bench, "t-prove", RMEM), SMALL);
    bench.printed(&["tune", "revert"]);
}

#[test]
fn a_killed_proof_leaves_no_setting_changed_and_continues() {
    let bench = bench("t-prove-kill");
    let _up = Up::new(&bench, "t-prove-kill");
    spoil(&bench, "t-prove-kill");
    let command = prove("t-prove-kill", &["tcp-buffers", "--budget", "60s", "--keep-none"]);
    let mut vtax = bench.command(&words(&command)).spawn().expect("vtax starts");
    // vtax is killed while the setting is changed for a sample. Before the first sample the setting is changed once, to
    // see its effect.
    wait_until("a sample has landed", || bench.landed() > 0);
    await_change(&bench, "t-prove-kill");
    vtax.kill().expect("it is ours");
    vtax.wait().expect("it ends");
    let proved = json(&bench, &["tune", "prove", "--resume", "last", "--keep-none", "--budget", "60s", "--json"]);
    assert_eq!(proved["kept"], serde_json::json!(["tcp-buffers"]), "{proved}");
    assert_eq!((sysctl(&bench, "t-prove-kill", RMEM).as_str(), &proved["changes"]), (SMALL, &serde_json::json!([])));
    assert!(bench.printed(&["tune", "status"]).contains("No changes."));
}

/// Waits until the setting is changed.
fn await_change(bench: &Bench, lab: &str) {
    wait_until("the step is in force", || sysctl(bench, lab, RMEM) != SMALL);
}

#[test]
fn ctrl_c_in_the_confirmation_keeps_nothing() {
    let bench = bench("t-prove-stop");
    let _up = Up::new(&bench, "t-prove-stop");
    spoil(&bench, "t-prove-stop");
    let command = prove("t-prove-stop", &["tcp-buffers", "--budget", "60s"]);
    let mut command = bench.command(&words(&command));
    let mut vtax = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax starts");
    let mut told = BufReader::new(vtax.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let runs = told.by_ref().filter(|line| line.contains("samples to take")).take(2).count();
    assert_eq!(runs, 2, "the second run is the confirmation");
    await_change(&bench, "t-prove-stop");
    kill(Pid::from_raw(vtax.id().cast_signed()), Signal::SIGINT).expect("it is ours");
    let rest: Vec<String> = told.collect();
    assert_eq!(vtax.wait().expect("it ends").code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("nothing is kept without the confirmation run")), "{rest:?}");
    assert_eq!(sysctl(&bench, "t-prove-stop", RMEM), SMALL);
    assert!(bench.printed(&["tune", "status"]).contains("No changes."));
    assert!(!bench.state().join("proved").exists() && bench.printed(&["results", "list"]).contains("stopped"));
}

#[test]
fn the_round_trip_of_another_zone_is_measured_meanwhile() {
    let bench = bench("t-prove-guard");
    let _up = Up::new(&bench, "t-prove-guard");
    spoil(&bench, "t-prove-guard");
    let other = ["zone:t-prove-guard/web-2", "zone:t-prove-guard/peer,zone:t-prove-guard/web-2"];
    let options = ["tcp-buffers", "--guard", other[0], "--guard", other[1], "--budget", "30s", "--keep-none", "--json"];
    let proved = json(&bench, &words(&prove("t-prove-guard", &options)));
    let guards = proved["proof"]["steps"][0]["guards"].as_array().expect("a list").iter();
    let guards: Vec<_> = guards.filter(|guard| guard["path"] == "zone:t-prove-guard/web-2").collect();
    let figures: Vec<_> = guards.iter().map(|guard| guard["guard"].as_str().expect("a name")).collect();
    assert_eq!(figures, ["median", "p99", "median", "p99"], "{proved}");
    assert!(guards.iter().all(|guard| guard["ratio"].as_f64().is_some_and(|ratio| (0.05..20.0).contains(&ratio))));
    let refused = |more: &[&str]| bench.refused(&words(&prove("t-prove-guard", more)));
    assert!(refused(&["tcp-buffers", "--guard", "zone:t-prove-guard/web-9"]).contains("web-9"));
    assert!(
        refused(&[&["tcp-buffers"][..], &["--guard", "local"].repeat(5)].concat()).contains("--guard is given 5 times")
    );
}

#[test]
fn the_detectable_difference_of_a_budget_is_reported_before_the_first_counted_sample() {
    let bench = bench("t-prove-told");
    let _up = Up::new(&bench, "t-prove-told");
    spoil(&bench, "t-prove-told");
    let command = prove("t-prove-told", &["tcp-buffers", "--budget", "60s", "--keep-none"]);
    let mut command = bench.command(&words(&command));
    let mut vtax = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("vtax starts");
    let mut told = BufReader::new(vtax.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let forecast = told.by_ref().find(|line| line.contains("forecast for")).expect("it is told");
    assert!(forecast.contains("rounds") && forecast.contains("TCP stream"), "{forecast}");
    assert!(bench.landed() < 6, "it comes before the first rounds are over: {} samples", bench.landed());
    kill(Pid::from_raw(vtax.id().cast_signed()), Signal::SIGINT).expect("it is ours");
    drop(told);
    assert_eq!(vtax.wait().expect("it ends").code(), Some(130));
    assert_eq!(sysctl(&bench, "t-prove-told", RMEM), SMALL);
}

#[test]
fn an_impossible_proof_is_refused_before_anything_is_measured() {
    let bench = bench("t-prove-no");
    let _up = Up::new(&bench, "t-prove-no");
    let refused = |more: &[&str]| bench.refused(&words(&prove("t-prove-no", more)));
    assert!(refused(&["tcp-buffers"]).contains("none of the steps changes a setting"));
    assert!(refused(&["tcp-buffers", "--to", "zone:t-prove-no/web-2"]).contains("--to is given 2 times"));
    let of_connections = bench.refused(&["tune", "prove", "tcp-buffers", "--test", "tcp-crr"]);
    assert!(of_connections.contains("--test: slices apply to"), "{of_connections}");
    assert!(refused(&["no-such"]).contains("no rule `no-such`"));
    assert!(refused(&["bridge-netfilter"]).contains("never"));
    assert!(refused(&["--bundle", "mtu,no-such"]).contains("no-such"));
    assert!(bench.refused(&["tune", "prove"]).contains("--all-safe"));
    assert!(bench.refused(&["tune", "prove", "--resume", "last"]).contains("no run"));
    let broken = bench.path().join("broken.toml").display().to_string();
    fs::write(&broken, "schema = \"vtax.tuning/v1\"\nrun = 7\n").expect("written");
    assert!(bench.refused(&["tune", "apply", "--file", &broken]).contains("broken.toml:2"));
    assert_eq!(mtu(&bench, "t-prove-no"), "1500");
}
