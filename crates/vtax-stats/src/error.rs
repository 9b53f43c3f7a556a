//! What the statistics refuse.

use strum::Display;

/// Input that no figure can be made from.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StatsError {
    #[error("{figure} needs at least {needed} samples and has {given}: take more samples")]
    #[diagnostic(code("too-few-samples"))]
    TooFew { figure: &'static str, given: usize, needed: usize },
    #[error("a paired figure takes at most {limit} rounds and was given {given}: take longer samples instead of more")]
    #[diagnostic(code("too-many-rounds"))]
    TooMany { given: usize, limit: usize },
    #[error("sample {number} is {value}, which no measurement can be: leave it out")]
    #[diagnostic(code("impossible-figure"))]
    NotFinite { number: usize, value: f64 },
    #[error("the {arm} of pair {number} is {value}, and a ratio needs finite numbers above 0: leave the round out")]
    #[diagnostic(code("impossible-figure"))]
    NotPositive { number: usize, arm: Side, value: f64 },
    #[error("\"{given}\" is no confidence level: give percent above 50 and below 100, such as 95 or 99")]
    #[diagnostic(code("bad-precision"))]
    Confidence { given: String },
    #[error("\"{given}\" is no width: give the interval's full width in percent of the mean, above 0, such as 5")]
    #[diagnostic(code("bad-precision"))]
    Width { given: String },
    #[error("cannot stop between {min} and {max} samples: give a minimum of at least 2 and a maximum not below it")]
    #[diagnostic(code("bad-precision"))]
    Bounds { min: usize, max: usize },
    #[error("{given} is no p-value: these are above 0 and at most 1")]
    #[diagnostic(code("impossible-figure"))]
    PValue { given: f64 },
}

/// A side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum Side {
    /// What is compared with.
    Baseline,
    /// What is compared.
    Cell,
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
