//! netperf's tables, and the selected outputs of its omni tests (`-k`).
//! <https://hewlettpackard.github.io/netperf/doc/netperf.html>

use std::collections::BTreeMap;

use vtax_model::{
    units::ByteSize,
    workload::{Direction, Transport, Workload},
};

use super::{Counts, ForeignFormat, ForeignMeasure, ForeignTest, NetMeasure, message_size};

pub(super) const FORMAT: ForeignFormat = ForeignFormat { name: "netperf", is, read };

/// The banners of its classic tests.
const BANNERS: [(&str, Kind); 5] = [
    ("TCP REQUEST/RESPONSE TEST", Kind::Rr(Transport::Tcp)),
    ("UDP REQUEST/RESPONSE TEST", Kind::Rr(Transport::Udp)),
    ("TCP STREAM TEST", Kind::TcpStream(Direction::Forward)),
    ("TCP MAERTS TEST", Kind::TcpStream(Direction::Reverse)),
    ("UDP UNIDIRECTIONAL SEND TEST", Kind::UdpStream),
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Rr(Transport),
    TcpStream(Direction),
    UdpStream,
}

/// The first banner, which stands in an early line.
fn banner(text: &str) -> Option<Kind> {
    let kind = |line: &str| BANNERS.iter().find(|(banner, _)| line.contains(banner)).map(|(_, kind)| *kind);
    text.lines().take(20).find_map(kind)
}

fn is(text: &str) -> bool {
    banner(text).is_some() || text.lines().any(|line| line.starts_with("THROUGHPUT="))
}

fn read(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, String> {
    let (transport, workload, counts) = match banner(text) {
        Some(kind) => table(text, kind)?,
        None => selected(text, size)?,
    };
    // It tells neither its version nor when the test was.
    let (format, program, begun, machine) = (FORMAT.name, FORMAT.name.to_owned(), None, None);
    let measured = ForeignMeasure::Net(NetMeasure { transport, workload, streams: 1, counts });
    Ok(ForeignTest { format, program, measured, begun, machine })
}

/// The lines that are only numbers.
fn numbers(text: &str) -> Vec<Vec<f64>> {
    let line = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    text.lines().filter_map(line).filter(|line| !line.is_empty()).collect()
}

fn table(text: &str, kind: Kind) -> Result<(Transport, Workload, Counts), String> {
    let lines = numbers(text);
    let short = "its table is cut off, or has other columns than netperf's own";
    let line = |nth: usize| lines.get(nth).map(Vec::as_slice).unwrap_or_default();
    if !matches!(kind, Kind::Rr(_)) && !text.contains("10^6bits") {
        return Err(
            "its throughput is in another unit than 10^6 bits a second: leave netperf's option -f out".to_owned()
        );
    }
    match (kind, line(0), line(1)) {
        (Kind::Rr(transport), [_, _, request, response, seconds, rate, ..], _) => {
            let workload = Workload::Rr { request: message_size(*request)?, response: message_size(*response)? };
            let (transactions, both) = (rate * seconds, request + response);
            let counts = Counts { seconds: *seconds, transactions, bytes: transactions * both, ..Counts::default() };
            Ok((transport, workload, counts))
        }
        (Kind::TcpStream(direction), [_, _, message, seconds, rate, ..], _) => {
            let workload = Workload::Stream { message: message_size(*message)?, direction };
            let counts = Counts { seconds: *seconds, bytes: rate * 1e6 / 8.0 * seconds, ..Counts::default() };
            Ok((Transport::Tcp, workload, counts))
        }
        (Kind::UdpStream, [_, message, _, sent, _, _, ..], [_, seconds, arrived, ..]) => {
            let workload = Workload::Stream { message: message_size(*message)?, direction: Direction::Forward };
            let lost = (sent - arrived).max(0.0);
            let counts = Counts { seconds: *seconds, bytes: arrived * message, lost, ..Counts::default() };
            Ok((Transport::Udp, workload, counts))
        }
        _ => Err(short.to_owned()),
    }
}

/// Lines `NAME=value`.
fn selected(text: &str, size: Option<ByteSize>) -> Result<(Transport, Workload, Counts), String> {
    let all: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let word = |name: &str| all.get(name).map(|value| value.trim());
    let number = |name: &str| word(name).and_then(|value| value.parse::<f64>().ok());
    let needed = |name: &str| number(name).ok_or(format!("it has no {name}: add it to netperf's option -k"));
    let transport = match word("PROTOCOL") {
        Some("TCP") => Transport::Tcp,
        Some("UDP") => Transport::Udp,
        _ => return Err("it has no PROTOCOL of TCP or UDP: add it to netperf's option -k".to_owned()),
    };
    let seconds = needed("ELAPSED_TIME")?;
    let rate = needed("THROUGHPUT")?;
    let sized = |name: &str| match number(name).filter(|size| *size > 0.0) {
        Some(told) => message_size(told),
        None => size.ok_or(format!("it has no {name}: add it to netperf's option -k, or give --size")),
    };
    match word("THROUGHPUT_UNITS") {
        Some("Trans/s") => {
            let (request, response) = (sized("REQUEST_SIZE")?, sized("RESPONSE_SIZE")?);
            let transactions = rate * seconds;
            let bytes = transactions * (request.0 as f64 + response.0 as f64);
            Ok((
                transport,
                Workload::Rr { request, response },
                Counts { seconds, transactions, bytes, ..Counts::default() },
            ))
        }
        Some("10^6bits/s") => {
            let direction = match word("DIRECTION") {
                Some("Send") => Direction::Forward,
                Some("Receive" | "Recv") => Direction::Reverse,
                _ => return Err("it has no DIRECTION of Send or Receive: add it to netperf's option -k".to_owned()),
            };
            let message = sized(if direction == Direction::Forward { "LOCAL_SEND_SIZE" } else { "REMOTE_SEND_SIZE" })?;
            let arrived = number("REMOTE_RECV_THROUGHPUT").filter(|_| direction == Direction::Forward).unwrap_or(rate);
            let retransmits = number("LOCAL_TRANSPORT_RETRANS").unwrap_or(0.0).max(0.0);
            let counts = Counts { seconds, bytes: arrived * 1e6 / 8.0 * seconds, retransmits, ..Counts::default() };
            Ok((transport, Workload::Stream { message, direction }, counts))
        }
        _ => {
            Err("its THROUGHPUT_UNITS aren't 10^6bits/s or Trans/s: add them to netperf's option -k, and leave -f out"
                .to_owned())
        }
    }
}
