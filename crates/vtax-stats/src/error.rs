//! Errors of the statistics.

use strum::Display;

/// Input from which no figure can be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StatsError {
    #[error("{figure} requires at least {needed} samples, but has {given}: take more samples")]
    #[diagnostic(code("too-few-samples"))]
    TooFew { figure: &'static str, given: usize, needed: usize },
    #[error("a paired figure takes at most {limit} rounds, but was given {given}: take longer samples instead of more")]
    #[diagnostic(code("too-many-rounds"))]
    TooMany { given: usize, limit: usize },
    #[error("sample {number} is {value}, which is not a valid measurement: omit it")]
    #[diagnostic(code("impossible-figure"))]
    NotFinite { number: usize, value: f64 },
    #[error("the {arm} of pair {number} is {value}, but a ratio requires finite numbers above 0: omit the round")]
    #[diagnostic(code("impossible-figure"))]
    NotPositive { number: usize, arm: Side, value: f64 },
    #[error("invalid confidence level \"{given}\": use percent above 50 and below 100, e.g. 95 or 99")]
    #[diagnostic(code("bad-precision"))]
    Confidence { given: String },
    #[error("invalid width \"{given}\": use the interval's full width in percent of the mean, above 0, e.g. 5")]
    #[diagnostic(code("bad-precision"))]
    Width { given: String },
    #[error("cannot stop between {min} and {max} samples: use a minimum of at least 2 and a maximum not below it")]
    #[diagnostic(code("bad-precision"))]
    Bounds { min: usize, max: usize },
    #[error("invalid p-value {given}: p-values are above 0 and at most 1")]
    #[diagnostic(code("impossible-figure"))]
    PValue { given: f64 },
}

/// Side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum Side {
    /// Reference of the comparison.
    Baseline,
    /// Compared cell.
    Cell,
}

/// Far beyond any unit, and small enough for its square to be finite.
const LARGEST: f64 = 1e100;

/// Refuses the first sample that is not a valid measurement.
pub(super) fn finite(samples: &[f64]) -> Result<(), StatsError> {
    let absurd = |value: &f64| value.is_nan() || value.abs() > LARGEST;
    match samples.iter().position(absurd) {
        None => Ok(()),
        Some(index) => Err(StatsError::NotFinite { number: index + 1, value: samples[index] }),
    }
}
