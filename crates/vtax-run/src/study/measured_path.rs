//! What a run measures: the ends of a network, or disks.

use std::time::{Duration, Instant};

use super::runner::Sampler;
use crate::interrupt::Interrupt;

/// A path on which samples are taken, from when it is ready until all is put back.
pub(super) trait MeasuredPath: Sampler {
    /// From now on Ctrl-C breaks off the sample in flight.
    fn break_off_on(&self, interrupt: &Interrupt);

    /// When the first sample began.
    fn first_sample(&self) -> Option<Instant>;

    /// Whether guests were started for the run.
    fn has_lab_guests(&self) -> bool;

    /// How much longer a sample takes because settings are changed before it.
    fn switch_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Puts back what was made or changed for the run.
    fn down(self: Box<Self>) -> miette::Result<()>;
}
