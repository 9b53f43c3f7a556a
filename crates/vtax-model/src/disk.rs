//! Disk tests: parameters of a sample, its result, and the path to the disk.
//!
//! fio does the work (`vtax-disk`); this module only has the vocabulary.

mod amounts;
mod attach;
mod error;
mod identity;
mod kinds;
mod place;
mod report;
#[cfg(test)]
mod tests;
mod text;
mod user;

use serde_with::{DeserializeFromStr, SerializeDisplay};

pub use amounts::{BlockSize, DiskRate, JobCount, QueueDepth, ReadShare, TargetCount};
pub use attach::{DiskAttach, DiskAttachError, DiskDevice, HostAio};
pub use error::DiskTestError;
pub use identity::{BlockIdentity, DiskCache, DiskIdentity, FilesystemIdentity, LowerBlock, WriteCache};
pub use kinds::{AccessPattern, DiskEngine};
pub use place::{DiskPlace, DiskPlaceError, DiskSet};
pub use report::{DiskCpu, DiskReport, IoReport};
pub use user::{BackingFile, DiskUser};

use crate::units::{ByteSize, Span};

/// Disk test, e.g. `random:reads=60,block=8KiB,jobs=4`; omitted parameters have defaults ([`Default`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct DiskTest {
    /// Order of the blocks: sequential or random.
    pub access: AccessPattern,
    /// Share of reads; the rest are writes.
    pub reads: ReadShare,
    /// The size of each I/O.
    pub block: BlockSize,
    /// I/Os that each job has in flight.
    pub depth: QueueDepth,
    /// Threads, each with its own queue.
    pub jobs: JobCount,
    /// Number of disks (LUNs) over which each job distributes its I/Os.
    pub targets: TargetCount,
    /// Maximum IOPS; unlimited if absent.
    pub rate: Option<DiskRate>,
    /// Size of the used range of each disk, from its start.
    pub range: ByteSize,
    /// I/O engine.
    pub engine: DiskEngine,
    /// True if I/Os bypass the page cache (`O_DIRECT`, open(2)).
    pub direct: bool,
    /// Measured time. A verifying test has none: it ends when the range has been written and read.
    pub duration: Span,
    /// Time under load before the measured time.
    pub ramp: Span,
    /// True if the range is written with checksums, then read and compared. The share of reads and the times are then
    /// ignored.
    pub verify: bool,
}

impl Default for DiskTest {
    fn default() -> Self {
        DiskTest {
            access: AccessPattern::Random,
            reads: ReadShare::ALL,
            block: BlockSize::USUAL,
            depth: QueueDepth::ONE,
            jobs: JobCount::ONE,
            targets: TargetCount::ONE,
            rate: None,
            range: ByteSize(1 << 30),
            engine: DiskEngine::IoUring,
            direct: true,
            duration: Span::from_millis(10_000),
            ramp: Span::from_millis(1_000),
            verify: false,
        }
    }
}

impl DiskTest {
    /// Maximum measured time and ramp: an agent runs no longer program.
    pub const TIME_MOST: Span = Span::from_millis(12 * 60 * 60 * 1000);

    /// Checks that this can be run: each value is possible by itself, but not every combination is.
    pub fn check(&self) -> Result<(), DiskTestError> {
        let (block, jobs, range) = (self.block, self.jobs, self.range);
        match self {
            _ if self.engine.is_blocking() && self.depth > QueueDepth::ONE => {
                Err(DiskTestError::DepthOfBlocking { engine: self.engine, depth: self.depth })
            }
            DiskTest { rate: Some(rate), .. } if rate.get() < jobs.get() => {
                Err(DiskTestError::RateTooLow { rate: *rate, jobs })
            }
            _ if range.0 < self.least_range() => {
                Err(DiskTestError::RangeTooSmall { range, least: ByteSize(self.least_range()), jobs, block })
            }
            _ if self.duration.0.is_zero() && !self.verify => Err(DiskTestError::NoTime),
            _ if self.duration.max(self.ramp) > DiskTest::TIME_MOST => {
                Err(DiskTestError::TooLong { asked: self.duration.max(self.ramp), most: DiskTest::TIME_MOST })
            }
            _ => Ok(()),
        }
    }

    /// Returns true if each job has a separate part of the range: jobs that go through the range in the same order
    /// would find blocks that another has just brought into a cache, and two that write the same block can't both find
    /// their own checksum.
    pub fn has_parts(&self) -> bool {
        self.jobs > JobCount::ONE && (self.access == AccessPattern::Sequential || self.verify)
    }

    /// Returns the share of each disk that belongs to one job, in whole blocks; the same for all if the range isn't
    /// divided.
    pub fn part(&self) -> ByteSize {
        let parts = if self.has_parts() { u64::from(self.jobs.get()) } else { 1 };
        let block = self.block.get().0;
        ByteSize(self.range.0 / parts / block * block)
    }

    /// The used part of the range: whole blocks.
    pub fn used(&self) -> ByteSize {
        let parts = if self.has_parts() { u64::from(self.jobs.get()) } else { 1 };
        ByteSize(self.part().0 * parts)
    }

    fn least_range(&self) -> u64 {
        self.block.get().0 * u64::from(self.jobs.get())
    }
}
