//! Reference cases: each is created here, measured by vtax's engine, and compared with the calculated value.

mod delays;
mod lengths;
mod spinner;
mod verdict;

use std::time::Duration;

use miette::{Context, miette};
use serde::Serialize;
use vtax_model::{
    options::{ArrivalProcess, Arrivals, CongestionControl, Manners, RequestRate, SocketOptions, TestOptions},
    result::Disturbance,
    run::Figures,
    topology::Shape,
    units::{BitRate, ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};
use vtax_run::rig::{Rig, SUT};
use vtax_stats::{Centre, Confidence};

use super::load::LoadMeter;
pub(crate) use verdict::TruthVerdict;

/// The wire without a shape.
pub(crate) const PLAIN: &str = "plain";
const SHAPED: [(&str, u64); 2] = [("at-100m", 100_000_000), ("at-1g", 1_000_000_000)];
const LOSSY: &str = "lossy";

pub(super) fn wires() -> Vec<(&'static str, Option<Shape>)> {
    let shape = |bits, queue| BitRate::new(bits).map(|rate| Shape { rate, queue });
    let shaped = SHAPED.map(|(name, bits)| (name, shape(bits, None)));
    let lossy = (LOSSY, shape(10_000_000, Some(ByteSize(16 << 10))));
    [(PLAIN, None)].into_iter().chain(shaped).chain([lossy]).collect()
}

/// A reference case: a known value, and its measurement.
pub(crate) struct Truth {
    pub(crate) name: &'static str,
    made: &'static str,
    find: fn(&Rig) -> miette::Result<Found>,
}

/// The expected value, the measured value, and the accepted range.
struct Found {
    unit: &'static str,
    expected: f64,
    measured: f64,
    /// The interval of the signed-rank test, if the figure comes from pairs of samples.
    interval: Option<[f64; 2]>,
    /// The smallest and the largest accepted figure.
    accepted: [f64; 2],
    /// The share of the machine used by other programs, if the case knows it better than the meter.
    others: Option<f64>,
    detail: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TruthRecord {
    pub(crate) name: &'static str,
    pub(crate) made: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) expected: f64,
    pub(crate) measured: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) accepted: [f64; 2],
    pub(crate) verdict: TruthVerdict,
    /// The load by other programs in the meantime.
    pub(crate) load: Disturbance,
    pub(crate) detail: String,
}

impl Truth {
    pub(super) fn find(&self, rig: &Rig, meter: &mut LoadMeter) -> miette::Result<TruthRecord> {
        let Truth { name, made, .. } = *self;
        let begun = meter.read()?;
        let found = (self.find)(rig).with_context(|| format!("the reference case {name}"))?;
        let load = meter.since(&begun)?;
        let other_programs = found.others.into_iter().chain(load.other_programs).reduce(f64::max);
        let load = Disturbance { other_programs, ..load };
        let verdict = TruthVerdict::of(&found, &load);
        let Found { unit, expected, measured, interval, accepted, detail, .. } = found;
        Ok(TruthRecord { name, made, unit, expected, measured, interval, accepted, verdict, load, detail })
    }
}

impl Found {
    /// Returns the result from a single sample.
    fn once(unit: &'static str, expected: f64, measured: f64, accepted: [f64; 2], detail: String) -> Found {
        Found { unit, expected, measured, interval: None, accepted, others: None, detail }
    }

    fn in_pairs(unit: &'static str, expected: f64, tolerance: f64, pairs: &[f64]) -> miette::Result<Found> {
        let Centre { value, low, high } = Centre::of(pairs, Confidence::P95)?;
        let accepted = [expected - tolerance, expected + tolerance];
        let interval = Some([low, high]);
        Ok(Found { interval, ..Found::once(unit, expected, value, accepted, String::new()) })
    }

    /// Returns the centre of a figure from pairs of samples, as a factor of the expected value.
    fn in_proportion(unit: &'static str, expected: f64, tolerance: f64, factors: &[f64]) -> miette::Result<Found> {
        let figures: Vec<f64> = factors.iter().map(|factor| factor * expected).collect();
        Found::in_pairs(unit, expected, tolerance * expected, &figures)
    }
}

pub(crate) const TRUTHS: [Truth; 13] = [
    Truth {
        name: "udp-100m",
        made: "a wire shaped to 100 Mb/s, full of datagrams of 1472 bytes",
        find: |rig| goodput(rig, Transport::Udp, SHAPED[0]),
    },
    Truth {
        name: "tcp-100m",
        made: "a wire shaped to 100 Mb/s, full of TCP segments",
        find: |rig| goodput(rig, Transport::Tcp, SHAPED[0]),
    },
    Truth {
        name: "udp-1g",
        made: "a wire shaped to 1 Gb/s, full of datagrams of 1472 bytes",
        find: |rig| goodput(rig, Transport::Udp, SHAPED[1]),
    },
    Truth {
        name: "tcp-1g",
        made: "a wire shaped to 1 Gb/s, full of TCP segments",
        find: |rig| goodput(rig, Transport::Tcp, SHAPED[1]),
    },
    Truth {
        name: "delay-5us",
        made: "a responder that waits 5 µs before it answers, by its own clock, under the blocking engine",
        find: |rig| delays::in_turns(rig, Span(Duration::from_micros(5))),
    },
    Truth {
        name: "delay-200us",
        made: "a responder that waits 200 µs before it answers",
        find: |rig| delays::polling(rig, Span(Duration::from_micros(200))),
    },
    Truth {
        name: "delay-1ms",
        made: "a responder that waits 1 ms before it answers",
        find: |rig| delays::polling(rig, Span::from_millis(1)),
    },
    Truth {
        name: "length-150ms",
        made: "a sample of 150 ms, with the round-trip time of one of 1.5 s",
        find: lengths::short_and_long,
    },
    Truth {
        name: "spinner-50",
        made: "a thread that works half of the time, by its own clock: CPU time in a sample's report",
        find: spinner::half_the_time,
    },
    Truth {
        name: "stall-max",
        made: "a responder that stalls once for 100 ms, in the open loop: the longest round trip",
        find: |rig| stall(rig, 100.0, [99.0, 200.0], longest),
    },
    Truth {
        name: "stall-p999",
        made: "the same: 99.9 % of round trips were shorter than this",
        // 2,000 requests/s for 2 s: 200 of 4,000 were due during the stall, evenly; the
        // fourth-longest of them waited 100 ms less 2 ms.
        find: |rig| stall(rig, 98.0, [93.0, 200.0], p999),
    },
    Truth {
        name: "stall-closed-loop",
        made: "the same in a closed loop, which hides it: 99.9 % were shorter than this",
        find: hidden_stall,
    },
    Truth {
        name: "loss",
        made: "a wire of 10 Mb/s that receives 50 Mb/s and drops the rest: datagrams lost",
        find: loss,
    },
];

/// An Ethernet header, which the shaper counts; no preamble, checksum or gap, as there is no cable.
const ETHERNET: f64 = 14.0;
const MTU: f64 = 1500.0;
/// IPv4 and UDP headers; IPv4 and TCP headers with the timestamps option.
const UDP_HEADERS: f64 = 28.0;
const TCP_HEADERS: f64 = 52.0;
/// The accepted deviation of the goodput, as a share of the expected value.
const GOODPUT_TOLERANCE: f64 = 0.01;

fn goodput(rig: &Rig, transport: Transport, (wire, bits): (&str, u64)) -> miette::Result<Found> {
    let (headers, message) = match transport {
        Transport::Udp => (UDP_HEADERS, ByteSize(1472)),
        _ => (TCP_HEADERS, ByteSize(128 << 10)),
    };
    let workload = Workload::Stream { message, direction: Direction::Forward };
    // Set regardless of the machine's default: cubic fills a queue and keeps it full.
    let congestion = (transport == Transport::Tcp).then(|| "cubic".parse::<CongestionControl>()).transpose()?;
    let options =
        TestOptions { socket: SocketOptions { congestion, ..SocketOptions::default() }, ..TestOptions::default() };
    let (warmup, duration) = (Warmup::For(Span::from_millis(1000)), Span::from_millis(2000));
    let figures =
        rig.sample(&TestSpec { transport, workload, streams: 1, warmup, duration, slices: None, options }, wire)?;
    let expected = bits as f64 / 1e6 * (MTU - headers) / (MTU + ETHERNET);
    let accepted = [1.0 - GOODPUT_TOLERANCE, 1.0 + GOODPUT_TOLERANCE].map(|factor| factor * expected);
    let detail = format!("{} bytes of payload in {} on the wire", MTU - headers, MTU + ETHERNET);
    Ok(Found::once("Mb/s", expected, figures.goodput_mbps(), accepted, detail))
}

fn rr(options: TestOptions, duration: Span) -> TestSpec {
    // Room for a whole sequence number: in the open loop, many datagrams are in flight.
    let workload = Workload::Rr { request: ByteSize(8), response: ByteSize(8) };
    let warmup = Warmup::For(Span::from_millis(100));
    TestSpec { transport: Transport::Udp, workload, streams: 1, warmup, duration, slices: None, options }
}

fn rtt(figures: &Figures) -> miette::Result<&vtax_model::run::RttFigures> {
    figures.rtt_ns.as_ref().ok_or_else(|| miette!(code = "defect", "no round trips in the report"))
}

const STALL: Span = Span::from_millis(100);
const STALLED: Span = Span::from_millis(2000);

fn stall(
    rig: &Rig,
    expected: f64,
    accepted: [f64; 2],
    figure: fn(&Figures) -> miette::Result<f64>,
) -> miette::Result<Found> {
    let process = ArrivalProcess::Fixed;
    let arrivals = RequestRate::new(2000).map(|per_second| Arrivals { per_second, process });
    let responder = Manners { stall: Some(STALL), ..Manners::default() };
    let options = TestOptions { arrivals, responder, ..TestOptions::default() };
    let figures = rig.sample(&rr(options, STALLED), PLAIN)?;
    let detail = format!("{} requests, 2,000/s, due whether or not responses have arrived", figures.transactions);
    Ok(Found::once("ms", expected, figure(&figures)?, accepted, detail))
}

fn longest(figures: &Figures) -> miette::Result<f64> {
    Ok(rtt(figures)?.max as f64 / 1e6)
}

fn p999(figures: &Figures) -> miette::Result<f64> {
    Ok(rtt(figures)?.p999 as f64 / 1e6)
}

/// With one request in flight, only one of thousands meets the stall, and p99.9 does not show it.
fn hidden_stall(rig: &Rig) -> miette::Result<Found> {
    let responder = Manners { stall: Some(STALL), ..Manners::default() };
    let figures = rig.sample(&rr(TestOptions { responder, ..TestOptions::default() }, STALLED), PLAIN)?;
    let detail =
        format!("{} requests, one in flight; the longest took {:.1} ms", figures.transactions, longest(&figures)?);
    Ok(Found::once("ms", 0.0, p999(&figures)?, [0.0, 50.0], detail))
}

/// Checks that the shaper has dropped as many datagrams as the endpoints miss, over the whole flow.
fn loss(rig: &Rig) -> miette::Result<Found> {
    let bitrate = BitRate::new(50_000_000);
    let workload = Workload::Stream { message: ByteSize(1000), direction: Direction::Forward };
    let (warmup, duration) = (Warmup::For(Span::from_millis(100)), Span::from_millis(1000));
    let options = TestOptions { bitrate, ..TestOptions::default() };
    let spec = TestSpec { transport: Transport::Udp, workload, streams: 1, warmup, duration, slices: None, options };
    let place = rig.endpoint(SUT, LOSSY)?.wire_end();
    let before = rig.lab.qdisc_drops(place)?.drops;
    let (sent, received) = rig.reports(&spec, LOSSY)?;
    let dropped = f64::from(rig.lab.qdisc_drops(place)?.drops.wrapping_sub(before));
    let measured = sent.whole_flow as f64 - received.whole_flow as f64 - received.socket_drops as f64;
    let detail = format!(
        "{} sent, {} arrived, {} dropped by the full socket; the shaper reports {dropped} dropped",
        sent.whole_flow, received.whole_flow, received.socket_drops
    );
    Ok(Found::once("datagrams", dropped, measured, [dropped, dropped], detail))
}
