//! How a test is run beyond its sizes: engine, threads, load, socket options.
//!
//! The default of each is what the tools call the test by its plain name: one in flight, as fast
//! as it goes, the kernel's own settings, and a thread for each flow.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    units::{BitRate, ByteSize, Span},
    workload::{Direction, TestKind, Transport, Workload},
};

/// The most flows of one sample.
pub const FLOWS_MOST: u32 = 10_000;
/// The most flows of an engine that has a thread for each.
pub const THREADS_MOST: u32 = 1024;
/// The most requests of one flow in flight.
pub const BURST_MOST: u32 = 4096;
/// The most intervals of a series: a sample's report stays small.
pub const INTERVALS_MOST: u128 = 10_000;

/// Everything about a test but its transport, sizes, flows and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TestOptions {
    /// What waits for the sockets.
    #[serde(skip_serializing_if = "is_default")]
    pub engine: Engine,
    /// Threads that share the flows; one a flow (blocking), else one a CPU of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// RR: requests of each flow in flight.
    #[serde(skip_serializing_if = "is_default")]
    pub burst: Burst,
    /// RR: requests are due at moments of their own, whether or not the responses came (open loop).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// RR: the flow idles so long before each request, so that the path is cold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// Stream: each flow sends at this rate, evenly spaced, and never catches up in bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitrate: Option<BitRate>,
    /// Stream: how the bytes get from the program to the kernel.
    #[serde(skip_serializing_if = "is_default")]
    pub sending: Sending,
    /// UDP stream: datagrams that one send call hands over (UDP_SEGMENT, udp(7)); fewer if 65,507
    /// bytes don't hold as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gso: Option<Segments>,
    /// UDP stream: several datagrams may come with one receive call (UDP_GRO, udp(7)).
    #[serde(skip_serializing_if = "is_default")]
    pub gro: bool,
    /// What is set on the sockets of both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub socket: SocketOptions,
    /// A series of figures, one for each interval of this length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// RR: take each message's time stamps (SO_TIMESTAMPING) and split the round trip by them. It
    /// costs system calls: the round-trip times of such a sample are not those of a plain one.
    #[serde(skip_serializing_if = "is_default")]
    pub stages: bool,
    /// RR: what the responder does besides answering; known truths to calibrate against.
    #[serde(skip_serializing_if = "is_default")]
    pub responder: Manners,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What waits for the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// A thread for each flow, in blocking calls: two system calls a transaction.
    #[default]
    Blocking,
    /// Threads that each wait for many flows, epoll(7).
    Epoll,
    /// Threads that never sleep: they ask their non-blocking sockets again and again.
    BusyPoll,
    /// Threads that hand requests to the kernel and take completions, io_uring(7).
    IoUring,
}

impl Engine {
    /// All of them, in the order of tables.
    pub const ALL: [Engine; 4] = [Engine::Blocking, Engine::Epoll, Engine::BusyPoll, Engine::IoUring];

    /// The name in options, files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Blocking => "blocking",
            Engine::Epoll => "epoll",
            Engine::BusyPoll => "busy-poll",
            Engine::IoUring => "io-uring",
        }
    }

    /// The most flows that one end runs with it.
    pub fn flows_most(self) -> u32 {
        match self {
            Engine::Blocking => THREADS_MOST,
            _ => FLOWS_MOST,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Engine {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let known = Engine::ALL.into_iter().find(|engine| engine.name() == text);
        known.ok_or_else(|| OptionError::UnknownEngine(text.to_owned()))
    }
}

/// Requests of one flow in flight: 1 to [`BURST_MOST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Burst(u32);

impl Burst {
    /// As a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for Burst {
    fn default() -> Burst {
        Burst(1)
    }
}

impl TryFrom<u32> for Burst {
    type Error = OptionError;

    fn try_from(burst: u32) -> Result<Self, OptionError> {
        let possible = (1..=BURST_MOST).contains(&burst);
        possible.then_some(Burst(burst)).ok_or(OptionError::Burst(burst))
    }
}

impl From<Burst> for u32 {
    fn from(burst: Burst) -> u32 {
        burst.0
    }
}

impl FromStr for Burst {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let number: u32 = text.parse().map_err(|_| OptionError::NotANumber(text.to_owned()))?;
        Burst::try_from(number)
    }
}

/// Datagrams of one send call: 2 to 64, as many as the kernel cuts (`UDP_MAX_SEGMENTS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Segments(u32);

impl Segments {
    /// As many as go.
    pub const MOST: Segments = Segments(64);

    /// As a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Segments {
    type Error = OptionError;

    fn try_from(segments: u32) -> Result<Self, OptionError> {
        let possible = (2..=Segments::MOST.0).contains(&segments);
        possible.then_some(Segments(segments)).ok_or(OptionError::Segments(segments))
    }
}

impl From<Segments> for u32 {
    fn from(segments: Segments) -> u32 {
        segments.0
    }
}

impl FromStr for Segments {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let number: u32 = text.parse().map_err(|_| OptionError::NotANumber(text.to_owned()))?;
        Segments::try_from(number)
    }
}

/// When requests are due in the open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Requests a second, over all flows of the test.
    pub per_second: u32,
    /// How they are spread.
    pub process: Process,
}

/// How the arrivals of an open loop are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Process {
    /// Exponential gaps: independent users.
    #[default]
    Poisson,
    /// Equal gaps.
    Fixed,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Process::Poisson => "poisson",
            Process::Fixed => "fixed",
        })
    }
}

/// How the bytes of a stream get from the program to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sending {
    /// send(2): copied.
    #[default]
    Copy,
    /// MSG_ZEROCOPY: the pages are lent.
    ZeroCopy,
    /// sendfile(2) from the page cache.
    SendFile,
}

impl fmt::Display for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Sending::Copy => "copy",
            Sending::ZeroCopy => "zerocopy",
            Sending::SendFile => "sendfile",
        })
    }
}

/// Socket options of both ends; what is absent is the kernel's own choice, but for TCP_NODELAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketOptions {
    /// TCP_NODELAY; if absent on for transactions (nobody wants Nagle in a round-trip time) and off
    /// for streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<bool>,
    /// SO_SNDBUF, as asked: the kernel doubles it for its own needs (socket(7)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<ByteSize>,
    /// SO_RCVBUF, as asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<ByteSize>,
    /// TCP_CONGESTION.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionControl>,
    /// The differentiated services code point of each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// SO_MAX_PACING_RATE: TCP paces itself, UDP needs the fq qdisc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing: Option<BitRate>,
    /// SO_BUSY_POLL: how long a blocking call polls the device queue before it sleeps, in whole µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_poll: Option<Span>,
}

/// The name of a TCP congestion control, at most 15 bytes (`TCP_CA_NAME_MAX`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CongestionControl {
    bytes: [u8; CongestionControl::MOST],
    length: u8,
}

impl CongestionControl {
    const MOST: usize = 15;

    /// As the kernel has it.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length.into()]).expect("made of ASCII letters only")
    }
}

impl FromStr for CongestionControl {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let possible = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if text.is_empty() || text.len() > CongestionControl::MOST || !text.bytes().all(possible) {
            return Err(OptionError::CongestionControl(text.to_owned()));
        }
        let mut bytes = [0; CongestionControl::MOST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(CongestionControl { bytes, length: text.len() as u8 })
    }
}

impl TryFrom<String> for CongestionControl {
    type Error = OptionError;

    fn try_from(text: String) -> Result<Self, OptionError> {
        text.parse()
    }
}

impl From<CongestionControl> for String {
    fn from(name: CongestionControl) -> String {
        name.name().to_owned()
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CongestionControl({})", self.name())
    }
}

/// A differentiated services code point (RFC 2474): 0 to 63, or by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dscp(u8);

/// RFC 2474, RFC 2597, RFC 3246, RFC 8622.
const CODE_POINTS: [(&str, u8); 23] = [
    ("default", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

impl Dscp {
    /// The byte of the IP header that it stands in, its two ECN bits zero.
    pub fn traffic_class(self) -> u8 {
        self.0 << 2
    }
}

impl FromStr for Dscp {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let named = CODE_POINTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, point)| *point);
        let point = named.or_else(|| text.parse().ok()).filter(|point| *point < 64);
        point.map(Dscp).ok_or_else(|| OptionError::Dscp(text.to_owned()))
    }
}

impl TryFrom<String> for Dscp {
    type Error = OptionError;

    fn try_from(text: String) -> Result<Self, OptionError> {
        text.parse()
    }
}

impl From<Dscp> for String {
    fn from(dscp: Dscp) -> String {
        dscp.to_string()
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODE_POINTS.iter().find(|(_, point)| *point == self.0) {
            Some((name, _)) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}

/// What a responder does besides answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Manners {
    /// It answers so long after a request came, exactly: it spins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// It does nothing at all for so long, once, in the middle of the measured time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<Span>,
}

/// Options that a test can't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such engine.
    #[error("unknown engine `{0}`; there are {known}", known = Engine::ALL.map(Engine::name).join(", "))]
    UnknownEngine(String),
    /// Neither a name nor a number.
    #[error("`{0}` is not a number")]
    NotANumber(String),
    /// None, or too many.
    #[error("{0} requests in flight: give 1 to {BURST_MOST}")]
    Burst(u32),
    /// One, or more than the kernel cuts.
    #[error("{0} datagrams a call: give 2 to {most}", most = Segments::MOST.0)]
    Segments(u32),
    /// Not a name that the kernel could have.
    #[error("`{0}` is no congestion control; the kernel lists its own in net.ipv4.tcp_available_congestion_control")]
    CongestionControl(String),
    /// Neither a number below 64 nor a name.
    #[error("`{0}` is no DSCP; give 0 to 63 or a name as cs1, af21, ef")]
    Dscp(String),
    /// No flow, or more than the engine runs.
    #[error(
        "{asked} flows: the engine `{engine}` runs 1 to {most}{more}",
        most = engine.flows_most(),
        more = if *engine == Engine::Blocking { "; use --engine epoll for more" } else { "" }
    )]
    Flows {
        /// As asked.
        asked: u32,
        /// As asked.
        engine: Engine,
    },
    /// A number of threads that makes no sense.
    #[error("{threads} threads for {flows} flows: {why}")]
    Threads {
        /// As asked.
        threads: u32,
        /// Of the test.
        flows: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An option of other tests or transports.
    #[error("`{option}` is for {of}, not for {transport} {test}; leave it out")]
    NotForTest {
        /// The option's name.
        option: &'static str,
        /// What has it.
        of: &'static str,
        /// The transport that was asked for.
        transport: Transport,
        /// The test that was asked for.
        test: TestKind,
    },
    /// Two options that exclude each other.
    #[error("`{first}` and `{second}` exclude each other: {why}")]
    Clash {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Why.
        why: &'static str,
    },
}

impl TestOptions {
    /// Whether nothing was chosen.
    pub fn is_plain(&self) -> bool {
        *self == TestOptions::default()
    }

    /// Whether `streams` flows of this test can be run so.
    pub fn check(&self, transport: Transport, workload: &Workload, streams: u32) -> Result<(), OptionError> {
        let flows = match workload {
            Workload::Stream { direction: Direction::Both, .. } => streams.saturating_mul(2),
            _ => streams,
        };
        if !(1..=self.engine.flows_most()).contains(&flows) {
            return Err(OptionError::Flows { asked: streams, engine: self.engine });
        }
        self.check_threads(flows)?;
        self.check_use(transport, workload.kind())?;
        self.check_clashes()
    }

    fn check_threads(&self, flows: u32) -> Result<(), OptionError> {
        let Some(threads) = self.threads else { return Ok(()) };
        let wrong = |why| Err(OptionError::Threads { threads, flows, why });
        match (self.engine, threads) {
            (_, 0) => wrong("give at least one"),
            (Engine::Blocking, _) if threads != flows => {
                wrong("the engine `blocking` has one thread a flow; use --engine epoll")
            }
            _ if threads > flows => wrong("a thread without a flow does nothing; give at most one a flow"),
            _ if threads > THREADS_MOST => wrong("an end runs 1024 at most"),
            _ => Ok(()),
        }
    }

    /// Every option that was chosen is one of this test's.
    fn check_use(&self, transport: Transport, test: TestKind) -> Result<(), OptionError> {
        let (rr, stream) = (test == TestKind::Rr, test.is_stream());
        let udp_stream = stream && transport == Transport::Udp;
        let socket = &self.socket;
        let uses = [
            ("engine", "all tests but file", test != TestKind::File, self.engine != Engine::default()),
            ("burst", "rr", rr, self.burst != Burst::default()),
            ("rate", "rr", rr, self.arrivals.is_some()),
            ("gap", "rr", rr, self.gap.is_some()),
            ("stages", "rr over TCP or UDP", rr && transport.is_ip(), self.stages),
            ("delay", "rr", rr, self.responder.delay.is_some()),
            ("stall", "rr", rr, self.responder.stall.is_some()),
            ("bitrate", "streams", stream, self.bitrate.is_some()),
            ("sending", "TCP streams", stream && transport == Transport::Tcp, self.sending != Sending::default()),
            ("gso", "UDP streams", udp_stream, self.gso.is_some()),
            ("gro", "UDP streams", udp_stream, self.gro),
            ("nodelay", "TCP", transport == Transport::Tcp, socket.nodelay.is_some()),
            ("congestion", "TCP", transport == Transport::Tcp, socket.congestion.is_some()),
            ("dscp", "TCP and UDP", transport.is_ip(), socket.dscp.is_some()),
            ("pacing", "TCP and UDP", transport.is_ip(), socket.pacing.is_some()),
            ("busy-poll", "TCP and UDP", transport.is_ip(), socket.busy_poll.is_some()),
        ];
        match uses.into_iter().find(|(_, _, fits, chosen)| *chosen && !fits) {
            Some((option, of, ..)) => Err(OptionError::NotForTest { option, of, transport, test }),
            None => Ok(()),
        }
    }

    fn check_clashes(&self) -> Result<(), OptionError> {
        let bursts = self.burst != Burst::default();
        let (open, gap) = (self.arrivals.is_some(), self.gap.is_some());
        let clashes = [
            (bursts && open, "burst", "rate", "the open loop has as many in flight as are due"),
            (bursts && gap, "burst", "gap", "a flow with others in flight isn't idle"),
            (open && gap, "rate", "gap", "the open loop sends when a request is due"),
            (self.stages && (bursts || open), "stages", "burst or rate", "stamps are matched with one in flight"),
            (
                self.stages && self.engine != Engine::Blocking,
                "stages",
                "engine",
                "stamps are taken by the engine `blocking`",
            ),
            (
                self.engine == Engine::IoUring && self.sending != Sending::Copy,
                "engine io-uring",
                "sending",
                "zero-copy and sendfile are of the other engines",
            ),
            (
                self.engine == Engine::IoUring && (self.gso.is_some() || self.gro),
                "engine io-uring",
                "gso or gro",
                "segmentation is of the other engines",
            ),
        ];
        match clashes.into_iter().find(|(both, ..)| *both) {
            Some((_, first, second, why)) => Err(OptionError::Clash { first, second, why }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RR: Workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };

    fn refused(options: TestOptions, transport: Transport, workload: Workload, streams: u32) -> String {
        options.check(transport, &workload, streams).expect_err("refused").to_string()
    }

    #[test]
    fn flows_are_bounded_by_the_engine() {
        let with = |engine| TestOptions { engine, ..TestOptions::default() };
        assert_eq!(with(Engine::Epoll).check(Transport::Tcp, &RR, 10_000), Ok(()));
        assert!(refused(with(Engine::Epoll), Transport::Tcp, RR, 10_001).contains("1 to 10000"));
        assert!(refused(with(Engine::Blocking), Transport::Tcp, RR, 1025).contains("--engine epoll"));
        assert!(refused(with(Engine::Blocking), Transport::Tcp, RR, 0).contains("0 flows"));
        let both = Workload::Stream { message: ByteSize(1), direction: Direction::Both };
        assert!(with(Engine::Blocking).check(Transport::Tcp, &both, 513).is_err());
    }

    #[test]
    fn threads_need_flows() {
        let with = |engine, threads| TestOptions { engine, threads: Some(threads), ..TestOptions::default() };
        assert_eq!(with(Engine::Epoll, 2).check(Transport::Tcp, &RR, 64), Ok(()));
        assert_eq!(with(Engine::Blocking, 2).check(Transport::Tcp, &RR, 2), Ok(()));
        for (engine, threads) in [(Engine::Epoll, 0), (Engine::Epoll, 65), (Engine::Blocking, 2)] {
            assert!(with(engine, threads).check(Transport::Tcp, &RR, 64).is_err(), "{engine} {threads}");
        }
    }

    #[test]
    fn an_option_of_another_test_is_named() {
        let stream = Workload::Stream { message: ByteSize(1), direction: Direction::Forward };
        let gso = TestOptions { gso: Some(Segments::MOST), ..TestOptions::default() };
        assert_eq!(gso.check(Transport::Udp, &stream, 1), Ok(()));
        assert_eq!(
            refused(gso, Transport::Tcp, stream, 1),
            "`gso` is for UDP streams, not for TCP stream; leave it out"
        );
        let gap = TestOptions { gap: Some(Span::from_millis(1)), ..TestOptions::default() };
        assert!(refused(gap, Transport::Tcp, Workload::Cc, 1).contains("`gap` is for rr"));
        let nodelay = SocketOptions { nodelay: Some(false), ..SocketOptions::default() };
        let options = TestOptions { socket: nodelay, ..TestOptions::default() };
        assert!(refused(options, Transport::Unix, RR, 1).contains("`nodelay` is for TCP"));
    }

    #[test]
    fn options_that_exclude_each_other_are_named() {
        let options = TestOptions { burst: Burst(4), gap: Some(Span::from_millis(1)), ..TestOptions::default() };
        assert!(refused(options, Transport::Tcp, RR, 1).starts_with("`burst` and `gap` exclude each other"));
    }

    #[test]
    fn names_and_numbers_are_code_points() {
        assert_eq!("EF".parse::<Dscp>().map(Dscp::traffic_class), Ok(184));
        assert_eq!("63".parse::<Dscp>().map(|dscp| dscp.to_string()), Ok("63".to_owned()));
        assert!("64".parse::<Dscp>().is_err() && "ef1".parse::<Dscp>().is_err());
    }

    #[test]
    fn plain_options_leave_no_trace_in_a_record() {
        assert_eq!(serde_json::to_string(&TestOptions::default()).expect("JSON"), "{}");
    }

    proptest! {
        #[test]
        fn a_congestion_control_survives_being_written(name in "[a-z0-9_-]{1,15}") {
            let control: CongestionControl = name.parse().expect("a name");
            let text = serde_json::to_string(&control).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<CongestionControl>(&text).expect("JSON"), control);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text: String) {
            let _ = (text.parse::<CongestionControl>(), text.parse::<Dscp>(), text.parse::<Engine>());
            let _ = (text.parse::<Burst>(), text.parse::<Segments>());
        }
    }
}
