//! The user's choice of a run's rounds.

use serde::{Deserialize, Serialize};
use vtax_model::{metric::Metric, run::Goal};
use vtax_stats::StoppingRule;

/// Number and order of the rounds of a new run, as far as the user has chosen them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChosenRounds {
    /// True for the short plan.
    pub quick: bool,
    /// Number of rounds.
    pub samples: Option<u32>,
    /// Goal of the number of rounds, instead of `samples`.
    pub goal: Option<Goal>,
    /// When to stop before or after `samples` rounds.
    pub stopping: Option<StoppingRule>,
    /// Metric that `stopping` and `goal` refer to, in place of each test's own.
    pub metric: Option<Metric>,
    /// Seed of the order of the samples, and of the I/Os.
    pub seed: Option<u64>,
}
