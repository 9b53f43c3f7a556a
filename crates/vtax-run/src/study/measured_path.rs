//! Path measured by a run: network endpoints or disks.

use std::time::{Duration, Instant};

use super::runner::Sampler;
use crate::interrupt::Interrupt;

/// A path on which samples are taken, from when it is ready until everything is restored.
pub(super) trait MeasuredPath {
    fn sampler(&mut self) -> Sampler<'_>;

    /// Lets Ctrl-C interrupt the current sample from now on.
    fn break_off_on(&self, interrupt: &Interrupt);

    /// Returns when the first sample began.
    fn first_sample(&self) -> Option<Instant>;

    /// Returns whether guests were started for the run.
    fn has_lab_guests(&self) -> bool;

    /// Returns the additional time per sample for changing settings before it.
    fn switch_time(&self) -> Duration;

    /// Restores or removes everything that was changed or created for the run.
    fn down(self: Box<Self>) -> miette::Result<()>;
}
