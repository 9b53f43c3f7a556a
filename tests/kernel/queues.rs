//! Several guests at the same time, and paths between hosts and guests, end to end with a few short samples.

use serde_json::Value;

use super::{Bench, assert_nothing_left, json, studies::assert_schema};

fn cell<'a>(result: &'a Value, method: &str) -> &'a Value {
    let cells = result["cells"].as_array().expect("cells");
    let of_row = cells.iter().find(|cell| cell["method"] == method);
    of_row.unwrap_or_else(|| panic!("no {method}: {cells:?}"))
}

/// Returns the initiator and the responder of each pair.
fn pairs(cell: &Value) -> Vec<(String, String)> {
    let name = |end: &Value| end["name"].as_str().expect("a name").to_owned();
    let pairs = cell["ends"]["pairs"].as_array().expect("ends");
    pairs.iter().map(|pair| (name(&pair["initiator"]), name(&pair["responder"]))).collect()
}

/// Uses one size of the built-in study: the others would only take longer.
#[test]
fn clients_measure_at_the_same_time_into_a_guest_each() {
    let study = include_str!("../../crates/vtax-model/data/studies/vmdq.toml");
    assert!(study.contains("[64, 256, 1024]"));
    let bench = Bench::new().with("queues.toml", &study.replace("[64, 256, 1024]", "[64]"));
    let few = ["--guests", "2", "--samples", "2", "--duration", "100ms", "--warmup", "20ms", "--json"];
    let result = json(&bench, &[&["run", "queues.toml"][..], &few].concat());
    assert_schema(&result);
    for (row, first, second) in [
        ("native", "host sut", "host sut"),
        ("shared-queue", "guest shared-queue-1", "guest shared-queue-2"),
        ("queue-per-guest", "guest queue-per-guest-1", "guest queue-per-guest-2"),
    ] {
        let cell = cell(&result, row);
        let between = |client: &str, guest: &str| (client.to_owned(), guest.to_owned());
        assert_eq!(pairs(cell), [between("host client-1", first), between("host client-2", second)]);
        let parallel = &cell["summary"]["parallel"];
        assert!(parallel["skew_us"].as_f64().is_some_and(|us| us >= 0.0), "{row}: {parallel}");
        let rates = parallel["pairs"].as_array().expect("pairs").iter().map(|pair| &pair["transactions_per_s"]["mean"]);
        assert!({ rates }.all(|rate| rate.as_f64().is_some_and(|rate| rate > 0.0)), "{row}: {parallel}");
    }
    let kinds = |row: &str| -> Vec<String> {
        let hops = cell(&result, row)["path"]["hops"].as_array().expect("a path").clone();
        hops.iter().map(|hop| hop["kind"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert!(kinds("queue-per-guest").contains(&"macvtap".to_owned()), "{:?}", kinds("queue-per-guest"));
    assert!(!kinds("shared-queue").contains(&"macvtap".to_owned()), "{:?}", kinds("shared-queue"));
    assert_nothing_left(&bench);
}

#[test]
fn paths_lead_from_hosts_and_guests_to_guests() {
    let bench = Bench::new();
    let few = ["--samples", "2", "--mtu", "1500", "--duration", "100ms", "--warmup", "20ms", "--json"];
    let result = json(&bench, &[&["run", "ovm3-tuning"][..], &few].concat());
    assert_schema(&result);
    // A row with a step has the endpoints of its path, and its settings are reported.
    assert_eq!(pairs(cell(&result, "host-to-guest+tcp")), pairs(cell(&result, "host-to-guest")));
    assert_eq!(cell(&result, "host-to-guest+all")["status"], "measured");
    assert_eq!(cell(&result, "host-to-host+host-cpus")["status"], "unavailable", "this machine has one socket");
    let steps: Vec<&str> =
        result["steps"].as_array().expect("a list").iter().filter_map(|step| step["step"].as_str()).collect();
    assert!(steps.contains(&"tcp") && steps.contains(&"all"), "{steps:?}");
    assert!(bench.printed(&["tune", "status"]).contains("No changes."));
    for (row, initiator, responder) in [
        ("host-to-host", "host sut", "host peer"),
        ("host-to-guest", "host sut", "guest below-host"),
        ("guest-to-guest", "guest same-host-from", "guest same-host-to"),
        ("guest-to-guest-across-hosts", "guest across-hosts-from", "guest across-hosts-to"),
    ] {
        let cell = cell(&result, row);
        assert_eq!(pairs(cell), [(initiator.to_owned(), responder.to_owned())]);
        assert_eq!(cell["samples"].as_array().map(Vec::len), Some(if row == "host-to-host" { 4 } else { 2 }), "{row}");
    }
    assert_nothing_left(&bench);
}
