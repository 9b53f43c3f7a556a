//! What the statistics refuse.

use std::fmt;

/// Input that no figure can be made from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// Too few samples or pairs for the figure.
    #[error("{figure} needs at least {needed} samples and has {given}: take more samples")]
    TooFew {
        /// What was to be computed.
        figure: &'static str,
        /// Samples given.
        given: usize,
        /// Samples needed.
        needed: usize,
    },
    /// More pairs than the quadratic list of Walsh averages is made for.
    #[error("a paired figure takes at most {limit} rounds and was given {given}: take longer samples instead of more")]
    TooMany {
        /// Pairs given.
        given: usize,
        /// Pairs taken at most.
        limit: usize,
    },
    /// A sample is NaN, infinite, or beyond 1e100 in magnitude.
    #[error("sample {number} is {value}, which no measurement can be: leave it out")]
    NotFinite {
        /// Which sample, counted from 1.
        number: usize,
        /// What it is.
        value: f64,
    },
    /// An arm of a pair is zero, negative, NaN or infinite, so the pair has no ratio.
    #[error("the {arm} of pair {number} is {value}, and a ratio needs finite numbers above 0: leave the round out")]
    NotPositive {
        /// Which pair, counted from 1.
        number: usize,
        /// Which side of the pair.
        arm: Side,
        /// What it is.
        value: f64,
    },
    /// A confidence level outside (50, 100).
    #[error("\"{given}\" is no confidence level: give percent above 50 and below 100, such as 95 or 99")]
    Confidence {
        /// As it was given.
        given: String,
    },
    /// A width of an interval that is not above zero.
    #[error("\"{given}\" is no width: give the interval's full width in percent of the mean, above 0, such as 5")]
    Width {
        /// As it was given.
        given: String,
    },
    /// A stopping rule that could never be met, or stops before there is an interval.
    #[error("cannot stop between {min} and {max} samples: give a minimum of at least 2 and a maximum not below it")]
    Bounds {
        /// Fewest samples.
        min: usize,
        /// Most samples.
        max: usize,
    },
    /// A p-value outside (0, 1].
    #[error("{given} is no p-value: these are above 0 and at most 1")]
    PValue {
        /// As it was given.
        given: f64,
    },
    /// A significance level outside (0, 0.5).
    #[error("{given} is no significance level: give a number above 0 and below 0.5, such as 0.05")]
    Significance {
        /// As it was given.
        given: f64,
    },
}

/// A side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is compared with.
    Baseline,
    /// What is compared.
    Cell,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Baseline => "baseline",
            Self::Cell => "cell",
        })
    }
}

/// Far beyond any unit, and small enough for its square to be finite.
const LARGEST: f64 = 1e100;

/// Refuses the first sample that is no figure of a measurement.
pub(super) fn finite(samples: &[f64]) -> Result<(), StatsError> {
    let absurd = |value: &f64| value.is_nan() || value.abs() > LARGEST;
    match samples.iter().position(absurd) {
        None => Ok(()),
        Some(index) => Err(StatsError::NotFinite { number: index + 1, value: samples[index] }),
    }
}
