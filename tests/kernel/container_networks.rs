//! The networks of containers as methods of labs and studies.

use serde_json::Value;

use super::{Bench, assert_nothing_left, json, labs::Up, studies::assert_schema};

const SHORT: [&str; 6] = ["--samples", "2", "--duration", "80ms", "--warmup", "10ms"];

const LAB: &str = r#"
[lab]
name = "t-networks"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[zone]]
name = "web"
host = "sut"
method = "published"
[[zone]]
name = "client"
host = "sut"
method = "pasta"
"#;

fn cell<'a>(result: &'a Value, row: &str) -> &'a Value {
    let cells = result["cells"].as_array().expect("cells");
    cells.iter().find(|cell| cell["method"] == row).unwrap_or_else(|| panic!("no {row}: {}", result["failures"]))
}

/// docker-proxy is not installed for tests, so that row may be unavailable and is then reported with a remedy.
#[test]
fn every_row_is_measured_or_named_with_the_remedy() {
    let bench = Bench::new();
    let result = json(&bench, &[&["run", "containers", "--mode", "host", "--json"], &SHORT[..]].concat());
    assert_schema(&result);
    for cell in result["cells"].as_array().expect("cells") {
        let method = cell["method"].as_str().expect("a method");
        match cell["status"].as_str() {
            Some("measured") => {}
            Some("unavailable") => {
                assert!(["ipvlan", "published-proxy"].contains(&method) && cell["remedy"].is_string(), "{cell:#}");
            }
            _ => panic!("{method} was not measured: {cell:#}"),
        }
    }
    // Only networks with a process that carries the traffic have CPU time of a relay; those of the kernel have none.
    for (method, has_process) in [("pasta", true), ("slirp4netns", true), ("nat", false), ("bridge", false)] {
        let relay = &cell(&result, method)["summary"]["host_cpu"]["relay"]["mean"];
        assert_eq!(relay.as_f64().is_some_and(|us| us > 0.0), has_process, "{method}: {relay}");
    }
    assert_nothing_left(&bench);
}

#[test]
fn rows_alternate_under_controlled_conditions() {
    let bench = Bench::new();
    let methods = ["--methods", "native,nat,published,pasta,slirp4netns"];
    let controlled = ["run", "containers", "--mode", "controlled", "--samples", "4", "--json"];
    let result = json(&bench, &[&controlled[..], &methods].concat());
    for cell in result["cells"].as_array().expect("cells") {
        assert_eq!(cell["status"], "measured", "{cell:#}");
    }
    assert_nothing_left(&bench);
}

/// The load of `--under` needs a second published port.
#[test]
fn a_published_port_is_measured_from_outside_and_a_zone_without_one_is_refused() {
    let bench = Bench::new().with("lab.toml", LAB);
    let up = Up::new(&bench, "t-networks");
    let to = |zone: &str| ["measure", "--from", "zone:t-networks/peer", "--to", zone].map(str::to_owned);
    let web = to("zone:t-networks/web");
    let web: Vec<&str> = web.iter().map(String::as_str).collect();
    let tests = ["--test", "tcp-rr,udp-rr,tcp-crr,tcp-stream", "--json"];
    let result = json(&bench, &[&web, &tests[..], &SHORT].concat());
    assert_schema(&result);
    let measured =
        |result: &Value| result["cells"].as_array().expect("cells").iter().all(|it| it["status"] == "measured");
    assert!(measured(&result), "{result:#}");
    let loaded = ["--test", "tcp-rr", "--under", "tcp-stream", "--json"];
    let result = json(&bench, &[&web, &loaded[..], &SHORT].concat());
    assert!(measured(&result), "{result:#}");
    let client = to("zone:t-networks/client");
    let client: Vec<&str> = client.iter().map(String::as_str).collect();
    let said = bench.refused(&[&client, &SHORT[..]].concat());
    assert!(said.contains("only opens connections itself"), "{said}");
    drop(up);
    assert_nothing_left(&bench);
}
