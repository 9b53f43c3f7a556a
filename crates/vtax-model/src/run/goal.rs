//! Goals of a run other than a number of rounds.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Goal for which the number of rounds is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Enough rounds to detect a difference of this size.
    Show(Difference),
    /// As many rounds as fit into this time.
    Budget(Span),
    /// Enough rounds to detect a difference of this size, or as many as fit into this time if those are fewer.
    Within {
        /// The difference to detect.
        show: Difference,
        /// Time budget.
        budget: Span,
    },
}

impl Goal {
    /// Returns the goal requested by the user, if any.
    pub fn of(show: Option<Difference>, budget: Option<Span>) -> Option<Goal> {
        match (show, budget) {
            (None, None) => None,
            (Some(show), None) => Some(Goal::Show(show)),
            (None, Some(budget)) => Some(Goal::Budget(budget)),
            (Some(show), Some(budget)) => Some(Goal::Within { show, budget }),
        }
    }

    /// Returns the time budget of the run, if any.
    pub fn budget(self) -> Option<Span> {
        match self {
            Goal::Show(_) => None,
            Goal::Budget(budget) | Goal::Within { budget, .. } => Some(budget),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::Show(difference) => write!(f, "--show {difference}"),
            Goal::Budget(time) => write!(f, "--budget {time}"),
            Goal::Within { show, budget } => write!(f, "--show {show} --budget {budget}"),
        }
    }
}

/// A difference in percent, above 0 and at most 100: `2%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct Difference(f64);

impl Difference {
    /// The logarithm of the ratio.
    pub fn log(self) -> f64 {
        (self.0 / 100.0).ln_1p()
    }

    /// Half of it.
    pub fn halved(self) -> Difference {
        Difference(self.0 / 2.0)
    }
}

/// Invalid difference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid difference `{0}`; use a percentage above 0 and at most 100, e.g. 2% or 0.5%")]
#[diagnostic(code("bad-difference"))]
pub struct NoDifference(String);

impl TryFrom<f64> for Difference {
    type Error = NoDifference;

    fn try_from(percent: f64) -> Result<Self, NoDifference> {
        let good = percent > 0.0 && percent <= 100.0;
        good.then_some(Difference(percent)).ok_or_else(|| NoDifference(percent.to_string()))
    }
}

impl FromStr for Difference {
    type Err = NoDifference;

    fn from_str(text: &str) -> Result<Self, NoDifference> {
        let number = text.trim().trim_end_matches('%').trim_end();
        let refused = || NoDifference(text.to_owned());
        let percent: f64 = number.parse().map_err(|_| refused())?;
        Difference::try_from(percent).map_err(|_| refused())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_written_with_and_without_its_unit() {
        for (text, told) in [("2%", "2%"), ("0.5", "0.5%"), (" 10 % ", "10%"), ("100%", "100%")] {
            assert_eq!(text.parse::<Difference>().map(|difference| difference.to_string()), Ok(told.to_owned()));
        }
        for text in ["", "%", "0", "-2%", "101%", "NaN", "inf", "two"] {
            let told = text.parse::<Difference>().expect_err("no difference").to_string();
            assert!(told.starts_with(&format!("invalid difference `{text}`")), "{told}");
        }
    }
}
