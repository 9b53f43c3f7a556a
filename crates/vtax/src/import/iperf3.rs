//! iperf3's JSON (`-J`). <https://software.es.net/iperf/invoking.html>
//!
//! The receiver knows the amount received. The client gets it from the server when the test ends; the server prints its
//! own counts, and 0 for those that only the client knows.

use jiff::Timestamp;
use vtax_model::workload::{Direction, Transport, Workload};

use super::{
    foreign::{Counts, ForeignMeasure, ForeignTest, NetMeasure, message_size},
    json::Json,
};

pub(super) const NAME: &str = "iperf3";

/// Bytes may be counted a few packets later than packets.
const NEAR: f64 = 0.01;

pub(super) fn is(json: &Json) -> bool {
    json["start"]["version"].as_str().is_some_and(|version| version.starts_with("iperf 3"))
}

pub(super) fn read(result: &Json) -> Result<ForeignTest, String> {
    if let Some(error) = result["error"].as_str() {
        return Err(format!("the test failed: {error}"));
    }
    let (start, end) = (&result["start"], &result["end"]);
    let test = &start["test_start"];
    let number = |of: &Json, name: &str| of[name].as_f64().ok_or(format!("it has no figure \"{name}\""));
    let transport = match test["protocol"].as_str() {
        Some("TCP") => Transport::Tcp,
        Some("UDP") => Transport::Udp,
        Some(other) => return Err(format!("tests over {other} are not supported")),
        None => return Err("it does not report the protocol".to_owned()),
    };
    not_limited(transport, test)?;
    let of =
        EndOfTest { transport, block: number(test, "blksize")?, is_server: start.get("accepted_connection").is_some() };
    let ways = Way::all(end);
    let direction = match ways[..] {
        [_, _] => Direction::Both,
        _ if is_set(&test["bidir"]) => Direction::Both,
        _ if is_set(&test["reverse"]) => Direction::Reverse,
        _ => Direction::Forward,
    };
    if of.is_server && direction != Direction::Forward {
        return Err(
            "this is the server's output, which lacks the amount received by the client (-R, --bidir): import the \
                    client's"
                .to_owned(),
        );
    }
    if direction == Direction::Both && ways.len() < 2 {
        return Err("it has the sums of one direction only, but the test ran in both (--bidir)".to_owned());
    }
    let ways = ways.iter().map(|way| of.arrived(way)).collect::<Result<Vec<Counts>, String>>()?;
    let counts = ways.into_iter().reduce(Counts::with).unwrap_or_default();
    let message = message_size(of.block)?;
    let seconds = start["timestamp"]["timesecs"].as_f64();
    let words: Vec<&str> = start["system_info"].as_str().unwrap_or_default().split(' ').collect();
    Ok(ForeignTest {
        format: NAME,
        program: start["version"].as_str().unwrap_or("iperf 3").to_owned(),
        measured: ForeignMeasure::Net(NetMeasure {
            transport,
            workload: Workload::Stream { message, direction },
            streams: number(test, "num_streams")? as u32,
            counts,
        }),
        begun: seconds.and_then(|seconds| Timestamp::from_second(seconds as i64).ok()),
        // The format of `uname -a`.
        machine: match words[..] {
            ["Linux", host, kernel, ..] => Some([host.to_owned(), kernel.to_owned()]),
            _ => None,
        },
    })
}

fn is_set(flag: &Json) -> bool {
    flag.as_f64().is_some_and(|value| value != 0.0)
}

/// Refuses a stream over TCP with a limited rate. Over UDP, each has one.
fn not_limited(transport: Transport, test: &Json) -> Result<(), String> {
    match test["target_bitrate"].as_f64().filter(|rate| *rate > 0.0 && transport == Transport::Tcp) {
        Some(rate) => {
            Err(format!("it was limited to {} Mb/s (-b), so it does not show the path's capacity", rate / 1e6))
        }
        None => Ok(()),
    }
}

/// The sums of one direction, each `Null` if it is missing.
struct Way<'a> {
    sum: &'a Json,
    sent: &'a Json,
    received: &'a Json,
}

impl<'a> Way<'a> {
    /// Returns the directions, the client's first. Versions 3.7 to 3.11 use the same names for both of `--bidir`.
    fn all(end: &'a Json) -> Vec<Way<'a>> {
        let way = |names: [&str; 3], nth: usize| {
            let [sum, sent, received] = names.map(|name| end.all(name).nth(nth).unwrap_or(&Json::Null));
            Way { sum, sent, received }
        };
        let reverse = ["sum_bidir_reverse", "sum_sent_bidir_reverse", "sum_received_bidir_reverse"];
        let names = ["sum", "sum_sent", "sum_received"];
        let others = [way(names, 1), way(reverse, 0)].into_iter().filter(|way| !way.is_missing());
        [way(names, 0)].into_iter().chain(others).collect()
    }

    fn is_missing(&self) -> bool {
        [self.sum, self.sent, self.received].iter().all(|sum| **sum == Json::Null)
    }
}

/// The endpoint whose output it is.
struct EndOfTest {
    transport: Transport,
    /// Bytes of a datagram, over UDP.
    block: f64,
    is_server: bool,
}

impl EndOfTest {
    /// Returns the receiver's counts of one direction.
    fn arrived(&self, way: &Way<'_>) -> Result<Counts, String> {
        let of = |sum: &Json, name: &str| sum[name].as_f64();
        let none = "it does not report the bytes received: iperf3 is too old, or the test was interrupted";
        if self.transport != Transport::Udp {
            let (bytes, seconds) = of(way.received, "bytes").zip(of(way.received, "seconds")).ok_or(none)?;
            // A receiver has no retransmits, and the server does not ask the client for them.
            let retransmits = of(way.sent, "retransmits").filter(|_| !self.is_server);
            return Ok(Counts { seconds, bytes, retransmits, ..Counts::default() });
        }
        // Before 3.7, there is only one sum, of the data sent.
        let told = if of(way.received, "packets").is_some() { way.received } else { way.sum };
        let (lost, packets) = of(told, "lost_packets").zip(of(told, "packets")).ok_or(none)?;
        let seconds = of(told, "seconds").ok_or(none)?;
        let counted = (packets - lost) * self.block;
        // The receiver's own sum has the bytes received. Its packets include those still in flight.
        let bytes = match of(way.received, "bytes") {
            Some(bytes) if bytes > 0.0 && bytes <= counted * (1.0 + NEAR) => bytes,
            _ => counted,
        };
        Ok(Counts { seconds, bytes, lost: Some(lost), ..Counts::default() })
    }
}

impl Counts {
    /// Returns the counts of both directions together.
    fn with(self, other: Counts) -> Counts {
        let sum = |one: Option<f64>, two: Option<f64>| one.zip(two).map(|(one, two)| one + two);
        Counts {
            seconds: self.seconds.max(other.seconds),
            transactions: self.transactions + other.transactions,
            bytes: self.bytes + other.bytes,
            lost: sum(self.lost, other.lost),
            retransmits: sum(self.retransmits, other.retransmits),
        }
    }
}
