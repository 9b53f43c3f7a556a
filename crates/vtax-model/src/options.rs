//! Options of a test other than its sizes: engine, threads, load, socket options.
//!
//! The defaults are those of netperf and similar tools: one request in flight, maximum speed, the
//! kernel's own settings, and a thread for each flow.

mod arrivals;
mod error;
mod socket;

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumString, IntoStaticStr};

pub use arrivals::{ArrivalProcess, Arrivals, RequestRate};
pub use error::OptionError;
pub use socket::{CongestionControl, Dscp, SocketOptions};

use crate::{
    units::{BitRate, Span},
    workload::{TestKind, Transport, Workload},
};

/// Maximum number of flows of one sample.
pub const FLOWS_MOST: u32 = 10_000;
/// Maximum number of flows of an engine that has a thread for each.
pub const THREADS_MOST: u32 = 1024;
/// Maximum number of requests of one flow in flight.
pub const BURST_MOST: u32 = 4096;
/// Maximum number of intervals of a series, so that a sample's report stays small.
pub const INTERVALS_MOST: u128 = 10_000;

/// All options of a test except its transport, sizes, flows and times.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TestOptions {
    /// Socket I/O engine.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub engine: Engine,
    /// Threads that share the flows; by default one per flow (blocking), else one per CPU of the
    /// endpoint.
    pub threads: Option<u32>,
    /// RR: requests of each flow in flight.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub burst: Burst,
    /// RR: requests are due at scheduled times, whether or not responses have arrived (open loop).
    pub arrivals: Option<Arrivals>,
    /// RR: idle time of each flow before each request, so that the path is cold.
    pub gap: Option<Span>,
    /// Open loop over UDP with one flow: the other endpoint may be silent for this long, and the longest silences are
    /// reported.
    pub outage: Option<Span>,
    /// Stream: send rate of each flow, evenly spaced, without catching up in bursts.
    pub bitrate: Option<BitRate>,
    /// Stream: method of passing bytes from the program to the kernel.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub sending: Sending,
    /// UDP stream: datagrams per send call (UDP_SEGMENT, udp(7)); fewer if they don't fit into 65,507 bytes.
    pub gso: Option<Segments>,
    /// UDP stream: receive several datagrams per call (UDP_GRO, udp(7)).
    #[serde(skip_serializing_if = "crate::is_default")]
    pub gro: bool,
    /// Socket options of both endpoints.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub socket: SocketOptions,
    /// Length of the intervals of a series of figures.
    pub interval: Option<Span>,
    /// RR: split the round trip by timestamps (SO_TIMESTAMPING), whose system calls make it longer.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub stages: bool,
    /// Count the measuring threads' CPU cycles, which makes their context switches slower (perf_event_open(2)).
    #[serde(skip_serializing_if = "crate::is_default")]
    pub cycles: bool,
    /// RR: additional work of the responder, as reference cases for calibration.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub responder: Manners,
    /// Idle behaviour of CPUs.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub idle: Idle,
}

/// Idle behaviour of the CPUs of both endpoints.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = OptionError, parse_err_fn = OptionError::unknown_idle)]
pub enum Idle {
    /// CPUs use the machine's configuration: they may sleep, and waking them takes time.
    #[default]
    System,
    /// CPUs don't sleep while a sample is measured: each endpoint holds `/dev/cpu_dma_latency` at 0 (the kernel's
    /// `Documentation/power/pm_qos_interface.rst`).
    Poll,
}

impl Idle {
    /// All of them.
    pub const ALL: [Idle; 2] = [Idle::System, Idle::Poll];
}

/// Socket I/O engine.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = OptionError, parse_err_fn = OptionError::unknown_engine)]
pub enum Engine {
    /// A thread for each flow, in blocking calls: two system calls per transaction.
    #[default]
    Blocking,
    /// Threads that each wait for many flows, epoll(7).
    Epoll,
    /// Threads that never sleep: they poll their non-blocking sockets continuously.
    BusyPoll,
    /// Threads that submit requests to the kernel and take completions, io_uring(7).
    IoUring,
}

impl Engine {
    /// All of them, in the order of tables.
    pub const ALL: [Engine; 4] = [Engine::Blocking, Engine::Epoll, Engine::BusyPoll, Engine::IoUring];

    /// Maximum number of flows that one endpoint runs with it.
    pub fn flows_most(self) -> u32 {
        match self {
            Engine::Blocking => THREADS_MOST,
            _ => FLOWS_MOST,
        }
    }
}

/// Requests of one flow in flight: 1 to [`BURST_MOST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct Burst(u32);

impl Burst {
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

impl FromStr for Burst {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let number: u32 = text.parse().map_err(|_| OptionError::NotANumber(text.to_owned()))?;
        Burst::try_from(number)
    }
}

/// Datagrams per send call: 2 to 64, the kernel's maximum (`UDP_MAX_SEGMENTS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct Segments(u32);

impl Segments {
    /// Maximum number of datagrams per call.
    pub const MOST: Segments = Segments(64);

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

impl FromStr for Segments {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let number: u32 = text.parse().map_err(|_| OptionError::NotANumber(text.to_owned()))?;
        Segments::try_from(number)
    }
}

/// Transfer of a stream's bytes from the program to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Sending {
    /// send(2): copied.
    #[default]
    Copy,
    /// MSG_ZEROCOPY: the kernel uses the program's pages.
    ZeroCopy,
    /// sendfile(2) from the page cache.
    SendFile,
}

/// Additional work of a responder.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Manners {
    /// Delay of each answer after its request has arrived. The responder spins for up to 127 ns longer, and reports how
    /// long it actually waited.
    pub delay: Option<Span>,
    /// Length of one pause in the middle of the measured time in which it does nothing.
    pub stall: Option<Span>,
}

impl TestOptions {
    /// Returns true if the mean time of a transaction is the inverse of each flow's rate: one in flight, and no gap in
    /// between. Otherwise the rate only shows how many there were, not how long each took; crr's rate includes the
    /// closing of each connection, which is not part of its response time.
    pub fn rate_is_inverse(&self, test: TestKind) -> bool {
        let TestOptions { burst, arrivals, gap, .. } = *self;
        let one_after_another = burst.get() == 1 && arrivals.is_none() && gap.is_none();
        one_after_another && !test.goes_on()
    }

    /// Returns true if a sample can be cut into slices: nothing is in flight between two, and no other clock is due.
    pub fn can_be_sliced(&self) -> bool {
        let TestOptions { burst, arrivals, bitrate, sending, gso, gro, interval, stages, .. } = *self;
        let one_by_one = burst == Burst::default() && arrivals.is_none() && bitrate.is_none();
        let plain = sending == Sending::Copy && gso.is_none() && !gro && self.engine != Engine::IoUring;
        one_by_one && plain && interval.is_none() && !stages
    }

    /// Checks that `streams` flows of this test can run with these options.
    pub fn check(&self, transport: Transport, workload: &Workload, streams: u32) -> Result<(), OptionError> {
        let flows = workload.flows(streams);
        if !(1..=self.engine.flows_most()).contains(&flows) {
            return Err(OptionError::Flows { asked: streams, engine: self.engine });
        }
        self.check_threads(flows)?;
        self.check_use(transport, workload.kind())?;
        self.check_outage(streams)?;
        self.check_clashes()
    }

    fn check_threads(&self, flows: u32) -> Result<(), OptionError> {
        let Some(threads) = self.threads else { return Ok(()) };
        let wrong = |why| Err(OptionError::Threads { threads, flows, why });
        match (self.engine, threads) {
            (_, 0) => wrong("must be at least one"),
            (Engine::Blocking, _) if threads != flows => {
                wrong("the engine `blocking` has one thread per flow; use --engine epoll")
            }
            _ if threads > flows => wrong("a thread without a flow does nothing; use at most one per flow"),
            _ if threads > THREADS_MOST => wrong("an endpoint runs at most 1024"),
            _ => Ok(()),
        }
    }

    /// Checks that every option that was set belongs to this test.
    fn check_use(&self, transport: Transport, test: TestKind) -> Result<(), OptionError> {
        let (rr, stream) = (test.is_paced() && transport.is_answered_by_agent(), test.is_stream());
        let udp_stream = stream && transport == Transport::Udp;
        let socket = &self.socket;
        let uses = [
            ("engine", "all tests but file", !test.is_file(), self.engine != Engine::default()),
            ("burst", "rr", rr, self.burst != Burst::default()),
            ("rate", "rr", rr, self.arrivals.is_some()),
            ("gap", "rr", rr, self.gap.is_some()),
            ("outage", "rr over UDP", rr && transport == Transport::Udp, self.outage.is_some()),
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

    /// Silences of several flows would overlap, and a closed loop loses at most one request in each.
    fn check_outage(&self, streams: u32) -> Result<(), OptionError> {
        match (self.outage, self.arrivals) {
            (Some(_), None) => Err(OptionError::Outage { why: "an open loop; set `rate`, e.g. 1000" }),
            (Some(_), _) if streams != 1 => Err(OptionError::Outage { why: "a single flow; set `streams` to 1" }),
            _ => Ok(()),
        }
    }

    fn check_clashes(&self) -> Result<(), OptionError> {
        let bursts = self.burst != Burst::default();
        let (open, gap) = (self.arrivals.is_some(), self.gap.is_some());
        let clashes = [
            (bursts && open, "burst", "rate", "the number in flight of the open loop depends on its rate"),
            (bursts && gap, "burst", "gap", "a flow with other requests in flight is not idle"),
            (open && gap, "rate", "gap", "the open loop sends when a request is due"),
            (
                self.stages && (bursts || open),
                "stages",
                "burst or rate",
                "timestamps are matched with one request in flight",
            ),
            (
                self.stages && self.engine != Engine::Blocking,
                "stages",
                "engine",
                "timestamps are taken by the engine `blocking`",
            ),
            (
                self.engine == Engine::IoUring && self.sending != Sending::Copy,
                "engine io-uring",
                "sending",
                "zero-copy and sendfile are features of the other engines",
            ),
            (
                self.engine == Engine::IoUring && (self.gso.is_some() || self.gro),
                "engine io-uring",
                "gso or gro",
                "segmentation is a feature of the other engines",
            ),
        ];
        match clashes.into_iter().find(|(both, ..)| *both) {
            Some((_, first, second, why)) => Err(OptionError::Clash { first, second, why }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
