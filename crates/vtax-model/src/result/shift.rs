//! Differences between percentiles of a cell and its baseline.

use serde::{Deserialize, Serialize};

use super::Delta;

/// Difference between a percentile of a cell's transactions and the same percentile of its baseline's, from the rounds
/// that have both. Unlike a comparison by a metric, it is not judged: each interval is correct in 95 % of cases on its
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QuantileShift {
    /// E.g. 99.9.
    pub percent: f64,
    /// The difference, in µs.
    #[serde(flatten)]
    pub delta: Delta,
    /// Number of rounds in which both samples have enough transactions for this percentile.
    pub pairs: usize,
}
