//! Statistics of small samples, and their limits.
//!
//! The unit is the run, never the packet: everything here takes one figure per sample, or one pair of figures per
//! round. The steps from samples to a sentence in a table are:
//!
//! 1. [`Summary`]: a cell's mean and median with an interval.
//! 2. [`PairedTax`]: the ratio of a cell to its baseline, from pairs measured in the same round, so that the machine's
//!    drift from round to round cancels.
//! 3. [`NoiseFloor`]: the same figure for the baseline measured twice, i.e. the difference that the machine shows
//!    without a cause. A shown difference within it has a warning.
//! 4. [`holm()`]: the correction for many simultaneous comparisons.
//! 5. [`judge_family`]: "slower", "faster", "not significant", "≤ x % worse" or "too noisy to tell".
//!
//! [`IndependentRatio`] compares figures of two runs, which have no rounds in common.
//!
//! [`MedianPolish`] and [`RobustScale`] find the outliers among the units of a table, e.g. the slow hosts of a fleet.
//!
//! [`BoundedMean`] has intervals that hold for several figures at the same time, for comparisons with targets.
//!
//! [`Steady`] detects the end of a warm-up; [`StoppingRule`] is netperf's rule for the end of sampling, which is a
//! precision, not a verdict.
//!
//! `tests/trial.rs` tests all of it on studies with known true values, and `tests/independent.rs` compares figures with
//! those of another implementation.
//!
//! [`histogram`] stores the times of a sample, and [`pooled`] computes percentiles of many samples.
//!
//! Inputs are checked to be finite ([`StatsError`]), nothing reads a clock, and random numbers are seeded from the
//! data: the same samples give the same sentence.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod confidence;
pub mod crossing;
pub mod difference;
pub mod error;
pub mod floor;
pub mod histogram;
pub mod holm;
pub mod independent;
pub mod level;
pub mod outlying;
pub mod p_value;
pub mod paired;
pub mod planning;
pub mod polish;
pub mod pooled;
mod preference;
pub mod regression;
mod resampled;
mod signed_rank;
pub mod simultaneous;
pub mod steady;
pub mod stopping;
mod student;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod verdict;
mod walsh;

pub use confidence::Confidence;
pub use crossing::{Crossing, CrossingError, LoadResponse};
pub use difference::LogDifference;
pub use error::{Side, StatsError};
pub use floor::NoiseFloor;
pub use holm::holm;
pub use independent::IndependentRatio;
pub use level::{LevelChange, fewest_figures, level_changes, resemblance};
pub use outlying::{OutlierTest, RobustScale, error_of_median};
pub use p_value::{PValue, Significance};
pub use paired::{Pair, PairedTax};
pub use polish::{MedianPolish, TableCell};
pub use pooled::PooledPercentiles;
pub use preference::Preference;
pub use regression::{LinearFit, LinearPrediction, RegressionError, RegressionRow};
pub use simultaneous::BoundedMean;
pub use steady::Steady;
pub use stopping::{Decision, StoppingRule, Width};
pub use summary::{Spread, Summary, median};
pub use verdict::{Comparison, Finding, Shift, Verdict, judge, judge_family};
pub use walsh::Centre;
