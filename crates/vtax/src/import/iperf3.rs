//! iperf3's JSON (`-J`). <https://software.es.net/iperf/invoking.html>

use jiff::Timestamp;
use serde_json::Value;
use vtax_model::{
    units::ByteSize,
    workload::{Direction, Transport, Workload},
};

use super::{Counts, ForeignFormat, ForeignMeasure, ForeignTest, NetMeasure, message_size};

pub(super) const FORMAT: ForeignFormat = ForeignFormat { name: "iperf3", is, read };

/// Only iperf3 has this at the beginning of its JSON.
fn is(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"iperf 3") && text.contains("\"start\"")
}

fn read(text: &str, _: Option<ByteSize>) -> Result<ForeignTest, String> {
    let result: Value = serde_json::from_str(text).map_err(|error| format!("its JSON: {error}"))?;
    if let Some(error) = result["error"].as_str() {
        return Err(format!("the test failed: {error}"));
    }
    let (start, end) = (&result["start"], &result["end"]);
    let test = &start["test_start"];
    let number = |of: &Value, name: &str| of[name].as_f64().ok_or(format!("it has no figure \"{name}\""));
    let transport = match test["protocol"].as_str() {
        Some("TCP") => Transport::Tcp,
        Some("UDP") => Transport::Udp,
        Some(other) => return Err(format!("a test over {other} is none that vtax knows")),
        None => return Err("it doesn't say over which protocol".to_owned()),
    };
    let is_reverse = test["reverse"].as_f64().is_some_and(|value| value != 0.0);
    // Version 3.12 says so nowhere else.
    let direction = match end.get("sum_received_bidir_reverse").or(end.get("sum_bidir_reverse")) {
        Some(_) => Direction::Both,
        None if is_reverse => Direction::Reverse,
        None => Direction::Forward,
    };
    let ways: &[&str] = match direction {
        Direction::Both => &["", "_bidir_reverse"],
        Direction::Forward | Direction::Reverse => &[""],
    };
    let mut counts = Counts::default();
    for way in ways {
        let way = arrived(end, transport, way)?;
        counts.seconds = counts.seconds.max(way.seconds);
        counts.bytes += way.bytes;
        counts.lost += way.lost;
        counts.retransmits += way.retransmits;
    }
    let message = message_size(number(test, "blksize")?)?;
    let seconds = start["timestamp"]["timesecs"].as_f64();
    let words: Vec<&str> = start["system_info"].as_str().unwrap_or_default().split(' ').collect();
    Ok(ForeignTest {
        format: FORMAT.name,
        program: start["version"].as_str().unwrap_or("iperf 3").to_owned(),
        measured: ForeignMeasure::Net(NetMeasure {
            transport,
            workload: Workload::Stream { message, direction },
            streams: number(test, "num_streams")? as u32,
            counts,
        }),
        begun: seconds.and_then(|seconds| Timestamp::from_second(seconds as i64).ok()),
        // As `uname -a` has it.
        machine: match words[..] {
            ["Linux", host, kernel, ..] => Some([host.to_owned(), kernel.to_owned()]),
            _ => None,
        },
    })
}

/// What the receiver got one way.
fn arrived(end: &Value, transport: Transport, way: &str) -> Result<Counts, String> {
    let sum = |name: &str| &end[format!("{name}{way}").as_str()];
    let (received, sent) = (sum("sum_received"), sum("sum_sent"));
    let of = |sum: &Value, name: &str| sum[name].as_f64();
    let retransmits = of(sent, "retransmits").unwrap_or(0.0);
    let none = "it doesn't say how many bytes arrived: an old iperf3, or a test that was broken off";
    match transport {
        Transport::Udp => {
            // Before 3.7 there is only one sum, of what was sent.
            let all = sum("sum");
            let told = if of(received, "packets").is_some() { received } else { all };
            let (lost, packets) = of(told, "lost_packets").zip(of(told, "packets")).ok_or(none)?;
            let share = if packets > 0.0 { (1.0 - lost / packets).clamp(0.0, 1.0) } else { 0.0 };
            // The receiver's own sum has what arrived; the sum of both what was sent.
            let bytes = of(told, "bytes").ok_or(none)?;
            let arrived = if std::ptr::eq(told, received) { bytes } else { bytes * share };
            Ok(Counts {
                seconds: of(told, "seconds").ok_or(none)?,
                bytes: arrived,
                lost,
                retransmits,
                ..Counts::default()
            })
        }
        _ => {
            let (bytes, seconds) = of(received, "bytes").zip(of(received, "seconds")).ok_or(none)?;
            Ok(Counts { seconds, bytes, retransmits, ..Counts::default() })
        }
    }
}
