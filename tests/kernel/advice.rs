//! Advice on this machine: for unmeasured requirements there are commands, which decide them.

use serde_json::Value;

use crate::bench::Bench;

/// Three short samples show that these are met, even if the machine pauses during one of them.
const REQUIRED: [&str; 5] = ["advise", "--p99", "1h", "--bandwidth", "1k"];

fn advice(bench: &Bench) -> (Option<i32>, Value) {
    let output = bench.vtax(&[&REQUIRED[..], &["--json"]].concat());
    (output.status.code(), serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn row<'a>(advice: &'a Value, method: &str) -> &'a Value {
    let rows = advice["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["variant"] == method).unwrap_or_else(|| panic!("no {method} in {advice:#}"))
}

#[test]
fn without_results_there_are_commands_and_no_figures() {
    let bench = Bench::new();
    let output = bench.vtax(&REQUIRED);
    let [printed, told] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("error[no-evidence]"), "{told}");
    assert!(printed.contains("not measured") && printed.contains("vtax run sparc-t7-1 --quick"), "{printed}");
    assert!(!printed.contains("meets all requirements"), "{printed}");
    let (code, advice) = advice(&bench);
    assert_eq!((code, advice["schema"].as_str()), (Some(69), Some("vtax.advice/v1")));
    assert_eq!(row(&advice, "bridge")["verdict"], "not-measured");
    let dry = bench.printed(&[&REQUIRED[..], &["--measure", "--dry-run"]].concat());
    assert!(dry.lines().count() > 3 && dry.lines().all(|line| line.starts_with("vtax run ")), "{dry}");
}

#[test]
fn each_command_decides_its_method() {
    let bench = Bench::new();
    let (_, before) = advice(&bench);
    for method in ["veth", "bridge", "macvlan"] {
        let command = row(&before, method)["commands"][0]["command"].as_str().expect("a command");
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let (samples, options) = words.split_last().expect("words");
        assert_eq!(*samples, "20", "{command}");
        // A 99th percentile requires 368 transactions per sample.
        bench.printed(&[options, &["3", "--duration", "300ms", "--warmup", "1ms"]].concat());
    }
    let (code, after) = advice(&bench);
    assert_eq!(code, Some(0), "{after:#}");
    for method in ["veth", "bridge", "macvlan"] {
        let row = row(&after, method);
        assert_eq!(row["verdict"], "meets", "{row:#}");
        assert!(row["figures"].as_array().is_some_and(|figures| figures.iter().all(|figure| figure["mean"].is_f64())));
    }
    assert_eq!(row(&after, "vxlan")["verdict"], "not-measured");
}
