//! Studies that run to completion.

use std::process::Output;

use serde_json::Value;

use super::{Bench, assert_nothing_left, bench::printed, json};

fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().expect("cells")
}

/// Returns the result that `vtax measure --json` printed; its first cell must be measured.
pub(super) fn measured(output: &Output) -> Value {
    let result: Value = serde_json::from_str(&printed(output)).expect("JSON");
    assert_schema(&result);
    assert_eq!(result["cells"][0]["status"], "measured", "{}", result["failures"]);
    result
}

pub(super) fn assert_schema(result: &Value) {
    let schema = include_str!("../../docs/vtax.result.v1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(result).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Runs every method that this kernel supports, at both MTUs, over both transports, in both tests.
fn every_cell_is_measured(more: &[&str]) {
    let bench = Bench::new();
    let arguments = [&["run", "demo", "--mode", "controlled", "--samples", "2", "--json"], more].concat();
    let result = json(&bench, &arguments);
    assert_schema(&result);
    for cell in cells(&result) {
        let method = cell["method"].as_str().expect("a method");
        match cell["status"].as_str() {
            Some("measured") => {}
            Some("unavailable") => assert!(cell["remedy"].is_string() && method != "bridge", "{method}"),
            _ => panic!("{method} was not measured: {cell:#}"),
        }
    }
    let mtus =
        |cell: &Value| cell["path"]["hops"].as_array().map(|hops| hops.iter().map(|hop| hop["mtu"].as_u64()).collect());
    for cell in cells(&result).iter().filter(|cell| cell["status"] == "measured") {
        let mtus: Vec<Option<u64>> = mtus(cell).expect("a path");
        let wanted = cell["mtu"].as_u64();
        assert!(mtus.len() >= 2 && mtus.contains(&wanted), "{}: {mtus:?}", cell["method"]);
    }
    assert_nothing_left(&bench);
}

#[test]
fn every_method_against_a_native_peer() {
    every_cell_is_measured(&[]);
}

#[test]
fn every_method_over_ipv6() {
    every_cell_is_measured(&["--family", "ipv6"]);
}

#[test]
fn every_method_at_both_ends() {
    every_cell_is_measured(&["--both"]);
}

#[test]
fn the_t7_1_study_names_what_is_missing() {
    let bench = Bench::new();
    let arguments = ["run", "sparc-t7-1", "--quick", "--samples", "1", "--duration", "80ms", "--warmup", "5ms"];
    let text = bench.printed(&[&arguments[..], &["--published"]].concat());
    for method in ["assigned", "sr-iov", "paravirtual"] {
        assert!(text.contains(method) && text.contains("not available"), "{text}");
    }
    assert_nothing_left(&bench);
}

#[test]
fn a_file_goes_from_zone_to_zone() {
    let bench = Bench::new();
    let dir = bench.path().to_str().expect("text").to_owned();
    let arguments = ["run", "ip-instances", "--size", "8 MiB", "--samples", "2", "--dir", &dir, "--json"];
    let result = json(&bench, &arguments);
    assert_schema(&result);
    for cell in cells(&result) {
        assert_eq!(cell["status"], "measured", "{}", cell["method"]);
        for sample in cell["samples"].as_array().expect("samples") {
            assert_eq!(sample["bytes"], 8 << 20);
            assert!(sample["file"]["real"].as_f64().is_some_and(|real| real > 0.0));
        }
    }
    assert_nothing_left(&bench);
}

#[test]
fn traffic_of_an_exclusive_zone_leaves_the_host() {
    let bench = Bench::new();
    let result = json(&bench, &["run", "ip-instances", "--size", "1 MiB", "--samples", "1", "--json"]);
    let path = |method: &str| {
        let cell = cells(&result).iter().find(|cell| cell["method"] == method).expect("a cell");
        let hops = cell["path"]["hops"].as_array().expect("hops").iter();
        hops.map(|hop| hop["domain"].as_str().expect("a domain").to_owned()).collect::<Vec<_>>()
    };
    assert!(path("exclusive-to-exclusive").contains(&"switch".to_owned()));
    assert!(path("exclusive-to-shared").contains(&"switch".to_owned()));
    assert!(!path("shared-to-shared").contains(&"switch".to_owned()));
}

#[test]
fn several_streams_and_a_stopping_rule() {
    let study = r#"
id = "streams"
title = "Four streams"
baseline = "native"
[matrix]
methods = ["native", "bridge"]
mtu = [1500]
transports = ["tcp", "udp"]
tests = ["rr", "stream"]
streams = [4]
[plan]
samples = 2
duration = "40ms"
"#;
    let bench = Bench::new().with("streams.toml", study);
    // The width is large enough to be reached; otherwise the exit status would be 1.
    let rule = ["--confidence", "99", "--width", "1000000", "--min", "2", "--max", "3"];
    let result = json(&bench, &[&["run", "streams.toml", "--json"], &rule[..]].concat());
    assert_schema(&result);
    assert!(cells(&result).iter().all(|cell| cell["streams"] == 4 && cell["status"] == "measured"));
    assert!((2..=3).contains(&result["plan"]["rounds"].as_u64().expect("rounds")));
    assert_nothing_left(&bench);
}

#[test]
fn results_are_listed_shown_compared_and_exported() {
    let bench = Bench::new();
    let run = ["run", "demo", "--methods", "bridge", "--mode", "controlled", "--samples", "2", "--json"];
    let ids: Vec<String> = (0..2).map(|_| json(&bench, &run)["id"].as_str().expect("an id").to_owned()).collect();
    let list = bench.printed(&["results", "list"]);
    assert!(ids.iter().all(|id| list.contains(id)), "{list}");
    // Two rounds show no difference, and their noise is random.
    let answers = ["no difference shown", "too noisy to tell"].map(|answer| format!("{answer} · Cost of zone"));
    assert_eq!(answers.iter().map(|answer| list.matches(answer.as_str()).count()).sum::<usize>(), 2, "{list}");
    assert!(bench.printed(&["results", "show", &ids[0], "--detail"]).contains("bridge"));
    assert!(bench.printed(&["results", "compare", &ids[0], &ids[1]]).contains("bridge"));
    assert_schema(&json(&bench, &["results", "export", &ids[1], "--json"]));
    let csv = bench.printed(&["results", "export", &ids[1], "--csv"]);
    assert_eq!(csv.lines().count(), 1 + 16, "a header and a line a cell");
    assert!(bench.printed(&["results", "show", "last", "--format", "markdown", "--detail"]).contains("| bridge"));
}
