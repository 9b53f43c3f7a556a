//! How far a run that goes on has come.

use std::time::Duration;

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunProgress {
    /// How many samples were taken or have failed.
    pub done: usize,
    /// How many there are to be, as far as is known.
    pub total: usize,
    /// The round of the next sample, from 1.
    pub round: u32,
    /// The cell of the next sample, or the block of cells that take turns, if it is known.
    pub next: Option<String>,
    /// The time until the last one is taken, by the pace so far.
    pub left: Option<Duration>,
}
