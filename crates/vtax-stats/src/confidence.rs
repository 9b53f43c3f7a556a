//! Confidence levels of intervals.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::StatsError;

/// Confidence level above 50 % and below 100 %, written and stored in percent ("95", "99.9").
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct Confidence(f64);

impl Confidence {
    /// 95 %.
    pub const P95: Self = Self(95.0);
    /// 99 %.
    pub const P99: Self = Self(99.0);

    /// Returns the level in percent, e.g. 95.
    pub fn percent(self) -> f64 {
        self.0
    }

    /// Returns the share beyond one bound of a two-sided interval: 0.025.
    pub fn tail(self) -> f64 {
        (100.0 - self.0) / 200.0
    }
}

impl FromStr for Confidence {
    type Err = StatsError;

    fn from_str(text: &str) -> Result<Self, StatsError> {
        let number = text.trim().trim_end_matches('%').trim_end();
        let refuse = |_| StatsError::Confidence { given: text.to_owned() };
        Self::try_from(number.parse::<f64>().map_err(refuse)?)
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// Converts from percent: `95.0`; `0.95` is refused.
impl TryFrom<f64> for Confidence {
    type Error = StatsError;

    fn try_from(percent: f64) -> Result<Self, StatsError> {
        let possible = percent > 50.0 && percent < 100.0;
        possible.then_some(Self(percent)).ok_or_else(|| StatsError::Confidence { given: percent.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_read() {
        assert_eq!("95".parse(), Ok(Confidence::P95));
        assert_eq!(" 99 % ".parse(), Ok(Confidence::P99));
        assert_eq!("99.9".parse::<Confidence>().unwrap().tail(), (100.0 - 99.9) / 200.0);
        assert_eq!(Confidence::P95.tail(), 0.025);
    }

    #[test]
    fn an_invalid_level_is_refused_in_text_and_in_json() {
        for text in ["", "0.95", "50", "100", "-95", "nan", "inf", "ninety"] {
            assert!(text.parse::<Confidence>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Confidence>("100.0").is_err());
        assert_eq!(serde_json::from_str::<Confidence>("99.0").unwrap(), Confidence::P99);
    }
}
