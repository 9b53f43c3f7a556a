//! Number and duration of a study's samples.

use serde::{Deserialize, Serialize};
use vtax_stats::planning::MOST_ROUNDS;

use crate::{
    units::Span,
    workload::{Sliced, TestKind, Warmup},
};

/// Number and duration of each cell's samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SamplingPlan {
    /// Rounds: samples of each cell.
    pub samples: u32,
    /// Measured time of a sample, or of each of its slices.
    pub duration: Span,
    /// Traffic before it.
    pub warmup: Warmup,
    /// Slices of a sample; absent if it is measured in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
    /// Time limit: no round begins that would not end within it, except the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Span>,
}

/// A sample that is cut into slices. All rows of a block connect at the beginning of a round and warm up in sequence.
/// Then they alternate, `passes` times and each time in a new random order, and each turn is a slice. So compared
/// figures are measured within milliseconds of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// Slices of a sample.
    pub passes: u32,
    /// Measured time of a stream's slice: streams need longer slices than transactions.
    pub stream: Span,
}

/// A sampling plan that gives no figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum SamplingPlanError {
    #[error("0 samples measure nothing; use at least 1")]
    #[diagnostic(code("bad-plan"))]
    NoSamples,
    #[error("{0} samples per cell: must be at most {MOST_ROUNDS}; longer samples gain more than additional samples")]
    #[diagnostic(code("bad-plan"))]
    TooManySamples(u32),
    #[error("duration {0} is too short for a rate; use at least {least}", least = SamplingPlan::SHORTEST)]
    #[diagnostic(code("bad-plan"))]
    TooShort(Span),
    #[error("a slice of {0} is too short for a rate; use at least {least}", least = SamplingPlan::SHORTEST_SLICE)]
    #[diagnostic(code("bad-plan"))]
    ShortSlice(Span),
    #[error("{0} passes: must be 1 to {most}", most = Sliced::PASSES_MOST)]
    #[diagnostic(code("bad-plan"))]
    Passes(u32),
}

impl SamplingPlan {
    /// Minimum measured time: below it the machine's CPU figures, which the kernel counts in ticks of 10 ms, are
    /// meaningless.
    pub const SHORTEST: Span = Span::from_millis(20);
    /// Minimum slice: a shorter one has too few transactions for its edges not to matter.
    pub const SHORTEST_SLICE: Span = Span::from_millis(1);

    /// Returns the measured time of a test's sample or slice.
    pub fn duration_of(&self, test: TestKind) -> Span {
        match self.slices {
            Some(slices) if test.is_stream() => slices.stream,
            _ => self.duration,
        }
    }

    /// Checks that figures can result from it.
    pub fn check(&self) -> Result<(), SamplingPlanError> {
        let shortest = |span: Span, least: Span| if span < least { Some(span) } else { None };
        if self.samples == 0 {
            return Err(SamplingPlanError::NoSamples);
        }
        if self.samples > MOST_ROUNDS {
            return Err(SamplingPlanError::TooManySamples(self.samples));
        }
        let Some(Slices { passes, stream }) = self.slices else {
            return shortest(self.duration, SamplingPlan::SHORTEST)
                .map_or(Ok(()), |span| Err(SamplingPlanError::TooShort(span)));
        };
        if !(1..=Sliced::PASSES_MOST).contains(&passes) {
            return Err(SamplingPlanError::Passes(passes));
        }
        let short = shortest(self.duration.min(stream), SamplingPlan::SHORTEST_SLICE);
        short.map_or(Ok(()), |span| Err(SamplingPlanError::ShortSlice(span)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_no_more_samples_than_gain_anything() {
        let plan = |samples| SamplingPlan {
            samples,
            duration: Span::from_millis(500),
            warmup: Warmup::NONE,
            slices: None,
            limit: None,
        };
        assert_eq!(plan(MOST_ROUNDS).check(), Ok(()));
        let refused = plan(1_000_000).check().expect_err("too many").to_string();
        assert_eq!(
            refused,
            "1000000 samples per cell: must be at most 2000; longer samples gain more than additional samples"
        );
    }
}
