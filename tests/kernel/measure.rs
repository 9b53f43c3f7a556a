//! `vtax measure` on this machine: every test with every engine, pairs, sweeps, zones.

use std::process::{Child, Command};

use serde_json::Value;

use super::{Bench, assert_nothing_left, bench::wrapped, json, labs::Up, studies::assert_schema};

const SHORT: [&str; 6] = ["--samples", "1", "--duration", "80ms", "--warmup", "5ms"];
/// While other tests run, both endpoints of a busy-poll test may wait for a CPU for tens of milliseconds.
const FOR_EVERY_ENGINE: [&str; 6] = ["--samples", "1", "--duration", "200ms", "--warmup", "5ms"];

fn measured(bench: &Bench, arguments: &[&str]) -> Value {
    measured_as(bench, SHORT, arguments)
}

fn measured_as(bench: &Bench, sampling: [&str; 6], arguments: &[&str]) -> Value {
    let result = json(bench, &[&["measure", "--json"], &sampling[..], arguments].concat());
    assert_schema(&result);
    for cell in cells(&result) {
        assert_eq!(cell["status"], "measured", "{arguments:?}: {}", result["failures"]);
    }
    result
}

fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().expect("cells")
}

fn samples(result: &Value) -> impl Iterator<Item = &Value> {
    cells(result).iter().flat_map(|cell| cell["samples"].as_array().expect("samples"))
}

/// Measures each test in a separate run, so that a failure names it.
fn with_every_engine(tests: &[&str]) {
    let bench = Bench::new();
    for test in tests {
        let result = measured_as(&bench, FOR_EVERY_ENGINE, &["--engine", "all", "--test", test]);
        let engines: Vec<&str> = cells(&result).iter().filter_map(|cell| cell["method"].as_str()).collect();
        assert_eq!(engines, ["blocking", "epoll", "busy-poll", "io-uring"], "{test}");
        let through = |sample: &Value| match test.ends_with('r') || test.ends_with("cc") {
            true => sample["transactions"].as_u64(),
            false => sample["bytes"].as_u64(),
        };
        assert!(samples(&result).all(|sample| through(sample).is_some_and(|count| count > 0)), "{test}");
    }
    assert_nothing_left(&bench);
}

#[test]
fn transactions_over_tcp() {
    with_every_engine(&["tcp-rr", "tcp-crr", "tcp-cc"]);
}

#[test]
fn endpoints_are_bound_to_their_own_device() {
    let bench = Bench::new();
    let tests = ["--test", "tcp-rr,tcp-crr,tcp-stream,udp-rr,udp-stream"];
    let result = measured(&bench, &[&["--from-device", "lo", "--to-device", "lo"], &tests[..]].concat());
    assert!(cells(&result).iter().all(|cell| cell["path"]["hops"][0]["link"] == "lo"), "{result}");
    let told = bench.refused(&["measure", "--bind-device", "nothing0"]);
    assert!(told.contains("no-such-link") && told.contains("local has no device nothing0"), "{told}");
    let told = bench.refused(&["measure", "--to-device", "lo", "--to-address", "127.9.9.9"]);
    assert!(told.contains("local has no device lo with the address 127.9.9.9"), "{told}");
    assert_nothing_left(&bench);
}

#[test]
fn each_endpoint_disables_idle_states_or_reports_the_reason() {
    let bench = Bench::new();
    let result = measured(&bench, &["--idle", "poll"]);
    assert!(cells(&result).iter().all(|cell| cell["options"]["idle"] == "poll"), "{result}");
    let may = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok();
    for sample in samples(&result) {
        for end in ["initiator", "responder"] {
            assert_eq!(sample["ends"][end].get("idle_not_held").is_none(), may, "{sample}");
        }
    }
    let told = bench.printed(&["results", "show", "last"]);
    assert!(told.contains(if may { "idle states off" } else { "idle states on" }), "{told}");
}

#[test]
fn streams_over_tcp() {
    with_every_engine(&["tcp-stream", "tcp-maerts", "tcp-bidirectional"]);
}

#[test]
fn datagrams() {
    with_every_engine(&["udp-rr", "udp-stream", "udp-maerts", "udp-bidirectional"]);
}

#[test]
fn datagrams_to_a_group() {
    with_every_engine(&["udp-multicast"]);
}

#[test]
fn unix_sockets() {
    with_every_engine(&["unix-rr", "unix-crr", "unix-cc", "unix-stream", "unix-maerts", "unix-bidirectional"]);
}

#[test]
fn the_loopback_of_ipv6() {
    let bench = Bench::new();
    let result = measured(&bench, &["--to-address", "::1", "--test", "tcp-rr,udp-rr,udp-stream"]);
    assert_eq!(cells(&result)[0]["ends"]["pairs"][0]["initiator"]["address"], "::1");
}

/// Links of the host also have such addresses, so the test runs in its own network namespace.
#[test]
fn a_link_local_address_is_measured_on_its_link() {
    const LINKS: &str = "ip link set lo up; ip link add near type veth peer name far; ip link set near up; ip link set far up; \
                         ip addr add fe80::77/64 dev near nodad; exec \"$0\" \"$@\"";
    let bench = Bench::new();
    let inside = |arguments: &[&str]| {
        let vtax = bench.command(&[&["measure", "--json"], &SHORT[..], arguments].concat());
        wrapped(&["unshare", "--net", "sh", "-ec", LINKS], &vtax).output().expect("unshare")
    };
    let output = inside(&["--to-address", "fe80::77%near", "--test", "tcp-rr,udp-stream"]);
    let result: Value = serde_json::from_str(&crate::bench::printed(&output)).expect("JSON");
    assert!(cells(&result).iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    let output = inside(&["--to-address", "fe80::77%nothing0", "--test", "tcp-rr"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && told.contains("nothing0"), "{told}");
    assert_nothing_left(&bench);
}

#[test]
fn swept_values_are_distinguished() {
    let bench = Bench::new();
    let sizes = measured(&bench, &["--sizes", "64,256,1024", "--test", "tcp-rr,tcp-stream"]);
    let of = |cell: &Value| cell["request_bytes"].as_u64().or(cell["message_bytes"].as_u64()).expect("a size");
    assert_eq!(cells(&sizes).iter().map(of).collect::<Vec<_>>(), [64, 256, 1024, 64, 256, 1024]);
    let gaps = measured(&bench, &["--gap", "0,1ms"]);
    let rates: Vec<u64> = samples(&gaps).map(|sample| sample["transactions"].as_u64().expect("a count")).collect();
    assert!(rates[1] <= 80, "a millisecond before each of them, in 80: {rates:?}");
    let inverse: Vec<bool> = samples(&gaps).map(|sample| sample["rtt_ns"]["by_rate"].is_number()).collect();
    assert_eq!(inverse, [true, false], "the rate says nothing of the time between pauses");
    let flows = measured(&bench, &["--streams", "1,4", "--engine", "epoll", "--threads", "1"]);
    assert_eq!(cells(&flows).len(), 2);
}

#[test]
fn loads_and_series_are_in_the_record() {
    let bench = Bench::new();
    let open = measured(&bench, &["--rate", "500", "--arrivals", "fixed", "--interval", "20ms"]);
    let sample = samples(&open).next().expect("one");
    assert!(sample["rtt_from_send_ns"]["p50"].is_number() && sample["rtt_ns"]["by_rate"].is_null());
    let series = sample["ends"]["initiator"]["series"].as_array().expect("a series");
    assert!((3..=5).contains(&series.len()), "80 ms in steps of 20: {series:?}");
    let burst = measured(&bench, &["--burst", "8"]);
    assert!(samples(&burst).all(|sample| sample["rtt_ns"]["by_rate"].is_null()));
    let paced = measured(&bench, &["--test", "udp-stream", "--bitrate", "8M", "--message", "1000"]);
    let bytes: Vec<u64> = samples(&paced).map(|sample| sample["bytes"].as_u64().expect("bytes")).collect();
    assert!(bytes[0] <= 120_000, "8 Mb/s are 80,000 bytes in 80 ms: {bytes:?}");
    measured(&bench, &["--stages"]);
    measured(&bench, &["--test", "udp-stream", "--gso", "8", "--gro", "--message", "1000"]);
    measured(&bench, &["--test", "tcp-stream", "--send", "zerocopy"]);
    measured(&bench, &["--test", "tcp-stream", "--send", "sendfile"]);
    let sockets = ["--nodelay", "off", "--send-buffer", "64KiB", "--receive-buffer", "64KiB", "--congestion", "reno"];
    measured(&bench, &[&sockets[..], &["--dscp", "ef", "--pacing", "1G", "--busy-poll", "50us"]].concat());
}

#[test]
fn pairs_measure_at_the_same_time() {
    let bench = Bench::new();
    let result =
        measured(&bench, &["--to", "local", "--to", "local", "--from", "local", "--test", "tcp-rr,tcp-stream"]);
    for sample in samples(&result) {
        let parallel = &sample["parallel"];
        assert!(parallel["skew_us"].is_number() && parallel["uncertainty_us"].is_number(), "{parallel}");
        let pairs = parallel["pairs"].as_array().expect("pairs");
        let sum = |key: &str| pairs.iter().map(|pair| pair[key].as_u64().expect("a count")).sum::<u64>();
        assert_eq!(sum("transactions"), sample["transactions"].as_u64().expect("a count"));
        assert_eq!(sum("bytes"), sample["bytes"].as_u64().expect("a count"));
    }
    assert_eq!(cells(&result)[0]["ends"]["pairs"].as_array().map(Vec::len), Some(2));
}

#[test]
fn pins_are_recorded_and_their_lack_is_loud() {
    let bench = Bench::new();
    let cpus = |result: &Value| {
        let pair = &cells(result)[0]["ends"]["pairs"][0];
        [&pair["initiator"]["cpus"], &pair["responder"]["cpus"]].map(Clone::clone)
    };
    assert_eq!(cpus(&measured(&bench, &["--pin", "1:0"])), [serde_json::json!([1]), serde_json::json!([0])]);
    assert_eq!(cpus(&measured(&bench, &["--pin", "0,1"])), [serde_json::json!([0]), serde_json::json!([1])]);
    let [initiator, responder] = cpus(&measured(&bench, &[]));
    assert_ne!(initiator, responder, "off each other's CPU");
    let loose = bench.vtax(&[&["measure", "--pin", "none"], &SHORT[..]].concat());
    let told = String::from_utf8_lossy(&loose.stderr);
    assert!(told.contains("NOT PINNED: local") && told.contains("fourfold"), "{told}");
    assert_eq!(cpus(&json(&bench, &["results", "export", "last", "--json"])), [const { Value::Array(Vec::new()) }; 2]);
}

/// A program of the test, which is killed when the value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it is ours");
    }
}

/// The other programs are short processes, none of them vtax's, that only copy data in the kernel.
#[test]
fn the_work_of_others_in_the_kernel_is_reported_with_slices_and_without() {
    let study = r#"
id = "others"
title = "A path and its host"
baseline = "native"
[matrix]
methods = ["native", "veth"]
mtu = [1500]
transports = ["tcp"]
tests = ["rr"]
[path]
samples = 6
passes = 4
duration = "20ms"
stream_duration = "20ms"
warmup = "5ms"
[plan]
samples = 1
duration = "50ms"
warmup = "5ms"
"#;
    let bench = Bench::new().with("others.toml", study);
    let work = "while :; do head -c 20000000 /dev/zero >/dev/null; done";
    let load = || Ended(Command::new("sh").args(["-c", work]).spawn().expect("sh"));
    let _load = [load(), load()];
    let whole = ["measure", "--samples", "4", "--duration", "500ms", "--warmup", "5ms"];
    for arguments in [&whole[..], &["run", "others.toml"]] {
        let result = json(&bench, &[arguments, &["--json"]].concat());
        let others = result["disturbance"]["other_programs"].as_f64().expect("known");
        assert!(others > 0.1, "{arguments:?}: {others} of the CPUs, and two processes did nothing else");
        let told = bench.printed(&["results", "show", "last"]);
        assert!(told.contains("BUSY HOST") && told.contains("other programs took"), "{told}");
    }
}

#[test]
fn a_measurement_is_kept_and_shown_as_any_run() {
    let bench = Bench::new();
    let id = measured(&bench, &["--engine", "blocking,epoll"])["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("measure-"), "{id}");
    assert!(bench.printed(&["results", "list"]).contains("TCP RR, local to local"));
    assert!(bench.printed(&["results", "show", &id, "--detail"]).contains("epoll"));
    assert!(bench.printed(&["results", "export", &id, "--csv"]).lines().count() == 3);
}

const LAB: &str = r#"
[lab]
name = "NAME"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[zone]]
name = "NAME-web"
host = "sut"
method = "bridge"
[[zone]]
name = "NAME-db"
host = "peer"
method = "bridge"
"#;

#[test]
fn zones_of_a_lab_that_is_up() {
    let bench = Bench::new().with("lab.toml", &LAB.replace("NAME", "t-ends"));
    let up = Up::new(&bench, "t-ends");
    let names = |result: &Value| {
        let pair = &cells(result)[0]["ends"]["pairs"][0];
        [&pair["initiator"]["name"], &pair["responder"]["name"]].map(|name| name.as_str().expect("a name").to_owned())
    };
    let both = ["--from", "zone:t-ends/t-ends-db", "--to", "zone:t-ends-web", "--test", "tcp-rr,udp-stream"];
    let result = measured(&bench, &both);
    assert_eq!(names(&result), ["zone:t-ends/t-ends-db", "zone:t-ends-web"]);
    let hops: Vec<&str> = cells(&result)[0]["path"]["hops"]
        .as_array()
        .expect("hops")
        .iter()
        .filter_map(|hop| hop["domain"].as_str())
        .collect();
    assert!(hops.contains(&"sut") && hops.contains(&"peer"), "every link between them: {hops:?}");
    assert_eq!(cells(&result)[0]["mtu"], 1500);
    let output = bench.vtax(&[&["measure", "--to", "zone:t-ends-web", "--json"], &SHORT[..]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("from zone:t-ends/peer"), "{told}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(names(&result)[0], "zone:t-ends/peer");
    let unknown = bench.refused(&["measure", "--to", "zone:t-ends/nobody"]);
    assert!(unknown.contains("nobody") && unknown.contains("t-ends-web"), "{unknown}");
    let no_lab = bench.refused(&["measure", "--to", "zone:t-nowhere/a"]);
    assert!(no_lab.contains("t-nowhere"), "{no_lab}");
    let large = ["measure", "--to", "zone:t-ends-web", "--test", "udp-rr", "--request", "1473"];
    assert!(bench.refused(&large).contains("--request"), "what goes over the loopback doesn't go over this wire");
    drop(up);
    assert_nothing_left(&bench);
}

#[test]
fn a_study_file_has_engines_sizes_and_options() {
    let study = r#"
id = "engines"
title = "Engines over a wire"
baseline = "blocking"
[matrix]
methods = ["blocking", "epoll", "io-uring"]
mtu = [1500]
transports = ["tcp", "udp"]
tests = ["rr"]
sizes = [1, 512]
gaps = ["0s", "1ms"]
[options]
interval = "40ms"
[options.socket]
dscp = "ef"
[plan]
samples = 1
duration = "80ms"
warmup = "steady:10ms"
"#;
    let bench = Bench::new().with("engines.toml", study);
    let result = json(&bench, &["run", "engines.toml", "--json"]);
    assert_schema(&result);
    assert_eq!(cells(&result).len(), 3 * 2 * 4);
    assert!(cells(&result).iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    assert!(cells(&result).iter().all(|cell| cell["options"]["socket"]["dscp"] == "ef"));
    assert_nothing_left(&bench);
}
