//! Rates of a target: packets and I/Os per second, migrations per day.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::SizeError;
use crate::units::{RATE_FACTORS, decimal};

/// Beyond any machine, and small enough for products of rates and sizes to be finite.
const MOST: f64 = 1e12;

/// Packets per second, both directions together: `1.5M`, `800k` or `1.5M packets/s`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct PacketRate(f64);

/// I/Os per second: `40k` or `40k IOPS`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct IoRate(f64);

/// Migrations per day: `2/day`, `1/h` or `3/week`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct MigrationRate(f64);

impl PacketRate {
    /// Returns packets per second, above 0.
    pub fn per_second(self) -> f64 {
        self.0
    }
}

impl IoRate {
    /// Returns I/Os per second, above 0.
    pub fn per_second(self) -> f64 {
        self.0
    }
}

impl MigrationRate {
    /// Returns migrations per day, above 0.
    pub fn per_day(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for PacketRate {
    type Error = SizeError;

    fn try_from(rate: f64) -> Result<Self, SizeError> {
        possible(rate).map(PacketRate).ok_or_else(|| SizeError::Packets(rate.to_string()))
    }
}

impl TryFrom<f64> for IoRate {
    type Error = SizeError;

    fn try_from(rate: f64) -> Result<Self, SizeError> {
        possible(rate).map(IoRate).ok_or_else(|| SizeError::Ios(rate.to_string()))
    }
}

impl TryFrom<f64> for MigrationRate {
    type Error = SizeError;

    fn try_from(rate: f64) -> Result<Self, SizeError> {
        possible(rate).map(MigrationRate).ok_or_else(|| SizeError::Migrations(rate.to_string()))
    }
}

impl FromStr for PacketRate {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let rate = scaled(text, &["packets/s", "pps", "p/s"]);
        rate.map(PacketRate).ok_or_else(|| SizeError::Packets(text.to_owned()))
    }
}

impl FromStr for IoRate {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let rate = scaled(text, &["IOPS", "iops", "I/Os/s", "IO/s"]);
        rate.map(IoRate).ok_or_else(|| SizeError::Ios(text.to_owned()))
    }
}

impl FromStr for MigrationRate {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        const PERIODS: [(&str, f64); 7] = [
            ("/day", 1.0),
            ("/d", 1.0),
            ("/hour", 24.0),
            ("/h", 24.0),
            ("/week", 1.0 / 7.0),
            ("/w", 1.0 / 7.0),
            ("/month", 1.0 / 30.0),
        ];
        let read = PERIODS.iter().find_map(|(unit, per_day)| Some((text.strip_suffix(unit)?, *per_day)));
        let rate = read.and_then(|(number, per_day)| possible(decimal(number.trim())? * per_day));
        rate.map(MigrationRate).ok_or_else(|| SizeError::Migrations(text.to_owned()))
    }
}

/// A decimal number with a factor such as `k`, and optionally one of these units.
fn scaled(text: &str, units: &[&str]) -> Option<f64> {
    let number = units.iter().find_map(|unit| text.strip_suffix(unit)).unwrap_or(text).trim();
    let factor = RATE_FACTORS.iter().find_map(|(suffix, factor)| Some((number.strip_suffix(suffix)?, *factor)));
    let (number, factor) = factor.unwrap_or((number, 1));
    possible(decimal(number.trim_end())? * factor as f64)
}

fn possible(rate: f64) -> Option<f64> {
    (rate > 0.0 && rate <= MOST).then_some(rate)
}

impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets/s", shortened(self.0))
    }
}

impl fmt::Display for IoRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IOPS", shortened(self.0))
    }
}

impl fmt::Display for MigrationRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, period) = if self.0 < 1.0 { (self.0 * 7.0, "week") } else { (self.0, "day") };
        write!(f, "{}/{period}", (rate * 100.0).round() / 100.0)
    }
}

/// All digits, in the largest unit that doesn't add any: `1.5M`.
fn shortened(rate: f64) -> String {
    let plain = rate.to_string();
    let forms = [("G", 1e9), ("M", 1e6), ("k", 1e3)].map(|(unit, factor)| format!("{}{unit}", rate / factor));
    forms.into_iter().chain([plain]).min_by_key(String::len).expect("there is the plain form")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_read_with_and_without_units() {
        let packets = |text: &str| text.parse::<PacketRate>().map(PacketRate::per_second);
        for text in ["1.5M", "1500k", "1500000", "1.5 M", "1.5M packets/s", "1.5Mpps"] {
            assert_eq!(packets(text), Ok(1.5e6), "{text}");
        }
        assert_eq!("40k IOPS".parse::<IoRate>().map(IoRate::per_second), Ok(4e4));
        let migrations = |text: &str| text.parse::<MigrationRate>().map(MigrationRate::per_day);
        assert_eq!((migrations("2/day"), migrations("0.5/h"), migrations("7/week")), (Ok(2.0), Ok(12.0), Ok(1.0)));
    }

    #[test]
    fn other_rates_are_refused_with_an_example() {
        for text in ["", "0", "-1k", "inf", "NaN", "1e9", "1.5Gbit/s", "9999999T", "k", "1.5.5M", "10 MiB"] {
            let told = text.parse::<PacketRate>().expect_err("no rate").to_string();
            assert!(told.contains(&format!("`{text}`")) && told.contains("e.g. 1.5M"), "{told}");
            assert!(text.parse::<IoRate>().is_err());
        }
        for text in ["2", "/day", "0/day", "-2/day", "2/year", "inf/day", "2 per day"] {
            let told = text.parse::<MigrationRate>().expect_err("no rate").to_string();
            assert!(told.contains("e.g. 2/day"), "{told}");
        }
    }

    #[test]
    fn rates_are_shown_in_their_unit() {
        let shown = |rate: f64| PacketRate::try_from(rate).expect("a rate").to_string();
        assert_eq!(
            (shown(1.5e6), shown(950.0), shown(40_500.0)),
            ("1.5M packets/s".into(), "950 packets/s".into(), "40.5k packets/s".into())
        );
        let migrations = |text: &str| text.parse::<MigrationRate>().expect("a rate").to_string();
        assert_eq!(
            (migrations("2/day"), migrations("3/week"), migrations("1/h")),
            ("2/day".into(), "3/week".into(), "24/day".into())
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text: String) {
            let _ = (text.parse::<PacketRate>(), text.parse::<IoRate>(), text.parse::<MigrationRate>());
        }

        #[test]
        fn a_rate_survives_being_written(rate in 1u32..u32::MAX) {
            let rate = IoRate::try_from(f64::from(rate)).expect("a rate");
            let read = rate.to_string().parse::<IoRate>().expect("its own text");
            prop_assert!((read.per_second() / rate.per_second() - 1.0).abs() < 1e-12);
        }
    }
}
