//! `udp-multicast`: over switches with and without snooping, over IPv6, over a lossy wire, and in a study.

use serde_json::Value;

use super::{
    Bench, assert_nothing_left,
    bench::wait_until,
    json,
    labs::{Up, lab_file},
    studies::assert_schema,
};

/// Returns the file of a lab with three hosts on a switch.
fn lab(more: &str, of_switch: &str, of_wire: &str) -> String {
    format!(
        r#"
[lab]
name = "t-groups"
{more}
[[host]]
name = "sender"
[[host]]
name = "receiver"
[[host]]
name = "other"
[[host]]
name = "vsw"
switch = true
{of_switch}
[[wire]]
name = "w1"
ends = ["sender", "vsw"]
[[wire]]
name = "w2"
ends = ["vsw", "receiver"]
{of_wire}
[[wire]]
name = "w3"
ends = ["vsw", "other"]
"#
    )
}

/// Returns the only cell of a measured stream of this rate from one host to another.
fn streamed(bench: &Bench, bitrate: &str) -> Value {
    let ends = ["--from", "zone:t-groups/sender", "--to", "zone:t-groups/receiver"];
    let test = ["measure", "--test", "udp-multicast", "--message", "1000", "--bitrate", bitrate];
    let plan = ["--samples", "1", "--duration", "300ms", "--warmup", "20ms", "--json"];
    let result = json(bench, &[&test[..], &ends, &plan].concat());
    assert_schema(&result);
    let cell = &result["cells"][0];
    assert_eq!((&cell["status"], &cell["test"]), (&"measured".into(), &"multicast".into()), "{}", result["failures"]);
    cell.clone()
}

/// Returns the number of packets that have arrived at a host.
fn arrived(bench: &Bench, host: &str) -> u64 {
    let table = bench.printed(&["lab", "exec", "t-groups", host, "--", "cat", "/proc/net/dev"]);
    let line = table.lines().find_map(|line| line.trim().strip_prefix("wire0:")).expect("a link");
    line.split_whitespace().nth(1).expect("a column").parse().expect("a number")
}

/// Returns the datagrams that arrived in the measured time of a stream, and the packets that reached another host in
/// the meantime.
fn spread(bench: &Bench) -> [u64; 2] {
    let before = arrived(bench, "other");
    let cell = streamed(bench, "20M");
    assert_eq!(cell["summary"]["lost"], 0, "{}", cell["summary"]);
    let bytes = cell["samples"][0]["bytes"].as_u64().expect("bytes");
    [bytes / 1000, arrived(bench, "other") - before]
}

#[test]
fn a_switch_spares_the_other_hosts_if_it_snoops() {
    let bench = Bench::new().with("lab.toml", &lab("", "snooping = false", ""));
    let plan = bench.printed(&["lab", "up", "lab.toml", "--dry-run"]);
    assert!(plan.contains("bridge without multicast snooping"), "{plan}");
    let up = Up::new(&bench, "t-groups");
    let [to_the_group, to_the_other] = spread(&bench);
    assert!(to_the_group > 0 && to_the_other >= to_the_group, "{to_the_group}, {to_the_other}");
    drop(up);
    let bench = bench.with("lab.toml", &lab("", "snooping = true", ""));
    let up = Up::new(&bench, "t-groups");
    // The switch first queries for members, and sends to all ports in the meantime.
    wait_until("the switch snoops", || {
        let [to_the_group, to_the_other] = spread(&bench);
        to_the_other < to_the_group / 4
    });
    drop(up);
    assert_nothing_left(&bench);
}

#[test]
fn groups_of_ipv6() {
    let bench = Bench::new().with("lab.toml", &lab("family = \"ipv6\"", "", ""));
    let up = Up::new(&bench, "t-groups");
    assert_eq!(streamed(&bench, "20M")["summary"]["lost"], 0);
    drop(up);
    assert_nothing_left(&bench);
}

/// The wire carries a fiftieth of the stream, so most of it is lost even if a busy machine sends at a tenth of the
/// rate.
#[test]
fn frames_that_a_wire_has_no_room_for_are_lost() {
    let bench = Bench::new().with("lab.toml", &lab("", "", "rate = \"2M\"\nqueue = 5000"));
    let up = Up::new(&bench, "t-groups");
    let cell = streamed(&bench, "100M");
    let share = cell["summary"]["lost_share"].as_f64().expect("a share");
    assert!((0.5..1.0).contains(&share), "{}", cell["summary"]);
    drop(up);
    assert_nothing_left(&bench);
}

#[test]
fn a_host_without_a_switch_cannot_snoop() {
    let without = lab("", "", "").replacen("name = \"other\"", "name = \"other\"\nsnooping = true", 1);
    let told = Bench::new().with("lab.toml", &without).refused(&["lab", "up", "lab.toml"]);
    assert!(told.contains("no-virtual-switch") && told.contains("host `other`"), "{told}");
    let zone = lab_file("t-groups", "").replacen("name = \"sut\"", "name = \"sut\"\nsnooping = true", 1);
    let plan = Bench::new().with("lab.toml", &zone).printed(&["lab", "up", "lab.toml", "--dry-run"]);
    assert!(plan.contains("bridge with multicast snooping"), "{plan}");
}

const STUDY: &str = r#"
id = "groups"
title = "Datagrams to a group"
baseline = "native"
[matrix]
methods = ["native", "bridge", "macvlan", "vxlan"]
mtu = [1500]
transports = ["udp"]
tests = ["multicast"]
streams = [1]
[plan]
samples = 2
duration = "80ms"
"#;

#[test]
fn a_study_compares_methods() {
    let bench = Bench::new().with("study.toml", STUDY);
    let result = json(&bench, &["run", "study.toml", "--json"]);
    assert_schema(&result);
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.len() == 4 && cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    let told = bench.printed(&["results", "show", "last"]);
    assert!(told.contains("Multicast"), "{told}");
    assert_nothing_left(&bench);
}
