//! What is sent over a path: the tests and their sizes.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    options::{OptionError, TestOptions},
    study::SamplingPlan,
    units::{ByteSize, Mtu, Span, UnitError},
};

/// The protocol under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// One connection per flow.
    Tcp,
    /// Datagrams that carry a sequence number and, where they are long enough, the session's token.
    Udp,
    /// Stream sockets of the local domain, unix(7): two processes on one kernel, no network at all.
    Unix,
    /// Stream sockets between a virtual machine and its host, vsock(7): no network stack, no MTU.
    Vsock,
    /// Echo requests, which the kernel of the other end answers: ping(8).
    Icmp,
}

impl Transport {
    /// All of them, in the order of tables.
    pub const ALL: [Transport; 5] =
        [Transport::Tcp, Transport::Udp, Transport::Unix, Transport::Vsock, Transport::Icmp];

    /// Whether it runs on IP, and so has addresses, ports and an MTU.
    pub fn is_ip(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Udp | Transport::Icmp)
    }

    /// Whether it carries messages that may be lost, each of which must fit a packet.
    pub fn is_datagram(self) -> bool {
        matches!(self, Transport::Udp | Transport::Icmp)
    }

    /// Whether the agent at the responder answers requests, and so can do with them as it was told.
    pub fn is_answered_by_agent(self) -> bool {
        self != Transport::Icmp
    }

    /// Whether this test runs over it.
    pub fn carries(self, kind: TestKind) -> bool {
        match self {
            // A datagram is part of no connection, and a file may not lose a part.
            Transport::Udp => !matches!(kind, TestKind::Crr | TestKind::Cc | TestKind::File),
            Transport::Tcp | Transport::Unix | Transport::Vsock => true,
            Transport::Icmp => kind == TestKind::Rr,
        }
    }

    /// Whether samples of a test can be cut into slices: the flow must have marks of its own.
    pub fn has_slices(self, kind: TestKind) -> bool {
        matches!(self, Transport::Tcp | Transport::Udp) && matches!(kind, TestKind::Rr | TestKind::Stream)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
            Transport::Unix => "Unix",
            Transport::Vsock => "vsock",
            Transport::Icmp => "ICMP",
        })
    }
}

/// The kinds of test, without their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestKind {
    /// Request and response: the round-trip time.
    Rr,
    /// Connect, request, response, close: what a short-lived connection costs.
    Crr,
    /// Connect and close.
    Cc,
    /// Bytes from the initiator, as fast as they go: the goodput at the receiver.
    Stream,
    /// The same from the responder (netperf's "stream" read backwards).
    Maerts,
    /// Both at once, on flows of their own.
    Bidirectional,
    /// A file from the sender's disk into a file at the receiver: real, user, sys.
    File,
}

impl TestKind {
    /// All of them, in the order of tables.
    pub const ALL: [TestKind; 7] = [
        TestKind::Rr,
        TestKind::Crr,
        TestKind::Cc,
        TestKind::Stream,
        TestKind::Maerts,
        TestKind::Bidirectional,
        TestKind::File,
    ];

    /// Whether its figure is the time of a transaction.
    pub fn is_transactions(self) -> bool {
        matches!(self, TestKind::Rr | TestKind::Crr | TestKind::Cc)
    }

    /// Whether its figure is a goodput.
    pub fn is_stream(self) -> bool {
        matches!(self, TestKind::Stream | TestKind::Maerts | TestKind::Bidirectional)
    }
}

/// Who sends the bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The initiator.
    #[default]
    Forward,
    /// The responder.
    Reverse,
    /// Each to the other, on flows of their own: `streams` of them in each direction.
    Both,
}

impl Direction {
    /// The usual one, which records leave out.
    pub fn is_forward(&self) -> bool {
        *self == Direction::Forward
    }
}

impl fmt::Display for TestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TestKind::Rr => "RR",
            TestKind::Crr => "CRR",
            TestKind::Cc => "CC",
            TestKind::Stream => "stream",
            TestKind::Maerts => "maerts",
            TestKind::Bidirectional => "bidirectional",
            TestKind::File => "file",
        })
    }
}

/// A test with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "lowercase")]
pub enum Workload {
    /// Request and response.
    Rr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// A connection for each request and its response. The token goes before the request, in the
    /// same segment.
    Crr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// Connections that are closed as soon as they are there.
    Cc,
    /// As fast as it goes, or at [`TestOptions::bitrate`].
    Stream {
        /// Bytes handed to the kernel by one call; over UDP, of one datagram.
        #[serde(rename = "message_bytes")]
        message: ByteSize,
        /// Who sends.
        #[serde(default, skip_serializing_if = "Direction::is_forward")]
        direction: Direction,
    },
    /// One file, disk to disk.
    File {
        /// Bytes of the file.
        #[serde(rename = "file_bytes")]
        size: ByteSize,
    },
}

impl Workload {
    /// The kind without the sizes.
    pub fn kind(&self) -> TestKind {
        match self {
            Workload::Rr { .. } => TestKind::Rr,
            Workload::Crr { .. } => TestKind::Crr,
            Workload::Cc => TestKind::Cc,
            Workload::Stream { direction: Direction::Forward, .. } => TestKind::Stream,
            Workload::Stream { direction: Direction::Reverse, .. } => TestKind::Maerts,
            Workload::Stream { direction: Direction::Both, .. } => TestKind::Bidirectional,
            Workload::File { .. } => TestKind::File,
        }
    }

    /// Whether these sizes can go over `transport` on a path of `mtu`.
    pub fn check(&self, transport: Transport, mtu: Mtu) -> Result<(), WorkloadError> {
        for (what, size) in self.sizes() {
            check_size(what, size, transport, mtu)?;
        }
        match self {
            _ if !transport.carries(self.kind()) => Err(WorkloadError::NotOver { test: self.kind(), transport }),
            Workload::Rr { request, response } if transport == Transport::Icmp && request != response => {
                Err(WorkloadError::UnequalEcho { request: *request, response: *response })
            }
            Workload::Stream { message, .. } if transport.is_datagram() && message.0 < UDP_STREAM_LEAST => {
                Err(WorkloadError::NoRoomForSequence { message: *message })
            }
            _ => Ok(()),
        }
    }

    fn sizes(&self) -> Vec<(&'static str, ByteSize)> {
        match *self {
            Workload::Rr { request, response } | Workload::Crr { request, response } => {
                vec![("request", request), ("response", response)]
            }
            Workload::Cc => vec![],
            Workload::Stream { message, .. } => vec![("message", message)],
            Workload::File { size } => vec![("file", size)],
        }
    }
}

/// Bytes of the sequence number that each datagram of a UDP stream starts with.
pub const UDP_STREAM_LEAST: u64 = 8;

/// The largest message a single call may hand to a TCP socket here: it bounds the buffers of an agent.
pub const MESSAGE_MOST: ByteSize = ByteSize(64 << 20);

fn check_size(what: &'static str, size: ByteSize, transport: Transport, mtu: Mtu) -> Result<(), WorkloadError> {
    if size.0 == 0 {
        return Err(WorkloadError::Empty { what });
    }
    let most = match transport {
        _ if what == "file" => ByteSize(u64::MAX),
        _ if transport.is_datagram() => mtu.udp_payload(),
        _ => MESSAGE_MOST,
    };
    if size > most {
        return Err(WorkloadError::TooLarge { what, size, transport, most, mtu });
    }
    Ok(())
}

/// Sizes that a transport can't carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Zero bytes.
    #[error("{what} size 0: nothing would be sent; give at least 1 byte")]
    Empty {
        /// `request`, `response`, `message` or `file`.
        what: &'static str,
    },
    /// More than one message of the transport holds.
    #[error("{what} size {size} is beyond what {transport} carries in one message at MTU {mtu}: at most {most}")]
    TooLarge {
        /// `request`, `response` or `message`.
        what: &'static str,
        /// As asked.
        size: ByteSize,
        /// The transport that refuses it.
        transport: Transport,
        /// The largest that goes.
        most: ByteSize,
        /// The path's MTU.
        mtu: Mtu,
    },
    /// A UDP stream counts its losses by a sequence number in each datagram.
    #[error(
        "message size {message} leaves no room for the sequence number of a UDP stream; give at least {UDP_STREAM_LEAST} bytes"
    )]
    NoRoomForSequence {
        /// As asked.
        message: ByteSize,
    },
    /// A kernel echoes what it gets.
    #[error(
        "an ICMP echo is as long as its request; request {request} and response {response} differ: give both the same size"
    )]
    UnequalEcho {
        /// As asked.
        request: ByteSize,
        /// As asked.
        response: ByteSize,
    },
    /// The transport has no such test.
    #[error("{test} doesn't run over {transport}; it has {}", carried(*transport))]
    NotOver {
        /// As asked.
        test: TestKind,
        /// The transport that can't carry it.
        transport: Transport,
    },
}

fn carried(transport: Transport) -> String {
    let kinds = TestKind::ALL.into_iter().filter(|kind| transport.carries(*kind));
    kinds.map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ")
}

impl WorkloadError {
    /// The size that is wrong: `request`, `response`, `message` or `file`.
    pub fn what(&self) -> &'static str {
        match self {
            WorkloadError::Empty { what } | WorkloadError::TooLarge { what, .. } => what,
            WorkloadError::NoRoomForSequence { .. } => "message",
            WorkloadError::UnequalEcho { .. } => "response",
            WorkloadError::NotOver { test: TestKind::File, .. } => "file",
            WorkloadError::NotOver { .. } => "test",
        }
    }
}

/// One test as both ends are told to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// The protocol.
    pub transport: Transport,
    /// The test and its sizes.
    pub workload: Workload,
    /// Flows at the same time, each on a 5-tuple of its own.
    pub streams: u32,
    /// Traffic before the measured time begins.
    pub warmup: Warmup,
    /// The measured time; of each slice, if there are slices. A file transfer ends when the file is there
    /// instead.
    pub duration: Span,
    /// How the sample is cut into slices; absent if it is measured in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Sliced>,
    /// Everything else; the default is what every tool calls the test by its plain name.
    #[serde(default, skip_serializing_if = "TestOptions::is_plain")]
    pub options: TestOptions,
}

/// A sample in slices, as both ends have to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sliced {
    /// Slices of the sample.
    pub passes: u32,
    /// From the beginning of the warm-up of the first row until the end of the last slice of any row: for so
    /// long a flow may have to wait for its turn.
    pub span: Span,
}

impl TestSpec {
    /// What of each slice goes before its measured time, so that it begins under load.
    pub fn lead(&self) -> Duration {
        self.duration.0 / 10
    }

    /// Whether both ends can run it: sizes against the transport and an MTU, options against both.
    pub fn check(&self, mtu: Mtu) -> Result<(), SpecError> {
        self.workload.check(self.transport, mtu)?;
        self.check_slices()?;
        Ok(self.options.check(self.transport, &self.workload, self.streams)?)
    }

    fn check_slices(&self) -> Result<(), SpecError> {
        let Some(Sliced { passes, .. }) = self.slices else { return Ok(()) };
        match self.transport.has_slices(self.workload.kind()) && self.streams == 1 && self.options.can_be_sliced() {
            true if (1..=SamplingPlan::PASSES_MOST).contains(&passes) => Ok(()),
            true => Err(SpecError::Passes(passes)),
            false => Err(SpecError::NoSlices),
        }
    }

    /// As [`TestOptions::rate_is_inverse`].
    pub fn rate_is_inverse(&self) -> bool {
        self.options.rate_is_inverse(self.workload.kind())
    }
}

/// A test that can't be run anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Its sizes.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Its options.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// A test whose ends can't tell where a slice ends.
    #[error("slices are for rr and stream over TCP and UDP, of one flow that sends one message at a time")]
    NoSlices,
    /// No slice at all, or too many.
    #[error("{0} slices in a sample: give 1 to {most}", most = SamplingPlan::PASSES_MOST)]
    Passes(u32),
}

/// Traffic before the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Warmup {
    /// So long, whatever the figures do.
    For(Span),
    /// Until the figures are steady by [`stats::steady`](crate::stats), but no longer than `most`:
    /// then the measured time begins all the same, and the report says so.
    UntilSteady {
        /// Written `steady:2s`; `steady` alone is [`Warmup::MOST`].
        most: Span,
    },
}

impl Warmup {
    /// How long a steady state is waited for if nothing else is said.
    pub const MOST: Span = Span::from_millis(3_000);
    /// None at all.
    pub const NONE: Warmup = Warmup::For(Span::from_millis(0));

    /// The longest that it can take.
    pub fn most(self) -> Span {
        match self {
            Warmup::For(span) | Warmup::UntilSteady { most: span } => span,
        }
    }
}

impl From<Span> for Warmup {
    fn from(span: Span) -> Warmup {
        Warmup::For(span)
    }
}

impl std::str::FromStr for Warmup {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.strip_prefix("steady") {
            Some("") => Ok(Warmup::UntilSteady { most: Warmup::MOST }),
            Some(most) => {
                let most = most.strip_prefix(':').ok_or_else(|| UnitError::Span(text.to_owned()))?;
                Ok(Warmup::UntilSteady { most: most.parse()? })
            }
            None => Ok(Warmup::For(text.parse()?)),
        }
    }
}

impl fmt::Display for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warmup::For(span) => span.fmt(f),
            Warmup::UntilSteady { most } => write!(f, "steady:{}", most.to_string().replace(' ', "")),
        }
    }
}

impl Serialize for Warmup {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Warmup {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rr(request: u64, response: u64) -> Workload {
        Workload::Rr { request: ByteSize(request), response: ByteSize(response) }
    }

    #[test]
    fn sizes_of_zero_are_refused() {
        let refused = rr(1, 0).check(Transport::Tcp, Mtu::ETHERNET);
        assert_eq!(refused, Err(WorkloadError::Empty { what: "response" }));
    }

    #[test]
    fn a_datagram_must_fit_the_mtu() {
        assert_eq!(rr(1472, 1).check(Transport::Udp, Mtu::ETHERNET), Ok(()));
        assert!(rr(1473, 1).check(Transport::Udp, Mtu::ETHERNET).is_err());
        assert_eq!(rr(1473, 1).check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_udp_stream_needs_room_for_its_sequence_number() {
        let stream = |bytes| Workload::Stream { message: ByteSize(bytes), direction: Direction::Forward };
        assert!(stream(7).check(Transport::Udp, Mtu::ETHERNET).is_err());
        assert_eq!(stream(8).check(Transport::Udp, Mtu::ETHERNET), Ok(()));
        assert_eq!(stream(7).check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_connection_needs_a_transport_that_has_them() {
        assert_eq!(
            Workload::Cc.check(Transport::Udp, Mtu::ETHERNET),
            Err(WorkloadError::NotOver { test: TestKind::Cc, transport: Transport::Udp })
        );
        assert_eq!(Workload::Cc.check(Transport::Unix, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_warmup_is_a_time_or_a_state() {
        let read = |text: &str| text.parse::<Warmup>();
        assert_eq!(read("10ms"), Ok(Warmup::For(Span::from_millis(10))));
        assert_eq!(read("steady"), Ok(Warmup::UntilSteady { most: Warmup::MOST }));
        assert_eq!(read("steady:500ms"), Ok(Warmup::UntilSteady { most: Span::from_millis(500) }));
        for text in ["", "steadily", "steady:", "10"] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in ["10ms", "steady:2s 500ms"] {
            let warmup = text.replace(' ', "").parse::<Warmup>().expect("good");
            assert_eq!(warmup.to_string().replace(' ', "").parse(), Ok(warmup));
        }
    }

    #[test]
    fn a_file_goes_over_tcp_only() {
        let file = Workload::File { size: ByteSize(1000 << 20) };
        assert_eq!(file.check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
        assert_eq!(
            file.check(Transport::Udp, Mtu::ETHERNET),
            Err(WorkloadError::NotOver { test: TestKind::File, transport: Transport::Udp })
        );
    }
}
