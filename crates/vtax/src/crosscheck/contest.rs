//! The subject of a comparison: a test at settings that every tool supports.

use std::{fmt, fs, time::Duration};

use serde::Serialize;
use vtax_model::{
    metric::Metric,
    options::{SocketOptions, TestOptions},
    units::{ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload, WorkloadSizes},
};

/// A test that vtax's engine and others run over the same wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Contest {
    pub(crate) transport: Transport,
    #[serde(flatten)]
    pub(crate) workload: Workload,
    pub(crate) streams: u32,
    pub(crate) duration: Span,
    pub(crate) warmup: Span,
}

/// sockperf's smallest message, which its own header fills.
const RR_BYTES: ByteSize = ByteSize(14);
/// The usual sizes of writes, from one packet's to the largest that a tool is called with.
const TCP_MESSAGES: [u64; 4] = [1500, 16 << 10, 128 << 10, 1 << 20];
/// The usual smallest and largest datagrams of floods at MTU 1500.
const UDP_MESSAGES: [u64; 2] = [64, 1472];
/// iperf3 omits whole seconds at the start; congestion control needs that long to find its rate.
const STREAM_WARMUP: Span = Span::from_millis(1000);
/// The time that sockperf omits at the start.
const RR_WARMUP: Span = Span::from_millis(400);
/// A turn shorter than this is given to the other tools as a number of transactions or bytes.
const SHORT: Duration = Duration::from_secs(1);

/// The length of another tool's measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Seconds(u64),
    /// A number of transactions or bytes that takes about the time of the contest.
    Count(u64),
}

impl Contest {
    /// Returns all contests; the last has `streams` flows. Short ones have no warm-up: tools that count cannot skip it.
    pub(crate) fn all(duration: Span, streams: u32) -> Vec<Contest> {
        let warmup = |usual| if duration.0 < SHORT { Span::from_millis(0) } else { usual };
        let rr = |transport| {
            let workload = Workload::Rr { request: RR_BYTES, response: RR_BYTES };
            Contest { transport, workload, streams: 1, duration, warmup: warmup(RR_WARMUP) }
        };
        let stream = |transport, message, streams| {
            let workload = Workload::Stream { message: ByteSize(message), direction: Direction::Forward };
            Contest { transport, workload, streams, duration, warmup: warmup(STREAM_WARMUP) }
        };
        let mut contests = vec![rr(Transport::Tcp), rr(Transport::Udp)];
        contests.extend(TCP_MESSAGES.map(|message| stream(Transport::Tcp, message, 1)));
        contests.push(stream(Transport::Tcp, 128 << 10, streams));
        contests.extend(UDP_MESSAGES.map(|message| stream(Transport::Udp, message, 1)));
        contests
    }

    /// Returns the metric: mean round trips, or goodputs at the receiver.
    pub(crate) fn metric(&self) -> Metric {
        Metric::of(self.workload.kind())
    }

    /// Returns the unit of its figures.
    pub(crate) fn unit(&self) -> &'static str {
        self.metric().unit(self.workload.kind())
    }

    /// Returns the bytes of a message: of the request, the response, or a send call.
    pub(crate) fn message(&self) -> u64 {
        match self.workload.sizes() {
            WorkloadSizes::Exchange { request: size, .. } | WorkloadSizes::Messages(size) => size.0,
            WorkloadSizes::File(_) | WorkloadSizes::Nothing => 0,
        }
    }

    pub(crate) fn is_rr(&self) -> bool {
        self.workload.kind().is_round_trips()
    }

    /// Returns the time in whole seconds, at least one, for tools that require that.
    pub(crate) fn seconds(&self) -> u64 {
        self.duration.0.as_secs().max(1)
    }

    /// Returns true if the contest is too short for tools that require whole seconds.
    pub(crate) fn is_short(&self) -> bool {
        self.duration.0 < SHORT
    }

    /// Returns the length for another tool, if it will measure `figure`.
    pub(crate) fn length(&self, figure: f64) -> Length {
        let seconds = self.duration.0.as_secs_f64();
        match (self.is_short(), self.is_rr()) {
            (false, _) => Length::Seconds(self.seconds()),
            (true, true) => Length::Count((seconds * 1e6 / figure).max(1.0) as u64),
            (true, false) => Length::Count(((seconds * figure * 1e6 / 8.0) as u64).max(self.message())),
        }
    }

    pub(crate) fn is_udp_stream(&self) -> bool {
        self.transport == Transport::Udp && !self.is_rr()
    }

    /// Returns the test for vtax's engine.
    pub(crate) fn spec(&self) -> TestSpec {
        let Contest { transport, workload, streams, duration, warmup } = *self;
        let receive_buffer = if self.is_udp_stream() { default_receive_buffer() } else { None };
        let socket = SocketOptions { receive_buffer, ..SocketOptions::default() };
        let (warmup, options) = (Warmup::For(warmup), TestOptions { socket, ..TestOptions::default() });
        TestSpec { transport, workload, streams, warmup, duration, slices: None, options }
    }
}

/// Returns the default receive buffer of a socket, which the other tools use; vtax requests 8 MiB. The kernel doubles a
/// requested size, socket(7). With None, vtax uses its own.
fn default_receive_buffer() -> Option<ByteSize> {
    let doubled: u64 = fs::read_to_string("/proc/sys/net/core/rmem_default").ok()?.trim().parse().ok()?;
    Some(ByteSize(doubled / 2))
}

/// The form chosen with `--only`: `tcp-rr-14`, `tcp-stream-128KiB`, `tcp-stream-128KiB-x2`.
impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = ByteSize(self.message()).to_string().replace(' ', "");
        let size = size.strip_suffix('B').filter(|plain| plain.bytes().all(|b| b.is_ascii_digit())).unwrap_or(&size);
        let transport = self.transport.to_string().to_lowercase();
        let test = self.workload.kind().to_string().to_lowercase();
        write!(f, "{transport}-{test}-{size}")?;
        if self.streams > 1 { write!(f, "-x{}", self.streams) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_turn_is_reported_as_what_is_done_in_it() {
        let short = Contest::all(Span::from_millis(100), 2);
        assert_eq!((short[0].length(20.0), short[0].warmup), (Length::Count(5000), Span::from_millis(0)));
        assert_eq!(short[4].length(8000.0), Length::Count(100_000_000));
        // Less than a message isn't sent.
        assert_eq!((short[0].length(1e9), short[5].length(0.1)), (Length::Count(1), Length::Count(1 << 20)));
        assert_eq!(Contest::all(Span::from_millis(2000), 2)[4].length(8000.0), Length::Seconds(2));
    }

    #[test]
    fn contests_have_their_own_names() {
        let names: Vec<String> = Contest::all(Span::from_millis(1000), 2).iter().map(Contest::to_string).collect();
        assert_eq!(
            names,
            [
                "tcp-rr-14",
                "udp-rr-14",
                "tcp-stream-1500",
                "tcp-stream-16KiB",
                "tcp-stream-128KiB",
                "tcp-stream-1MiB",
                "tcp-stream-128KiB-x2",
                "udp-stream-64",
                "udp-stream-1472"
            ]
        );
    }
}
