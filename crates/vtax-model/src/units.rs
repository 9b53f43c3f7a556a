//! Units of study files and of the command line. Each is validated when parsed, so that invalid values can't exist
//! afterwards.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Invalid value with a unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum UnitError {
    #[error("invalid size `{0}`; use bytes, e.g. 64, or a number with KiB, MiB, GiB, kB, MB or GB")]
    #[diagnostic(code("bad-size"))]
    Size(String),
    #[error("size `{0}` is too large")]
    #[diagnostic(code("bad-size"))]
    SizeOverflow(String),
    #[error("invalid duration `{0}`; use a number with a unit, e.g. 30s, 250ms or 2m")]
    #[diagnostic(code("bad-time"))]
    Span(String),
    #[error("duration `{0}` is too long; the maximum is 100 years")]
    #[diagnostic(code("bad-time"))]
    SpanOverflow(String),
    #[error(
        "invalid bit rate `{0}`; use a number with a unit, e.g. 100M, 1G or 2.5 Gbit/s (bits per second, M is 10^6)"
    )]
    #[diagnostic(code("bad-rate"))]
    BitRate(String),
    #[error("invalid MTU `{0}`; use a whole number of bytes, e.g. 1500 or 9000")]
    #[diagnostic(code("bad-mtu"))]
    NotMtu(String),
    #[error("invalid MTU {0}: IPv4 links carry {min} to {max} bytes; common values are 1500 and 9000", min = Mtu::MIN.0, max = Mtu::MAX.0)]
    #[diagnostic(code("bad-mtu"))]
    Mtu(i64),
}

/// A number of bytes.
///
/// Written plain (`64`), with a binary suffix (`KiB`, `MiB`, `GiB`; also `K`, `M`, `G`, as in
/// iperf3) or with a decimal one (`kB`, `MB`, `GB`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ByteSize(pub u64);

const SUFFIXES: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("K", 1 << 10),
    ("k", 1 << 10),
    ("M", 1 << 20),
    ("m", 1 << 20),
    ("G", 1 << 30),
    ("g", 1 << 30),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, factor) = SUFFIXES
            .iter()
            .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
            .unwrap_or((text, 1));
        let number = number.trim_end();
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(UnitError::Size(text.to_owned()));
        }
        let overflow = || UnitError::SizeOverflow(text.to_owned());
        let count: u64 = number.parse().map_err(|_| overflow())?;
        count.checked_mul(factor).map(ByteSize).ok_or_else(overflow)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SUFFIXES[..3].iter().rev().find(|(_, n)| self.0 >= *n && self.0.is_multiple_of(*n));
        match exact {
            Some((suffix, factor)) => write!(f, "{} {suffix}", self.0 / factor),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

struct ByteSizeVisitor;

impl de::Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size: a number of bytes, or a string such as \"1 MiB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        let bytes = u64::try_from(bytes).map_err(|_| E::custom(UnitError::Size(bytes.to_string())))?;
        Ok(ByteSize(bytes))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

/// Maximum size of an IP packet on a link, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct Mtu(u32);

impl Mtu {
    /// Minimum of an IPv4 link (RFC 791).
    pub const MIN: Mtu = Mtu(68);
    /// Maximum total length in an IPv4 header.
    pub const MAX: Mtu = Mtu(65535);
    /// Standard Ethernet.
    pub const ETHERNET: Mtu = Mtu(1500);

    /// Bytes.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the MTU of an inner packet after `overhead` bytes of encapsulation, if it is valid.
    pub fn less(self, overhead: u32) -> Result<Mtu, UnitError> {
        Mtu::try_from(i64::from(self.0) - i64::from(overhead))
    }

    /// Returns the largest UDP payload of one IPv4 packet of this size, without 20 bytes of IP and 8 of UDP header.
    pub fn udp_payload(self) -> ByteSize {
        ByteSize(u64::from(self.0) - 28)
    }
}

impl TryFrom<i64> for Mtu {
    type Error = UnitError;

    fn try_from(bytes: i64) -> Result<Self, UnitError> {
        match u32::try_from(bytes) {
            Ok(n) if (Mtu::MIN.0..=Mtu::MAX.0).contains(&n) => Ok(Mtu(n)),
            _ => Err(UnitError::Mtu(bytes)),
        }
    }
}

impl FromStr for Mtu {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bytes: i64 = text.parse().map_err(|_| UnitError::NotMtu(text.to_owned()))?;
        Mtu::try_from(bytes)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A duration as people write it: `30s`, `250ms`, `2m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct Span(pub Duration);

impl Span {
    /// Maximum accepted duration. Sums of several can't overflow, nor can a moment that far ahead.
    const MOST: Duration = Duration::from_secs(100 * 31_557_600);

    /// Creates a span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(Duration::from_millis(millis))
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match humantime::parse_duration(text) {
            Ok(span) if span <= Span::MOST => Ok(Span(span)),
            Ok(_) | Err(humantime::DurationError::NumberOverflow) => Err(UnitError::SpanOverflow(text.to_owned())),
            Err(_) => Err(UnitError::Span(text.to_owned())),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // humantime's days and months are hard to compare with hours as written.
        let hours = self.0.as_secs() / 3600;
        match self.0.checked_sub(Duration::from_secs(hours * 3600)) {
            _ if hours < 24 => humantime::format_duration(self.0).fmt(f),
            None | Some(Duration::ZERO) => write!(f, "{hours}h"),
            Some(rest) => write!(f, "{hours}h {}", humantime::format_duration(rest)),
        }
    }
}

/// Formats e.g. `9 s`, `1 min 05 s`, `1 h 02 min`.
pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes if minutes < 60 => format!("{minutes} min {:02} s", seconds % 60),
        minutes => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

/// Bits per second, in decimal multiples as is usual for links: `100M`, `1G`, `2.5 Gbit/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct BitRate(u64);

/// Decimal factors of rates.
pub(crate) const RATE_FACTORS: [(&str, u64); 8] = [
    ("T", 1_000_000_000_000),
    ("t", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("g", 1_000_000_000),
    ("M", 1_000_000),
    ("m", 1_000_000),
    ("K", 1_000),
    ("k", 1_000),
];

impl BitRate {
    /// Creates a rate from bits per second; None for 0.
    pub const fn new(bits: u64) -> Option<BitRate> {
        if bits == 0 { None } else { Some(BitRate(bits)) }
    }

    /// Returns the bits per second, at least one.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the whole bytes per second.
    pub const fn bytes(self) -> u64 {
        self.0 / 8
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::BitRate(text.to_owned());
        let number = ["bit/s", "bits/s", "bps", "b/s", "bit"].iter().find_map(|unit| text.strip_suffix(unit));
        let number = number.unwrap_or(text).trim_end();
        let scaled = RATE_FACTORS.iter().find_map(|(suffix, factor)| Some((number.strip_suffix(suffix)?, *factor)));
        let (number, factor) = scaled.unwrap_or((number, 1));
        let number = number.trim_end();
        if number.bytes().all(|byte| byte.is_ascii_digit()) {
            // Exact, for documents.
            let bits = number.parse().ok().and_then(|number: u64| number.checked_mul(factor));
            return bits.and_then(BitRate::new).ok_or_else(wrong);
        }
        let bits = decimal(number).ok_or_else(wrong)? * factor as f64;
        // Above 2^53 a float is no longer exact, and no link is that fast.
        let possible = (1.0..=9e15).contains(&bits);
        possible.then_some(BitRate(bits as u64)).ok_or_else(wrong)
    }
}

/// Parses digits with at most one decimal point: no sign, no exponent, no `inf`.
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        match units.iter().find(|(factor, _)| self.0.is_multiple_of(*factor)) {
            Some((factor, unit)) => write!(f, "{} {unit}bit/s", self.0 / factor),
            None => write!(f, "{} bit/s", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_with_both_kinds_of_suffix() {
        let read = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        assert_eq!(read("1"), Ok(1));
        assert_eq!(read("1MiB"), Ok(1 << 20));
        assert_eq!(read("1 MiB"), Ok(1 << 20));
        assert_eq!(read("1000m"), Ok(1000 << 20));
        assert_eq!(read("2GB"), Ok(2_000_000_000));
        assert_eq!(read("64B"), Ok(64));
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "MiB", "-1", "1.5M", "1 TiB", "0x10", "99999999999999999999", "18446744073709551615K"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn impossible_mtus_are_refused() {
        for bytes in [67, 0, -1, 65536, 70000] {
            assert_eq!(Mtu::try_from(bytes), Err(UnitError::Mtu(bytes)));
        }
        assert_eq!(Mtu::try_from(1500).map(Mtu::get), Ok(1500));
        assert_eq!(Mtu::ETHERNET.udp_payload(), ByteSize(1472));
    }

    #[test]
    fn a_span_needs_its_unit() {
        assert_eq!("30s".parse(), Ok(Span(Duration::from_secs(30))));
        assert_eq!("30".parse::<Span>(), Err(UnitError::Span("30".into())));
    }

    #[test]
    fn a_thousand_hours_are_not_a_month_and_some_days() {
        let told = |seconds| Span(Duration::from_secs(seconds)).to_string();
        assert_eq!((told(3_600_000), told(86_400), told(90_061)), ("1000h".into(), "24h".into(), "25h 1m 1s".into()));
        assert_eq!(told(5_400), "1h 30m");
    }

    #[test]
    fn a_time_has_the_units_that_fit() {
        let told = |seconds| minutes(Duration::from_secs(seconds));
        assert_eq!([9, 65, 3720].map(told), ["9 s", "1 min 05 s", "1 h 02 min"]);
    }

    #[test]
    fn an_mtu_with_a_letter_is_not_a_size() {
        let told = "1500x".parse::<Mtu>().expect_err("no number").to_string();
        assert!(told.starts_with("invalid MTU `1500x`"), "{told}");
    }

    #[test]
    fn bit_rates_are_decimal() {
        let read = |text: &str| text.parse::<BitRate>().map(BitRate::bits);
        assert_eq!(read("100M"), Ok(100_000_000));
        assert_eq!(read("2.5 Gbit/s"), Ok(2_500_000_000));
        assert_eq!(read("10gbps"), Ok(10_000_000_000));
        assert_eq!(read("9600"), Ok(9600));
        assert_eq!(read("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(read("88888888888888888 bit/s"), Ok(88_888_888_888_888_888));
        for text in ["", "0", "-1M", "1e9", "inf", "1 MiB", "fast", "99999999T", "0.1"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(BitRate(1_000_000_000).to_string(), "1 Gbit/s");
    }

    proptest! {
        #[test]
        fn a_span_survives_being_written(nanos in 0u64..1 << 60) {
            let span = Span(Duration::from_nanos(nanos));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn a_bit_rate_survives_being_written(bits in 1u64..1 << 52) {
            prop_assert_eq!(BitRate(bits).to_string().parse(), Ok(BitRate(bits)));
        }

        #[test]
        fn a_size_survives_being_written(bytes: u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text: String) {
            let _ = (text.parse::<ByteSize>(), text.parse::<Span>(), text.parse::<Mtu>(), text.parse::<BitRate>());
        }
    }
}
