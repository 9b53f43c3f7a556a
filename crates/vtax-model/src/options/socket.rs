//! Socket options of both endpoints.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};

use super::OptionError;
use crate::units::{BitRate, ByteSize, Span};

/// Socket options of both endpoints; absent ones are the kernel's choice, except TCP_NODELAY.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketOptions {
    /// TCP_NODELAY. If absent, it is on for transactions, which Nagle's algorithm would delay, and off for streams.
    pub nodelay: Option<bool>,
    /// SO_SNDBUF, as requested: the kernel doubles it for its own needs (socket(7)).
    pub send_buffer: Option<ByteSize>,
    /// SO_RCVBUF, as requested.
    pub receive_buffer: Option<ByteSize>,
    /// TCP_CONGESTION.
    pub congestion: Option<CongestionControl>,
    /// The differentiated services code point of each packet.
    pub dscp: Option<Dscp>,
    /// SO_MAX_PACING_RATE: TCP paces itself, UDP needs the fq qdisc.
    pub pacing: Option<BitRate>,
    /// SO_BUSY_POLL: time that a blocking call polls the device queue before it sleeps, in whole
    /// µs.
    pub busy_poll: Option<Span>,
}

/// The name of a TCP congestion control, at most 15 bytes (`TCP_CA_NAME_MAX`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct CongestionControl {
    bytes: [u8; CongestionControl::MOST],
    length: u8,
}

impl CongestionControl {
    const MOST: usize = 15;

    /// The default on almost every Linux machine, and the one that adds the least noise under controlled conditions: on
    /// a path without loss, its rate is the path's.
    pub const CUBIC: CongestionControl = CongestionControl { bytes: *b"cubic\0\0\0\0\0\0\0\0\0\0", length: 5 };

    /// The kernel's name for it.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
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
    /// Returns the byte of the IP header that contains it, with zero ECN bits.
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

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODE_POINTS.iter().find(|(_, point)| *point == self.0) {
            Some((name, _)) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}
