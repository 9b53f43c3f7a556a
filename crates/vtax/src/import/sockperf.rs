//! sockperf's ping-pong. <https://github.com/Mellanox/sockperf/blob/sockperf_v2/man/sockperf.1>

use vtax_model::{
    units::ByteSize,
    workload::{Transport, Workload},
};

use super::foreign::{Counts, ForeignMeasure, ForeignTest, NetMeasure};
use crate::crosscheck::number_after;

pub(super) const NAME: &str = "sockperf";

/// Accepted sum of all round trips, as a share of the test's time, if they are consecutive.
const ALMOST: std::ops::Range<f64> = 0.7..1.5;

/// Returns true for the line with its version, with which its output begins.
pub(super) fn is_first_line(line: &str) -> bool {
    line.contains("sockperf: ") && line.contains("== version #")
}

pub(super) fn is(text: &str) -> bool {
    let test = ["RunTime=", "Starting test", "Message Rate is", "messages sent in"];
    text.contains("sockperf: ") && test.iter().any(|words| text.contains(words))
}

pub(super) fn read(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, String> {
    let version = text.split_once("== version #").and_then(|(_, rest)| rest.split([' ', '\n']).next());
    if text.contains("Message Rate is") || text.contains("messages sent in") {
        return Err("it sent without waiting for answers (throughput), but only ping-pong can be imported".to_owned());
    }
    let valid = text.split_once("[Valid Duration]").ok_or("it has no line [Valid Duration]: it is truncated")?.1;
    if text.contains("statistics for Server No: 1") {
        return Err("it used several servers, but only ping-pong with one can be imported".to_owned());
    }
    let (seconds, transactions) = (number_after(valid, "RunTime=")?, number_after(valid, "ReceivedMessages=")?);
    let half = || number_after(text, "avg-latency=").or_else(|_| number_after(text, "avg-lat="));
    let round_trip = number_after(text, "avg-rtt=").or_else(|_| half().map(|half| 2.0 * half))?;
    follow_one_another(round_trip * transactions / 1e6 / seconds)?;
    let transport = match (text.contains("# TCP"), text.contains("# UDP")) {
        (true, false) => Transport::Tcp,
        (false, true) => Transport::Udp,
        _ => return Err("it does not report the protocol".to_owned()),
    };
    let dropped = text.split_once("# dropped messages = ").and_then(|(_, rest)| rest.split(';').next()?.parse().ok());
    let lost = dropped.filter(|_| transport == Transport::Udp);
    let size = size.ok_or("it does not report the message size: give --size (14 if you gave sockperf no -m)")?;
    let bytes = transactions * 2.0 * size.0 as f64;
    Ok(ForeignTest {
        format: NAME,
        program: version.map_or("sockperf".to_owned(), |version| format!("sockperf {version}")),
        measured: ForeignMeasure::Net(NetMeasure {
            transport,
            workload: Workload::Rr { request: size, response: size },
            streams: 1,
            counts: Counts { seconds, transactions, bytes, lost, ..Counts::default() },
        }),
        begun: None,
        machine: None,
    })
}

/// Refuses a test whose rate is not the inverse of its round trip. sockperf reports neither the test nor its options.
fn follow_one_another(share: f64) -> Result<(), String> {
    if ALMOST.contains(&share) {
        return Ok(());
    }
    Err(match share < ALMOST.start {
        true => format!(
            "its round trips took {:.0} % of the time: it was limited (--mps), or its messages got no answer, but only \
             ping-pong at full speed can be imported",
            share * 1e2
        ),
        false => format!(
            "{share:.1} messages were in flight at a time (under-load, or ping-pong with --burst), but only ping-pong \
             with one can be imported"
        ),
    })
}
