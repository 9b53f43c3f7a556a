//! netperf's tables, and the selected outputs of its omni tests (`-k`).
//! <https://hewlettpackard.github.io/netperf/doc/netperf.html>

use std::collections::BTreeMap;

use vtax_model::{
    units::ByteSize,
    workload::{Direction, Transport, Workload},
};

use super::foreign::{Counts, ForeignMeasure, ForeignTest, NetMeasure, message_size};

pub(super) const NAME: &str = "netperf";

/// The banners of its classic tests.
const BANNERS: [(&str, Kind); 6] = [
    ("TCP REQUEST/RESPONSE TEST", Kind::Rr(Transport::Tcp)),
    ("UDP REQUEST/RESPONSE TEST", Kind::Rr(Transport::Udp)),
    ("TCP STREAM TEST", Kind::TcpStream(Direction::Forward)),
    ("TCP MAERTS TEST", Kind::TcpStream(Direction::Reverse)),
    ("UDP UNIDIRECTIONAL SEND TEST", Kind::UdpStream),
    // In 2.6 and 2.7.
    ("UDP STREAM TEST", Kind::UdpStream),
];

/// Maximum average number of requests in flight for which round trips count as consecutive. Rates are printed with two decimals.
const ONE_IN_FLIGHT: f64 = 1.05;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Rr(Transport),
    TcpStream(Direction),
    UdpStream,
}

type Measured = Result<(Transport, Workload, Counts), String>;

/// Returns true for the first line of a test's output.
pub(super) fn is_banner(line: &str) -> bool {
    [" TEST from ", " TEST to "].iter().any(|words| line.contains(words))
}

/// Returns the name of a line `NAME=value` of `-k`.
pub(super) fn selected_name(line: &str) -> Option<&str> {
    let name = line.split_once('=')?.0;
    let is_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    (name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(is_name)).then_some(name)
}

pub(super) fn is(text: &str) -> bool {
    text.lines().any(|line| is_banner(line) || line.starts_with("THROUGHPUT="))
}

pub(super) fn read(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, String> {
    let banner = text.lines().find(|line| is_banner(line));
    if let Some(banner) = banner {
        as_fast_as_it_can(banner)?;
    }
    let is_selected = text.lines().any(|line| line.starts_with("THROUGHPUT="));
    let (transport, workload, counts) = match banner.map(kind) {
        Some(kind) if !is_selected => table(text, kind?)?,
        kind => selected(text, kind.and_then(Result::ok), size)?,
    };
    // It reports neither its version nor the time of the test.
    let (format, program, begun, machine) = (NAME, NAME.to_owned(), None, None);
    let measured = ForeignMeasure::Net(NetMeasure { transport, workload, streams: 1, counts });
    Ok(ForeignTest { format, program, measured, begun, machine })
}

fn kind(banner: &str) -> Result<Kind, String> {
    BANNERS.iter().find(|(words, _)| banner.contains(words)).map(|(_, kind)| *kind).ok_or_else(|| {
        let end = [" TEST from ", " TEST to "].iter().filter_map(|words| banner.find(words)).min().unwrap_or(0);
        let test = banner[..end].trim_start_matches("MIGRATED ");
        format!(
            "its test `{test}` cannot be imported: only TCP_STREAM, TCP_MAERTS, UDP_STREAM, TCP_RR and UDP_RR are \
             supported"
        )
    })
}

/// Refuses tests changed by netperf's option -b. The banner ends with ` : nodelay : first burst 16 : interval`.
fn as_fast_as_it_can(banner: &str) -> Result<(), String> {
    let mut options = banner.split(" : ").skip(1).map(str::trim);
    options.try_for_each(|option| match option.strip_prefix("first burst ").map(|burst| burst.trim().parse::<u32>()) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(burst)) => Err(several_in_flight(f64::from(burst) + 1.0)),
        Some(Err(_)) => Err(format!("its banner has `{option}`, which is not a number of requests")),
        None if option.starts_with("interval") => Err(paced()),
        None => Ok(()),
    })
}

fn several_in_flight(requests: f64) -> String {
    format!(
        "{requests:.0} requests were in flight at a time (-b), so the inverse of its rate is not a round trip: run \
         netperf without a burst"
    )
}

fn paced() -> String {
    "it paused between bursts (-w), so its rate does not show the path's capacity".to_owned()
}

/// Returns the lines that consist of numbers.
fn numbers(text: &str) -> Vec<Vec<f64>> {
    let line = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    text.lines().filter_map(line).filter(|line| !line.is_empty()).collect()
}

fn table(text: &str, kind: Kind) -> Measured {
    let lines = numbers(text);
    let short = "its table is truncated, or has custom columns (netperf's options -o and -O): use -k, or \
                 none of them";
    let line = |nth: usize| lines.get(nth).map(Vec::as_slice).unwrap_or_default();
    let of_other_unit = ["10^3bits", "10^9bits", "bytes/sec", "bytes/s", "bits/s"];
    let is_of_other_unit = !text.contains("10^6bits") && of_other_unit.iter().any(|unit| text.contains(unit));
    if !matches!(kind, Kind::Rr(_)) && is_of_other_unit {
        return Err("its throughput is not in 10^6 bits/s: omit netperf's option -f".to_owned());
    }
    match (kind, line(0), line(1)) {
        (Kind::Rr(transport), [_, _, request, response, seconds, rate, ..], _) => {
            let workload = Workload::Rr { request: message_size(*request)?, response: message_size(*response)? };
            Ok((transport, workload, round_trips(rate * seconds, *seconds, request + response)))
        }
        (Kind::TcpStream(direction), [_, _, message, seconds, rate, ..], _) => {
            let workload = Workload::Stream { message: message_size(*message)?, direction };
            let counts = Counts { seconds: *seconds, bytes: rate * 1e6 / 8.0 * seconds, ..Counts::default() };
            Ok((Transport::Tcp, workload, counts))
        }
        (Kind::UdpStream, [_, message, _, sent, _, _, ..], [_, seconds, arrived, ..]) => {
            let workload = Workload::Stream { message: message_size(*message)?, direction: Direction::Forward };
            let lost = Some((sent - arrived).max(0.0));
            let counts = Counts { seconds: *seconds, bytes: arrived * message, lost, ..Counts::default() };
            Ok((Transport::Udp, workload, counts))
        }
        _ => Err(short.to_owned()),
    }
}

fn round_trips(transactions: f64, seconds: f64, both: f64) -> Counts {
    Counts { seconds, transactions, bytes: transactions * both, ..Counts::default() }
}

/// Reads lines `NAME=value`, below the banner of a classic test or without one.
fn selected(text: &str, kind: Option<Kind>, size: Option<ByteSize>) -> Measured {
    let all = Selected::of(text);
    let transport = all.transport(kind)?;
    let seconds = all.needed("ELAPSED_TIME")?;
    let rate = all.needed("THROUGHPUT")?;
    all.is_not_paced()?;
    match all.word("THROUGHPUT_UNITS") {
        Some("Trans/s") => {
            all.is_one_in_flight(rate)?;
            let (request, response) = (all.sized("REQUEST_SIZE", size)?, all.sized("RESPONSE_SIZE", size)?);
            let both = request.0 as f64 + response.0 as f64;
            Ok((transport, Workload::Rr { request, response }, round_trips(rate * seconds, seconds, both)))
        }
        Some("10^6bits/s") => {
            let direction = all.direction(kind)?;
            let [here, there] = match direction {
                Direction::Forward | Direction::Both => ["LOCAL", "REMOTE"],
                Direction::Reverse => ["REMOTE", "LOCAL"],
            };
            let message = all.sized(&format!("{here}_SEND_SIZE"), size)?;
            let arrived = all.number(&format!("{there}_RECV_THROUGHPUT")).unwrap_or(rate);
            let retransmits = all.number(&format!("{here}_TRANSPORT_RETRANS")).filter(|known| *known >= 0.0);
            let sent = all.number(&format!("{here}_SEND_THROUGHPUT")).filter(|_| transport == Transport::Udp);
            let bytes = |rate: f64| rate * 1e6 / 8.0 * seconds;
            let lost = sent.map(|sent| bytes(sent - arrived).max(0.0) / (message.0 as f64).max(1.0));
            let counts = Counts { seconds, bytes: bytes(arrived), lost, retransmits, ..Counts::default() };
            Ok((transport, Workload::Stream { message, direction }, counts))
        }
        _ => Err("its THROUGHPUT_UNITS are not 10^6bits/s or Trans/s: add them to netperf's option -k, and omit -f"
            .to_owned()),
    }
}

/// The outputs selected with `-k`.
struct Selected<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Selected<'a> {
    fn of(text: &'a str) -> Selected<'a> {
        let value = |line: &'a str| Some((selected_name(line)?, line.split_once('=')?.1.trim()));
        Selected(text.lines().filter_map(value).collect())
    }

    fn word(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.word(name)?.parse().ok()
    }

    fn needed(&self, name: &str) -> Result<f64, String> {
        self.number(name).ok_or(format!("it has no {name}: add it to netperf's option -k"))
    }

    fn sized(&self, name: &str, size: Option<ByteSize>) -> Result<ByteSize, String> {
        match self.number(name).filter(|size| *size > 0.0) {
            Some(told) => message_size(told),
            None => size.ok_or(format!("it has no {name}: add it to netperf's option -k, or give --size")),
        }
    }

    fn transport(&self, kind: Option<Kind>) -> Result<Transport, String> {
        match (self.word("PROTOCOL"), kind) {
            (Some("TCP"), _) | (None, Some(Kind::TcpStream(_))) => Ok(Transport::Tcp),
            (Some("UDP"), _) | (None, Some(Kind::UdpStream)) => Ok(Transport::Udp),
            (None, Some(Kind::Rr(transport))) => Ok(transport),
            _ => Err("it has no PROTOCOL of TCP or UDP: add it to netperf's option -k".to_owned()),
        }
    }

    fn direction(&self, kind: Option<Kind>) -> Result<Direction, String> {
        match (self.word("DIRECTION"), kind) {
            (Some("Send"), _) | (None, Some(Kind::UdpStream)) => Ok(Direction::Forward),
            (Some("Receive" | "Recv"), _) => Ok(Direction::Reverse),
            (None, Some(Kind::TcpStream(direction))) => Ok(direction),
            _ => Err("it has no DIRECTION of Send or Receive: add it to netperf's option -k".to_owned()),
        }
    }

    /// Checks that each request waited for the previous response, as far as the lines show.
    fn is_one_in_flight(&self, rate: f64) -> Result<(), String> {
        let burst = self.number("BURST_SIZE").map(|burst| burst + 1.0);
        let by_latency = self.number("RT_LATENCY").map(|latency| latency * rate / 1e6);
        match burst.or(by_latency).filter(|requests| *requests > ONE_IN_FLIGHT) {
            Some(requests) => Err(several_in_flight(requests)),
            None => Ok(()),
        }
    }

    fn is_not_paced(&self) -> Result<(), String> {
        let intervals = ["LOCAL_INTERVAL_USECS", "REMOTE_INTERVAL_USECS"];
        match intervals.iter().any(|name| self.number(name).is_some_and(|pause| pause > 0.0)) {
            true => Err(paced()),
            false => Ok(()),
        }
    }
}
