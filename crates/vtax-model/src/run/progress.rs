//! Progress of a run.

use std::time::Duration;

/// Counts of samples and the next one, for a progress display.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunProgress {
    /// Number of samples taken or failed.
    pub done: usize,
    /// Planned number of samples, as far as known.
    pub total: usize,
    /// The round of the next sample, from 1.
    pub round: u32,
    /// The cell of the next sample, or the block of alternating cells, if it is known.
    pub next: Option<String>,
    /// The time until the last one is taken, by the pace so far.
    pub left: Option<Duration>,
}
