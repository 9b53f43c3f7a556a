//! Stopping rule of netperf.
//!
//! `netperf -i max,min -I confidence,width` repeats a test until the mean's interval is no wider than requested (Care
//! and Feeding of Netperf 2.6, "Global Options"). `-I 99,5` requests the mean within ±2.5 % with a confidence of 99 %,
//! so the width is that of the whole interval.
//!
//! **This is a precision, not a verdict.** The rule checks after every sample and stops at the first interval that
//! happens to be narrow, so the interval's coverage is lower than nominal; and two equal arms that each stopped this
//! way are called different in 28 % of comparisons at 6 % drift. Differences are judged by [`super::PairedTax`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::finite;
use super::{Confidence, StatsError, student};

/// Full width of an interval relative to its mean, in percent, above 0: "5" is ±2.5 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct Width(f64);

impl FromStr for Width {
    type Err = StatsError;

    fn from_str(text: &str) -> Result<Self, StatsError> {
        let number = text.trim().trim_end_matches('%').trim_end();
        let refuse = |_| StatsError::Width { given: text.to_owned() };
        Self::try_from(number.parse::<f64>().map_err(refuse)?)
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// Converts from percent: `5.0`.
impl TryFrom<f64> for Width {
    type Error = StatsError;

    fn try_from(percent: f64) -> Result<Self, StatsError> {
        let possible = percent > 0.0 && percent.is_finite();
        possible.then_some(Self(percent)).ok_or_else(|| StatsError::Width { given: percent.to_string() })
    }
}

/// Rule to sample until the mean is known with a certain precision, within a minimum and a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct StoppingRule {
    confidence: Confidence,
    width: Width,
    min: usize,
    max: usize,
}

/// Fields before their order is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    confidence: Confidence,
    width: Width,
    min: usize,
    max: usize,
}

/// Decision after the samples so far.
///
/// `achieved` is the width of the mean's interval in percent of the mean; `None` if the mean is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Take another sample.
    Continue,
    /// The mean has the requested precision.
    Reached {
        /// Achieved width, at most the requested one; 0 if all samples are equal.
        achieved: f64,
    },
    /// The maximum number of samples was taken without reaching the requested precision.
    Exhausted {
        /// Achieved width, above the requested one.
        achieved: Option<f64>,
    },
}

impl StoppingRule {
    /// Creates a rule; refuses a minimum of fewer than two samples, and a maximum below the minimum.
    pub fn new(confidence: Confidence, width: Width, min: usize, max: usize) -> Result<Self, StatsError> {
        if min < 2 || max < min {
            return Err(StatsError::Bounds { min, max });
        }
        Ok(Self { confidence, width, min, max })
    }

    /// Returns the confidence level of the interval.
    pub fn confidence(&self) -> Confidence {
        self.confidence
    }

    /// Returns the requested width.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Returns the minimum number of samples.
    pub fn min(&self) -> usize {
        self.min
    }

    /// Returns the maximum number of samples.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Decides from all samples so far. A figure that is not a finite number is an error.
    pub fn decide(&self, samples: &[f64]) -> Result<Decision, StatsError> {
        finite(samples)?;
        if samples.len() < self.min {
            return Ok(Decision::Continue);
        }
        let achieved = relative_width(samples, self.confidence);
        Ok(match achieved {
            Some(achieved) if achieved <= self.width.0 => Decision::Reached { achieved },
            _ if samples.len() < self.max => Decision::Continue,
            _ => Decision::Exhausted { achieved },
        })
    }
}

/// Returns `2 · t · s / √n / |mean|` in percent, like netperf's calculate_confidence(), for two samples or more.
fn relative_width(samples: &[f64], confidence: Confidence) -> Option<f64> {
    let (mean, margin) = student::mean_and_margin(samples, confidence);
    let width = 100.0 * 2.0 * margin / mean.abs();
    width.is_finite().then_some(width)
}

impl TryFrom<Unchecked> for StoppingRule {
    type Error = StatsError;

    fn try_from(rule: Unchecked) -> Result<Self, StatsError> {
        Self::new(rule.confidence, rule.width, rule.min, rule.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(width: f64) -> StoppingRule {
        StoppingRule::new(Confidence::P99, Width::try_from(width).unwrap(), 3, 5).unwrap()
    }

    #[test]
    fn the_width_by_hand() {
        // 98, 100, 102: s = 2, t(0.995, 2) = 9.9248, 2 · 9.9248 · 2 / √3 = 22.920.
        let width = relative_width(&[98.0, 100.0, 102.0], Confidence::P99).unwrap();
        assert!((width - 22.920).abs() < 1e-3, "{width}");
        assert_eq!(relative_width(&[-1.0, 1.0], Confidence::P99), None);
    }

    #[test]
    fn stops_when_narrow_enough_and_not_before_the_minimum() {
        let decide = |samples: &[f64]| rule(23.0).decide(samples).unwrap();
        assert_eq!(decide(&[]), Decision::Continue);
        assert_eq!(decide(&[100.0, 100.0]), Decision::Continue);
        assert!(matches!(decide(&[98.0, 100.0, 102.0]), Decision::Reached { achieved } if achieved < 23.0));
        assert_eq!(decide(&[100.0; 3]), Decision::Reached { achieved: 0.0 });
    }

    #[test]
    fn stops_at_the_maximum_and_reports_the_precision_reached() {
        let decide = |samples: &[f64]| rule(5.0).decide(samples).unwrap();
        assert_eq!(decide(&[98.0, 100.0, 102.0, 90.0]), Decision::Continue);
        let last = decide(&[98.0, 100.0, 102.0, 90.0, 110.0]);
        assert!(matches!(last, Decision::Exhausted { achieved: Some(achieved) } if achieved > 5.0));
        assert_eq!(decide(&[0.0; 5]), Decision::Exhausted { achieved: None });
    }

    #[test]
    fn an_invalid_rule_is_refused() {
        let width = Width::try_from(5.0).unwrap();
        for (min, max) in [(0, 5), (1, 5), (5, 4)] {
            let refused = StoppingRule::new(Confidence::P99, width, min, max);
            assert_eq!(refused, Err(StatsError::Bounds { min, max }));
        }
        for text in ["0", "-5", "nan", "inf", "five", ""] {
            assert!(text.parse::<Width>().is_err(), "{text}");
        }
        assert_eq!("5 %".parse(), Ok(width));
        assert!(rule(5.0).decide(&[1.0, f64::NAN]).is_err());
        let json = r#"{"confidence":99.0,"width":5.0,"min":9,"max":3}"#;
        assert!(serde_json::from_str::<StoppingRule>(json).is_err());
        let json = serde_json::to_string(&rule(5.0)).unwrap();
        assert_eq!(serde_json::from_str::<StoppingRule>(&json).unwrap(), rule(5.0));
    }
}
