//! What a handful of samples can say, and what they can't.
//!
//! The run is the unit, never the packet: everything here takes one figure per sample, or one
//! pair of figures per round. The path from samples to a sentence in a table:
//!
//! 1. [`Summary`]: a cell's mean and median with an interval.
//! 2. [`PairedTax`]: the ratio of a cell to its baseline, from pairs measured in the same round,
//!    so that the machine's drift from round to round cancels.
//! 3. [`NoiseFloor`]: the same figure for the baseline measured twice; what the machine calls a
//!    difference when there is none. A shown difference within it is shown with a warning.
//! 4. [`holm()`]: the price of asking about many cells at once.
//! 5. [`judge_family`]: "slower", "faster", "not confirmed", "costs at most x %" or "too noisy to tell".
//!
//! [`Steady`] tells when a warm-up has ended; [`StoppingRule`] is netperf's rule of when to stop sampling, and is a precision, not a verdict.
//!
//! `tests/trial.rs` tries all of it on studies whose truth is known, and `tests/independent.rs` holds figures
//! against another implementation's.
//!
//! [`histogram`] keeps the times of a sample, and [`pooled`] makes percentiles of many samples.
//!
//! Floats are checked to be finite where they come in ([`StatsError`]), nothing reads a clock, and
//! the only random numbers are seeded from the data: the same samples give the same sentence.

#![forbid(unsafe_code)]

pub mod confidence;
pub mod difference;
pub mod error;
pub mod floor;
pub mod histogram;
pub mod holm;
pub mod level;
pub mod p_value;
pub mod paired;
pub mod planning;
pub mod pooled;
mod preference;
mod resampled;
mod signed_rank;
pub mod steady;
pub mod stopping;
mod student;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod verdict;
mod walsh;

pub use confidence::Confidence;
pub use difference::LogDifference;
pub use error::{Side, StatsError};
pub use floor::NoiseFloor;
pub use holm::holm;
pub use level::{LevelChange, fewest_figures, level_changes, resemblance};
pub use p_value::{PValue, Significance};
pub use paired::{Pair, PairedTax};
pub use pooled::PooledPercentiles;
pub use preference::Preference;
pub use steady::Steady;
pub use stopping::{Decision, StoppingRule, Width};
pub use summary::{Spread, Summary, median};
pub use verdict::{Comparison, Finding, Shift, Verdict, judge, judge_family};
pub use walsh::Centre;
