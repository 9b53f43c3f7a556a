//! The test that a mesh takes with each pair.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_model::{
    options::TestOptions,
    units::{ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};

/// A stream leaves slow start in the meantime, and empties the bucket of a policer.
const WARMUP: Span = Span::from_millis(100);
/// Bytes per send call of a stream.
const MESSAGE: ByteSize = ByteSize(128 << 10);
/// Bytes of a request and of its response.
const TRANSACTION: ByteSize = ByteSize(1);

/// Kind, time and source ports of the test of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairTest {
    pub kind: PairTestKind,
    /// Measured time of each direction of a pair, over all source ports.
    pub duration: Span,
    /// Source ports of each direction, measured in sequence.
    pub ports: u32,
}

/// The values that a mesh compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairTestKind {
    /// Rates of TCP streams, in bits per second.
    TcpStream,
    /// Median round-trip times over TCP, in seconds.
    TcpRr,
    /// Median round-trip times over UDP, in seconds.
    UdpRr,
}

impl PairTest {
    /// Time that a test takes in addition to what it measures: connecting, and the lead of the common start.
    const OVERHEAD: Duration = Duration::from_millis(200);

    /// Returns the time of a wave: both directions, each with all source ports.
    pub fn wave_time(self) -> Duration {
        2 * (self.duration.0 + self.ports * (WARMUP.0 + PairTest::OVERHEAD))
    }

    /// Returns the test of one source port.
    pub fn spec(self) -> TestSpec {
        let round_trips = Workload::Rr { request: TRANSACTION, response: TRANSACTION };
        let (transport, workload) = match self.kind {
            PairTestKind::TcpStream => {
                (Transport::Tcp, Workload::Stream { message: MESSAGE, direction: Direction::Forward })
            }
            PairTestKind::TcpRr => (Transport::Tcp, round_trips),
            PairTestKind::UdpRr => (Transport::Udp, round_trips),
        };
        TestSpec {
            transport,
            workload,
            streams: 1,
            warmup: Warmup::For(WARMUP),
            duration: Span(self.duration.0 / self.ports.max(1)),
            slices: None,
            options: TestOptions::default(),
        }
    }
}

impl PairTestKind {
    /// Returns true if the values are times: more is slower.
    pub fn is_time(self) -> bool {
        self != PairTestKind::TcpStream
    }

    /// Returns the unit of the values.
    pub fn unit(self) -> &'static str {
        if self.is_time() { "s" } else { "bit/s" }
    }

    /// Returns the logarithm of a rate, or of the reciprocal of a time: less is slower. None if the value is not one
    /// that can be compared.
    pub(crate) fn log_speed(self, value: f64) -> Option<f64> {
        let log = value.ln();
        log.is_finite().then_some(if self.is_time() { -log } else { log })
    }

    /// Returns the value of such a logarithm.
    pub(crate) fn value(self, log_speed: f64) -> f64 {
        if self.is_time() { (-log_speed).exp() } else { log_speed.exp() }
    }
}

impl fmt::Display for PairTestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PairTestKind::TcpStream => "tcp-stream",
            PairTestKind::TcpRr => "tcp-rr",
            PairTestKind::UdpRr => "udp-rr",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_has_the_lower_speed() {
        let speed = |kind: PairTestKind, value: f64| kind.log_speed(value).expect("comparable");
        assert!(speed(PairTestKind::TcpStream, 2e9) > speed(PairTestKind::TcpStream, 1e9));
        assert!(speed(PairTestKind::UdpRr, 2e-5) < speed(PairTestKind::UdpRr, 1e-5));
        for kind in [PairTestKind::TcpStream, PairTestKind::TcpRr] {
            assert!((kind.value(speed(kind, 4.5e-5)) / 4.5e-5 - 1.0).abs() < 1e-12);
            assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(|value| kind.log_speed(value)), [None; 4]);
        }
    }

    #[test]
    fn source_ports_share_the_time() {
        let test = PairTest { kind: PairTestKind::TcpStream, duration: Span::from_millis(1000), ports: 4 };
        assert_eq!(test.spec().duration, Span::from_millis(250));
        assert!(test.wave_time() > Duration::from_secs(2));
    }
}
