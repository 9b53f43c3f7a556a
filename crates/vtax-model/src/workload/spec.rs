//! A test as both endpoints run it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Transport, Warmup, Workload, WorkloadError};
use crate::{
    options::{OptionError, TestOptions},
    units::{Mtu, Span},
};

/// A test as both endpoints run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// The protocol.
    pub transport: Transport,
    /// The test and its sizes.
    pub workload: Workload,
    /// Number of concurrent flows, each with its own 5-tuple.
    pub streams: u32,
    /// Traffic before the measured time begins.
    pub warmup: Warmup,
    /// Measured time, or that of each slice. A file transfer ends when the file has arrived.
    pub duration: Span,
    /// Slices of the sample; absent if it is measured in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Sliced>,
    /// All other options.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub options: TestOptions,
}

/// A sliced sample, as both endpoints must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sliced {
    /// Slices of the sample.
    pub passes: u32,
    /// Time from the warm-up of the first row to the last slice of any: the maximum time that a flow may have to wait
    /// for its turn.
    pub span: Span,
}

impl Sliced {
    /// Maximum number of slices: more gain nothing over more rounds.
    pub const PASSES_MOST: u32 = 64;
}

impl TestSpec {
    /// Returns the part of each slice before its measured time, so that the measured time begins under load.
    pub fn lead(&self) -> Duration {
        self.duration.0 / 10
    }

    /// Checks that both endpoints can run it: sizes against the transport and an MTU, options against both.
    pub fn check(&self, mtu: Mtu) -> Result<(), SpecError> {
        self.workload.check(self.transport, mtu)?;
        self.check_slices()?;
        Ok(self.options.check(self.transport, &self.workload, self.streams)?)
    }

    fn check_slices(&self) -> Result<(), SpecError> {
        let Some(Sliced { passes, .. }) = self.slices else { return Ok(()) };
        match self.transport.has_slices(self.workload.kind()) && self.streams == 1 && self.options.can_be_sliced() {
            true if (1..=Sliced::PASSES_MOST).contains(&passes) => Ok(()),
            true => Err(SpecError::Passes(passes)),
            false => Err(SpecError::NoSlices),
        }
    }

    /// As [`TestOptions::rate_is_inverse`].
    pub fn rate_is_inverse(&self) -> bool {
        self.options.rate_is_inverse(self.workload.kind())
    }
}

/// Test that can't be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum SpecError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Options(#[from] OptionError),
    #[error("slices apply to rr and stream over TCP and UDP, with one flow and one message in flight")]
    #[diagnostic(code("no-slices"))]
    NoSlices,
    #[error("{0} slices per sample: must be 1 to {most}", most = Sliced::PASSES_MOST)]
    #[diagnostic(code("bad-option"))]
    Passes(u32),
}
