//! A stream under which another test is measured.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::{Direction, TestKind, TestSpec, Transport, Warmup, Workload};
use crate::{
    options::TestOptions,
    spelling::available,
    units::{BitRate, ByteSize, Mtu, Span, UnitError},
};

/// A stream under which another test is measured: `tcp-stream,streams=4,direction=both`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct StreamLoad {
    /// The protocol.
    pub transport: Transport,
    /// Flows in each direction.
    pub streams: u32,
    /// Sending endpoint.
    pub direction: Direction,
    /// Send rate of each flow; without it, as fast as the path allows.
    pub bitrate: Option<BitRate>,
}

/// Invalid description of a load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum StreamLoadError {
    #[error("unknown load `{_0}`; {}", available(_0, &known_loads()))]
    #[diagnostic(code("unknown-name"))]
    Stream(String),
    #[error("unknown parameter `{_0}` of a load; {}", available(_0, &PARAMETERS))]
    #[diagnostic(code("unknown-name"))]
    Parameter(String),
    #[error("the load has `{_0}` twice; give it once")]
    #[diagnostic(code("named-twice"))]
    Twice(&'static str),
    #[error("unknown direction `{_0}`; {}", available(_0, &DIRECTIONS.map(|(name, _)| name)))]
    #[diagnostic(code("unknown-name"))]
    Direction(String),
    #[error("`streams={_0}`: a load has 1 to {most} streams", most = StreamLoad::STREAMS_MOST)]
    #[diagnostic(code("bad-option"))]
    Streams(String),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Rate(#[from] UnitError),
}

const PARAMETERS: [&str; 3] = ["streams", "direction", "bitrate"];

const DIRECTIONS: [(&str, Direction); 3] =
    [("forward", Direction::Forward), ("reverse", Direction::Reverse), ("both", Direction::Both)];

/// Bytes of each send call of a byte stream, as in iperf3.
const MESSAGE: ByteSize = ByteSize(128 << 10);

impl StreamLoad {
    /// Maximum number of streams: each flow has a separate thread at either end.
    pub const STREAMS_MOST: u32 = 64;

    /// Time by which it outlasts the test. Without it, a queue was empty in the last milliseconds of a test that had
    /// started a little later, and most round trips of the sample came from these, because they are short.
    const TAIL: Span = Span::from_millis(200);

    /// Returns true if the initiator sends, alone or with the responder.
    pub fn goes_forward(self) -> bool {
        self.direction != Direction::Reverse
    }

    /// Returns true if the responder sends, alone or with the initiator.
    pub fn goes_back(self) -> bool {
        self.direction != Direction::Forward
    }

    /// Returns the load as a test that begins with another one and outlasts it. If the other one warms up for a fixed
    /// time, the load's measured time includes the other one's.
    pub fn spec(self, mtu: Mtu, other: &TestSpec) -> TestSpec {
        let message = if self.transport.is_datagram() { mtu.udp_payload() } else { MESSAGE };
        let options = TestOptions { bitrate: self.bitrate, idle: other.options.idle, ..TestOptions::default() };
        let workload = Workload::Stream { message, direction: self.direction };
        TestSpec {
            transport: self.transport,
            workload,
            streams: self.streams,
            warmup: Warmup::For(other.warmup.most()),
            duration: Span(other.duration.0.saturating_add(StreamLoad::TAIL.0)),
            slices: None,
            options,
        }
    }

    fn set(&mut self, parameter: &str, value: &str) -> Result<(), StreamLoadError> {
        match parameter {
            "streams" => {
                let streams = value.parse().ok().filter(|streams| (1..=StreamLoad::STREAMS_MOST).contains(streams));
                self.streams = streams.ok_or_else(|| StreamLoadError::Streams(value.to_owned()))?;
            }
            "direction" => {
                let known = DIRECTIONS.into_iter().find(|(name, _)| *name == value);
                self.direction = known.ok_or_else(|| StreamLoadError::Direction(value.to_owned()))?.1;
            }
            "bitrate" => self.bitrate = Some(value.parse()?),
            _ => return Err(StreamLoadError::Parameter(parameter.to_owned())),
        }
        Ok(())
    }
}

fn name(transport: Transport) -> String {
    format!("{transport}-stream").to_ascii_lowercase()
}

fn carriers() -> impl Iterator<Item = Transport> {
    Transport::ALL.into_iter().filter(|transport| transport.carries(TestKind::Stream))
}

fn known_loads() -> Vec<String> {
    carriers().map(name).collect()
}

impl FromStr for StreamLoad {
    type Err = StreamLoadError;

    fn from_str(text: &str) -> Result<StreamLoad, StreamLoadError> {
        let mut parts = text.split(',');
        let stream = parts.next().unwrap_or_default();
        let transport = carriers().find(|transport| name(*transport) == stream);
        let transport = transport.ok_or_else(|| StreamLoadError::Stream(stream.to_owned()))?;
        let mut load = StreamLoad { transport, streams: 1, direction: Direction::Forward, bitrate: None };
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let (parameter, value) = part.split_once('=').unwrap_or((part, ""));
            if let Some(twice) = PARAMETERS.into_iter().find(|known| *known == parameter && seen.contains(known)) {
                return Err(StreamLoadError::Twice(twice));
            }
            seen.push(parameter);
            load.set(parameter, value)?;
        }
        Ok(load)
    }
}

/// Parameters with their defaults are omitted.
impl fmt::Display for StreamLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = name(self.transport);
        if self.streams != 1 {
            text += &format!(",streams={}", self.streams);
        }
        let direction = DIRECTIONS.into_iter().skip(1).find(|(_, direction)| *direction == self.direction);
        if let Some((direction, _)) = direction {
            text += &format!(",direction={direction}");
        }
        if let Some(bitrate) = self.bitrate {
            text += &format!(",bitrate={}", bitrate.to_string().replace(' ', ""));
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_load_is_read_with_its_defaults() {
        let read = |text: &str| text.parse::<StreamLoad>();
        let plain = StreamLoad { transport: Transport::Tcp, streams: 1, direction: Direction::Forward, bitrate: None };
        assert_eq!(read("tcp-stream"), Ok(plain));
        let both = StreamLoad { streams: 4, direction: Direction::Both, ..plain };
        assert_eq!(read("tcp-stream,direction=both,streams=4"), Ok(both));
        let bitrate = BitRate::new(50_000_000);
        assert_eq!(read("udp-stream,bitrate=50M"), Ok(StreamLoad { transport: Transport::Udp, bitrate, ..plain }));
    }

    #[test]
    fn an_invalid_load_is_explained_with_a_remedy() {
        let told = |text: &str| text.parse::<StreamLoad>().expect_err(text).to_string();
        let cases = [
            ("tcp-rr", "unknown load `tcp-rr`; available: tcp-stream, udp-stream, unix-stream, vsock-stream"),
            (
                "tcp-streams",
                "unknown load `tcp-streams`; did you mean `tcp-stream`? (available: tcp-stream, udp-stream, \
                 unix-stream, vsock-stream)",
            ),
            ("tcp-stream,flows=2", "unknown parameter `flows` of a load; available: streams, direction, bitrate"),
            ("tcp-stream,streams=0", "`streams=0`: a load has 1 to 64 streams"),
            ("tcp-stream,streams", "`streams=`: a load has 1 to 64 streams"),
            ("tcp-stream,direction=up", "unknown direction `up`; available: forward, reverse, both"),
            ("tcp-stream,streams=2,streams=3", "the load has `streams` twice; give it once"),
            ("tcp-stream,", "unknown parameter `` of a load; available: streams, direction, bitrate"),
        ];
        for (text, error) in cases {
            assert_eq!(told(text), error);
        }
        assert!(told("udp-stream,bitrate=fast").starts_with("invalid bit rate `fast`"));
    }

    #[test]
    fn a_load_outlasts_the_test_and_fills_packets() {
        let transport = Transport::Udp;
        let load = StreamLoad { transport, streams: 2, direction: Direction::Reverse, bitrate: None };
        let other = TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
            streams: 8,
            warmup: Warmup::For(Span::from_millis(300)),
            duration: Span::from_millis(700),
            slices: None,
            options: TestOptions { burst: "4".parse().expect("a burst"), ..TestOptions::default() },
        };
        let spec = load.spec(Mtu::ETHERNET, &other);
        let workload = Workload::Stream { message: ByteSize(1472), direction: Direction::Reverse };
        let duration = Span::from_millis(900);
        let wanted = TestSpec { transport, workload, streams: 2, duration, options: TestOptions::default(), ..other };
        assert_eq!(spec, wanted);
        assert_eq!((load.goes_forward(), load.goes_back()), (false, true));
        assert!(spec.check(Mtu::ETHERNET).is_ok());
    }

    proptest! {
        #[test]
        fn a_load_is_read_back_as_written(
            carrier in 0..4usize, streams in 1..=64u32, direction in 0..3usize, rate in proptest::option::of(1..u64::MAX),
        ) {
            let (transport, direction) = (carriers().nth(carrier).expect("four"), DIRECTIONS[direction].1);
            let load = StreamLoad { transport, streams, direction, bitrate: rate.and_then(BitRate::new) };
            prop_assert_eq!(load.to_string().parse(), Ok(load));
        }

        #[test]
        fn any_text_is_a_load_or_an_error(text in "(tcp-stream)?[a-z0-9=,M-]{0,24}") {
            if let Ok(load) = text.parse::<StreamLoad>() {
                prop_assert_eq!(load.to_string().parse(), Ok(load));
            }
        }
    }
}
