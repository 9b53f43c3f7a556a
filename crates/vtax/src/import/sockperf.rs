//! sockperf's ping-pong. <https://github.com/Mellanox/sockperf/blob/sockperf_v2/man/sockperf.1>

use vtax_model::{
    units::ByteSize,
    workload::{Transport, Workload},
};

use super::{Counts, ForeignFormat, ForeignMeasure, ForeignTest, NetMeasure};
use crate::crosscheck::number_after;

pub(super) const FORMAT: ForeignFormat = ForeignFormat { name: "sockperf", is, read };

/// In ping-pong the time of all round trips is that of the test. Under load it is another one.
const ALMOST: std::ops::Range<f64> = 0.7..1.5;

fn is(text: &str) -> bool {
    text.contains("sockperf: ") && text.contains("RunTime=")
}

fn read(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, String> {
    let version = text.split_once("== version #").and_then(|(_, rest)| rest.split([' ', '\n']).next());
    let valid = text.split_once("[Valid Duration]").ok_or("it has no line [Valid Duration]: it is cut off")?.1;
    let (seconds, transactions) = (number_after(valid, "RunTime=")?, number_after(valid, "ReceivedMessages=")?);
    let half = || number_after(text, "avg-latency=").or_else(|_| number_after(text, "avg-lat="));
    let round_trip = number_after(text, "avg-rtt=").or_else(|_| half().map(|half| 2.0 * half))?;
    if !ALMOST.contains(&(round_trip * transactions / 1e6 / seconds)) {
        return Err(
            "its round trips don't follow one another, so this is no ping-pong; others aren't imported".to_owned()
        );
    }
    let transport = match (text.contains("# TCP"), text.contains("# UDP")) {
        (true, false) => Transport::Tcp,
        (false, true) => Transport::Udp,
        _ => return Err("it doesn't say over which protocol".to_owned()),
    };
    let size = size.ok_or("it doesn't say how large the messages were: give --size (14 if you gave sockperf no -m)")?;
    Ok(ForeignTest {
        format: FORMAT.name,
        program: version.map_or("sockperf".to_owned(), |version| format!("sockperf {version}")),
        measured: ForeignMeasure::Net(NetMeasure {
            transport,
            workload: Workload::Rr { request: size, response: size },
            streams: 1,
            counts: Counts { seconds, transactions, bytes: transactions * 2.0 * size.0 as f64, ..Counts::default() },
        }),
        begun: None,
        machine: None,
    })
}
