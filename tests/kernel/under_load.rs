//! `vtax measure --under`: latency of a path under a stream.

use serde_json::Value;

use super::{Bench, assert_nothing_left, json, labs::Up, studies::assert_schema};

/// Rate of both wires, in bit/s.
const RATE: f64 = 100e6;
/// A full packet with its Ethernet header, in bytes.
const PACKET: f64 = 1514.0;
/// Hosts at the far ends of the wires, and the wires' queues in bytes.
const QUEUES: [(&str, f64); 2] = [("near", 25_000.0), ("far", 125_000.0)];

const LAB: &str = r#"
[lab]
name = "t-under"
[[host]]
name = "sut"
[[host]]
name = "near"
[[host]]
name = "far"
[[wire]]
name = "short"
ends = ["sut", "near"]
rate = "100M"
queue = 25000
[[wire]]
name = "long"
ends = ["sut", "far"]
rate = "100M"
queue = 125000
"#;

fn cell<'a>(result: &'a Value, row: &str) -> &'a Value {
    let cells = result["cells"].as_array().expect("cells");
    cells.iter().find(|cell| cell["method"] == row).unwrap_or_else(|| panic!("no {row}: {}", result["failures"]))
}

/// Returns the added latency according to a metric, with its interval, in seconds.
fn added(cell: &Value, metric: &str) -> [f64; 3] {
    let taxes = cell["taxes"].as_array().expect("taxes");
    let tax = taxes.iter().find(|tax| tax["of"] == metric).expect("the metric");
    ["delta", "delta_low", "delta_high"].map(|key| tax[key].as_f64().expect("a time in us") / 1e6)
}

/// Two streams that offer twice the rate keep the queue full. A request then waits for the contents of the queue: there
/// is room for less than one packet, and the first one has already been partly transmitted. So the queue's length is
/// known to within two packets, which is the resolution.
///
/// Programs unknown to the suite can take the CPU from the streams or from the requests: the queue is then not full, or
/// the interval is wide. One of a few attempts shows the queue's length, and none does if the figure is wrong.
#[test]
fn a_full_queue_adds_its_length_over_the_rate() {
    const ATTEMPTS: usize = 4;
    let bench = Bench::alone().with("lab.toml", LAB);
    let up = Up::new(&bench, "t-under");
    let of = |(host, queue)| {
        let mut why_not = Vec::new();
        for _ in 0..ATTEMPTS {
            match length_over_rate(&bench, host, queue) {
                Ok(added) => return added,
                Err(why) => why_not.push(why),
            }
        }
        panic!("{host}: {why_not:#?}");
    };
    let [near, far] = QUEUES.map(of);
    assert!(near[2] < far[1], "the long queue adds more: {near:?} {far:?}");
    drop(up);
    assert_nothing_left(&bench);
}

/// Returns the latency that a full queue adds, with its interval, or the reason why the attempt is inconclusive.
fn length_over_rate(bench: &Bench, host: &str, queue: f64) -> Result<[f64; 3], String> {
    let load = "udp-stream,streams=2,bitrate=100M";
    let resolution = 2.0 * PACKET * 8.0 / RATE;
    let ends = ["--from", "zone:t-under/sut", "--to", &format!("zone:t-under/{host}"), "--under", load];
    let plan = ["--test", "udp-rr", "--samples", "7", "--duration", "200ms", "--warmup", "150ms", "--json"];
    let result = json(bench, &[&["measure"], &ends[..], &plan].concat());
    let loaded = cell(&result, &format!("under:{load}").replace("100M", "100Mbit/s"));
    let [median, low, high] = added(loaded, "p50");
    let truth = queue * 8.0 / RATE;
    let carried = loaded["summary"]["load_forward_mbps"]["mean"].as_f64().expect("a load");
    if low - resolution > truth || truth > high + resolution {
        return Err(format!("{truth} in [{low}, {high}]"));
    }
    if high - low >= truth / 2.0 {
        return Err(format!("the interval tells nothing: [{low}, {high}]"));
    }
    // The goodput may be higher: a receiver that has waited for a CPU also counts the earlier contents of its buffer.
    if carried <= 90.0 {
        return Err(format!("the wire was not full of payload, 1472 of 1514 bytes: {carried}"));
    }
    Ok([median, low, high])
}

const SHORT: [&str; 7] = ["--samples", "2", "--duration", "80ms", "--warmup", "50ms", "--json"];

#[test]
fn each_load_is_a_row_with_its_goodput_by_direction() {
    let bench = Bench::new();
    let loads = ["--under", "tcp-stream,streams=2,direction=both", "--under", "udp-stream,direction=reverse"];
    let result = json(&bench, &[&["measure", "--test", "tcp-rr,udp-rr"], &loads[..], &SHORT].concat());
    assert_schema(&result);
    assert_eq!(result["baseline"], "idle");
    let load = |sample: &Value| ["forward_mbps", "reverse_mbps"].map(|way| sample["load"][way].as_f64());
    for cell in result["cells"].as_array().expect("cells") {
        assert_eq!(cell["status"], "measured", "{}", result["failures"]);
        for sample in cell["samples"].as_array().expect("samples") {
            let found = load(sample).map(|mbps| mbps.is_some_and(|mbps| mbps > 0.0));
            let wanted = match cell["method"].as_str() {
                Some("idle") => [false, false],
                Some("under:udp-stream,direction=reverse") => [false, true],
                _ => [true, true],
            };
            assert_eq!(found, wanted, "{sample}");
        }
    }
    let told = bench.printed(&["results", "show", "last"]);
    assert!(told.contains("Latency under load") && told.contains("Latency added by the load"), "{told}");
    let csv = bench.printed(&["results", "export", "last", "--csv"]);
    assert!(csv.contains("load_reverse_mbps_high"), "{csv}");
    assert_nothing_left(&bench);
}

/// The flows send their first datagram after the end of the sample.
#[test]
fn a_load_that_carries_nothing_fails_its_samples_and_no_others() {
    let bench = Bench::new();
    let arguments = ["measure", "--under", "udp-stream,bitrate=9", "--samples", "1", "--duration", "50ms", "--json"];
    let output = bench.vtax(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(cell(&result, "idle")["status"], "measured");
    let failed = cell(&result, "under:udp-stream,bitrate=9bit/s");
    let why = failed["why"].as_str().expect("a reason");
    assert!(failed["status"] == "failed" && why.starts_with("the load udp-stream,bitrate=9bit/s: "), "{failed}");
    assert_nothing_left(&bench);
}
