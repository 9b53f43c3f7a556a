//! The open loop: requests are due by a clock, whether or not responses have arrived.

use std::{fmt, num::NonZeroU32, str::FromStr};

use serde::{Deserialize, Serialize};
use strum::Display;

use super::OptionError;
use crate::units::RATE_FACTORS;

/// Arrivals of requests in the open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Requests per second, over all flows of the test.
    pub per_second: RequestRate,
    /// Their distribution.
    pub process: ArrivalProcess,
}

/// Distribution of the arrivals of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ArrivalProcess {
    /// Exponential gaps: independent users.
    #[default]
    Poisson,
    /// Equal gaps.
    Fixed,
}

/// Requests per second, at least one. Written plain (`500`) or with a decimal suffix: `10k`, `1M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct RequestRate(NonZeroU32);

impl RequestRate {
    /// Creates a rate from requests per second; None for 0.
    pub const fn new(per_second: u32) -> Option<RequestRate> {
        match NonZeroU32::new(per_second) {
            Some(rate) => Some(RequestRate(rate)),
            None => None,
        }
    }

    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl TryFrom<u32> for RequestRate {
    type Error = OptionError;

    fn try_from(rate: u32) -> Result<Self, OptionError> {
        RequestRate::new(rate).ok_or_else(|| OptionError::Rate(rate.to_string()))
    }
}

impl FromStr for RequestRate {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let scaled = RATE_FACTORS.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
        let (number, factor) = scaled.unwrap_or((text, 1));
        let rate = number.parse::<u64>().ok().and_then(|number| u32::try_from(number.checked_mul(factor)?).ok());
        rate.and_then(RequestRate::new).ok_or_else(|| OptionError::Rate(text.to_owned()))
    }
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
