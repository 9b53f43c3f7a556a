//! Path measured by a run: network endpoints or disks.

use std::time::{Duration, Instant};

use super::runner::Sampler;
use crate::interrupt::Interrupt;

/// A path on which samples are taken, from when it is ready until all is put back.
pub(super) trait MeasuredPath {
    fn sampler(&mut self) -> Sampler<'_>;

    /// From now on Ctrl-C breaks off the sample in flight.
    fn break_off_on(&self, interrupt: &Interrupt);

    /// When the first sample began.
    fn first_sample(&self) -> Option<Instant>;

    /// Returns whether guests were started for the run.
    fn has_lab_guests(&self) -> bool;

    /// Returns the additional time of a sample because settings are changed before it.
    fn switch_time(&self) -> Duration;

    /// Puts back what was made or changed for the run.
    fn down(self: Box<Self>) -> miette::Result<()>;
}
