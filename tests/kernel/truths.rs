//! vtax's figures for reference cases, compared with known values and other tools.

use serde_json::Value;

use super::{Bench, assert_nothing_left, bench, json};

/// Returns a calibration's JSON, whether or not its own (tighter) tolerances were met: other programs may keep the
/// machine busy.
fn calibrated(bench: &Bench, arguments: &[&str]) -> Value {
    let output = bench.vtax(&[&["calibrate", "--json"], arguments].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{told}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn record<'a>(calibration: &'a Value, name: &str) -> &'a Value {
    let truths = calibration["truths"].as_array().expect("truths");
    truths.iter().find(|truth| truth["name"] == name).unwrap_or_else(|| panic!("no truth {name}"))
}

fn truth<'a>(calibration: &'a Value, name: &str) -> (f64, f64, &'a str) {
    let truth = record(calibration, name);
    let number = |key: &str| truth[key].as_f64().expect("a number");
    (number("expected"), number("measured"), truth["detail"].as_str().expect("a text"))
}

/// Returns true if vtax reports too much load from other programs to judge.
fn is_too_busy(calibration: &Value, name: &str) -> bool {
    let truth = record(calibration, name);
    let busy = ["other_programs", "stolen"].iter().any(|share| truth["load"][share].as_f64() > Some(0.05));
    busy && truth["verdict"] == "too-busy"
}

/// Fails unless the figure is near the expected value, or vtax reports that the machine was too busy.
fn assert_near(calibration: &Value, name: &str, tolerance: f64) {
    let (expected, measured, detail) = truth(calibration, name);
    let is_near = (measured / expected - 1.0).abs() <= tolerance;
    assert!(is_near || is_too_busy(calibration, name), "{name}: {measured} for {expected}, {detail}");
}

#[test]
fn a_shaped_wire_gives_the_goodput_that_arithmetic_gives() {
    let bench = Bench::alone();
    let calibration = calibrated(&bench, &["--rounds", "0", "--only", "100m,1g"]);
    for name in ["udp-100m", "tcp-100m", "udp-1g", "tcp-1g"] {
        assert_near(&calibration, name, 0.04);
    }
    assert_nothing_left(&bench);
}

#[test]
fn a_responder_that_waits_raises_the_median_by_that() {
    let bench = Bench::alone();
    let calibration = calibrated(&bench, &["--rounds", "0", "--only", "delay"]);
    assert_near(&calibration, "delay-1ms", 0.1);
    assert_near(&calibration, "delay-200us", 0.3);
    // Interleaved slices find this delay even while compilers use all CPUs.
    assert_near(&calibration, "delay-5us", 0.2);
}

/// These cases depend on other load, and vtax must distinguish a busy machine from a wrong figure. So this test does
/// not run alone.
#[test]
fn a_truth_that_a_busy_machine_hides_is_not_called_wrong() {
    let bench = Bench::new();
    let calibration = calibrated(&bench, &["--rounds", "0", "--only", "length,spinner"]);
    let load = &calibration["load"];
    assert!(load["other_programs"].is_number() && load["stolen"].is_number(), "{load}");
    for truth in calibration["truths"].as_array().expect("truths") {
        let busy = ["other_programs", "stolen"].iter().any(|share| truth["load"][share].as_f64() > Some(0.05));
        let verdict = truth["verdict"].as_str().expect("a verdict");
        let may = if busy { ["holds", "too-busy"] } else { ["holds", "too-noisy"] };
        assert!(may.contains(&verdict), "{truth}");
    }
    let (burnt, _, detail) = truth(&calibration, "spinner-50");
    // The expected value is the thread's CPU time from the scheduler, which excludes time taken by other programs.
    assert!(burnt > 0.0 && burnt <= 600.0, "{burnt}, {detail}");
    assert_nothing_left(&bench);
}

/// A stall hidden by a closed loop is visible in the open loop.
#[test]
fn a_stall_shows_in_the_open_loop_and_hides_in_the_closed_one() {
    let bench = Bench::alone();
    let calibration = calibrated(&bench, &["--rounds", "0", "--only", "stall"]);
    let measured = |name: &str| truth(&calibration, name).1;
    assert!(measured("stall-max") >= 99.0, "{}", measured("stall-max"));
    assert!(measured("stall-p999") >= 90.0, "{}", measured("stall-p999"));
    let hidden = measured("stall-closed-loop");
    assert!(hidden < 60.0 || is_too_busy(&calibration, "stall-closed-loop"), "{hidden}");
}

#[test]
fn frames_dropped_by_a_wire_are_counted_exactly() {
    let bench = Bench::new();
    let calibration = calibrated(&bench, &["--rounds", "0", "--only", "loss"]);
    let (dropped, counted, detail) = truth(&calibration, "loss");
    assert!(dropped > 100.0, "the wire was to drop most of it: {detail}");
    assert_eq!(counted, dropped, "{detail}");
}

#[test]
fn the_noise_floor_includes_the_detectable_difference() {
    let bench = Bench::new();
    let calibration = calibrated(&bench, &["--rounds", "6", "--duration", "80ms", "--only", "loss"]);
    let floors = calibration["floors"].as_array().expect("floors");
    assert_eq!(floors.len(), 4);
    for floor in floors {
        assert!(floor["floor"].as_f64().is_some_and(|floor| floor >= 0.0), "{floor}");
        let shown = floor["smallest_shown"].as_array().expect("a list");
        assert!(shown[0].get("difference").is_none(), "five samples can show nothing at 5 %: {floor}");
        assert!(shown[3]["difference"].is_number(), "{floor}");
    }
    assert!(calibration["clock"]["reading_ns"].as_f64().is_some_and(|ns| ns > 0.0));
}

/// Checks that both tools measured the same thing: the interval, which other load widens, contains a ratio near 1.
fn assert_same(other: &Value) {
    let end = |end: &str| other["ratio"][end].as_f64().expect("a number");
    assert!(end("low") < 5.0 && end("high") > 0.2, "{other}");
}

/// Requires the tools that `scripts/setup.sh test` installs.
#[test]
fn other_tools_measure_the_same_wire() {
    let bench = Bench::new();
    let found = json(&bench, &["crosscheck", "--rounds", "3", "--only", "tcp-rr,tcp-stream-16KiB", "--json"]);
    let contests = found["contests"].as_array().expect("contests");
    assert_eq!(contests.len(), 2);
    for (contest, tool) in contests.iter().zip(["sockperf", "iperf3"]) {
        assert_eq!(contest["ours"].as_array().map(Vec::len), Some(3));
        let others = contest["others"].as_array().expect("others");
        let other = others.iter().find(|other| other["tool"] == tool).unwrap_or_else(|| panic!("no {tool}"));
        assert_same(other);
    }
    assert_eq!((&found["idle"], &found["congestion_control"]), (&"system".into(), &serde_json::Value::Null));
    bench::wait_until("no lab is left", || !super::labs(&bench).iter().any(|lab| lab.starts_with("crosscheck")));
}

/// The other tools transfer a number of bytes instead of running for whole seconds, with idle states disabled for all.
#[test]
fn other_tools_take_short_turns() {
    let bench = Bench::new();
    let call = ["crosscheck", "--rounds", "4", "--duration", "50ms", "--idle", "poll", "--congestion", "reno"];
    let tests = ["--tools", "iperf3,sockperf", "--only", "tcp-rr,tcp-stream-16KiB", "--json"];
    let found = json(&bench, &[call.as_slice(), &tests].concat());
    assert_eq!((&found["idle"], &found["congestion_control"]), (&"poll".into(), &"reno".into()));
    assert_eq!(found["idle_not_held"], serde_json::Value::Null);
    let contests = found["contests"].as_array().expect("contests");
    assert_eq!(contests[0]["left_out"][0]["tool"], "sockperf");
    let iperf3 = &contests[1]["others"][0];
    assert_eq!(iperf3["figures"].as_array().map(Vec::len), Some(4), "{iperf3}");
    assert_same(iperf3);
}
