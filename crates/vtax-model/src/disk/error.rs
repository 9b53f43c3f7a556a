//! Reasons why a disk can't be tested in this way.

use super::{AccessPattern, BlockSize, DiskEngine, DiskRate, JobCount, QueueDepth, text::KEYS};
use crate::{
    spelling::available,
    units::{ByteSize, Span, UnitError},
};

/// Disk test that can't be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DiskTestError {
    #[error("unknown access pattern `{_0}`; {}", available(_0, &AccessPattern::ALL.map(<&str>::from)))]
    #[diagnostic(code("unknown-name"))]
    UnknownAccess(String),
    #[error("unknown disk engine `{_0}`; {}", available(_0, &DiskEngine::ALL.map(<&str>::from)))]
    #[diagnostic(code("unknown-name"))]
    UnknownEngine(String),
    #[error("unknown setting `{_0}` of a disk test; {}, e.g. block=8KiB", available(_0, &KEYS))]
    #[diagnostic(code("bad-disk-test"))]
    Key(String),
    #[error("`{0}` is set twice")]
    #[diagnostic(code("bad-disk-test"))]
    Twice(&'static str),
    #[error("{key} = `{value}`: must be on or off")]
    #[diagnostic(code("bad-disk-test"))]
    Switch { key: &'static str, value: String },
    #[error("{what} cannot be `{value}`: must be {least} to {most}")]
    #[diagnostic(code("bad-disk-test"))]
    Amount { what: &'static str, value: String, least: u32, most: u32 },
    #[error(
        "invalid block size {0}: must be a multiple of 512 bytes (whole sectors), {least} to {most}",
        least = BlockSize::LEAST,
        most = BlockSize::MOST
    )]
    #[diagnostic(code("bad-disk-test"))]
    Block(ByteSize),
    #[error(
        "the engine `{engine}` waits for each I/O, so a job has 1 in flight, not {depth}; use more jobs, or io_uring"
    )]
    #[diagnostic(code("bad-disk-test"))]
    DepthOfBlocking { engine: DiskEngine, depth: QueueDepth },
    #[error("{rate} IOPS are fewer than one for each of {jobs} jobs; increase rate or reduce jobs")]
    #[diagnostic(code("bad-disk-test"))]
    RateTooLow { rate: DiskRate, jobs: JobCount },
    #[error("{range} of a disk is too small for {jobs} jobs with {block} blocks; use at least {least}")]
    #[diagnostic(code("bad-disk-test"))]
    RangeTooSmall { range: ByteSize, least: ByteSize, jobs: JobCount, block: BlockSize },
    #[error("a duration of 0 measures nothing; use several seconds")]
    #[diagnostic(code("no-test-time"))]
    NoTime,
    #[error("{asked} is too long for a disk test; the maximum is {most}")]
    #[diagnostic(code("bad-disk-test"))]
    TooLong { asked: Span, most: Span },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Unit(#[from] UnitError),
}

impl DiskTestError {
    pub(super) fn unknown_access(text: &str) -> DiskTestError {
        DiskTestError::UnknownAccess(text.to_owned())
    }

    pub(super) fn unknown_engine(text: &str) -> DiskTestError {
        DiskTestError::UnknownEngine(text.to_owned())
    }

    pub(super) fn amount(what: &'static str, value: &str, least: u32, most: u32) -> DiskTestError {
        DiskTestError::Amount { what, value: value.to_owned(), least, most }
    }
}
