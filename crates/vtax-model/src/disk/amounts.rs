//! Amounts and counts, validated on construction.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::DiskTestError;
use crate::units::ByteSize;

/// A whole number in a range.
macro_rules! amount {
    ($(#[$doc:meta])* $name:ident, $least:literal..=$most:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "u32", into = "u32")]
        pub struct $name(u32);

        impl $name {
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl TryFrom<u32> for $name {
            type Error = DiskTestError;

            fn try_from(number: u32) -> Result<Self, DiskTestError> {
                let wrong = || DiskTestError::amount($what, &number.to_string(), $least, $most);
                ($least..=$most).contains(&number).then_some($name(number)).ok_or_else(wrong)
            }
        }

        impl From<$name> for u32 {
            fn from(amount: $name) -> u32 {
                amount.0
            }
        }

        impl FromStr for $name {
            type Err = DiskTestError;

            fn from_str(text: &str) -> Result<Self, DiskTestError> {
                let number = text.parse::<u32>();
                let number = number.map_err(|_| DiskTestError::amount($what, text, $least, $most))?;
                $name::try_from(number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

amount!(
    /// The share of reads among all I/Os, in percent.
    ReadShare, 0..=100, "the share of reads (percent)"
);
amount!(
    /// Number of I/Os in flight per job. The kernel's queues have fewer slots than the maximum.
    QueueDepth, 1..=4096, "the queue depth"
);
amount!(
    /// Number of threads that issue I/Os.
    JobCount, 1..=1024, "the number of jobs"
);
amount!(
    /// Maximum number of I/Os per second, all jobs together.
    DiskRate, 1..=100_000_000, "the rate (IOPS)"
);
amount!(
    /// Number of disks of a test.
    TargetCount, 1..=256, "the number of disks"
);

impl ReadShare {
    /// Reads only.
    pub const ALL: ReadShare = ReadShare(100);
    /// Writes only.
    pub const NONE: ReadShare = ReadShare(0);
}

impl QueueDepth {
    /// One I/O at a time.
    pub const ONE: QueueDepth = QueueDepth(1);
}

impl JobCount {
    /// A single thread.
    pub const ONE: JobCount = JobCount(1);
}

impl TargetCount {
    /// A single disk.
    pub const ONE: TargetCount = TargetCount(1);
}

/// The bytes of one I/O: whole sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "ByteSize")]
pub struct BlockSize(ByteSize);

impl BlockSize {
    /// A sector, the kernel's unit of disks.
    pub const LEAST: BlockSize = BlockSize(ByteSize(512));
    /// Each I/O in flight has a buffer of this size.
    pub const MOST: BlockSize = BlockSize(ByteSize(64 << 20));
    /// The value common in file systems and data sheets.
    pub const USUAL: BlockSize = BlockSize(ByteSize(4096));

    /// Returns the size in bytes, a multiple of 512 from 512 to 64 MiB.
    pub const fn get(self) -> ByteSize {
        self.0
    }
}

impl TryFrom<ByteSize> for BlockSize {
    type Error = DiskTestError;

    fn try_from(size: ByteSize) -> Result<Self, DiskTestError> {
        let possible = (BlockSize::LEAST.0..=BlockSize::MOST.0).contains(&size);
        let whole = size.0.is_multiple_of(BlockSize::LEAST.0.0);
        (possible && whole).then_some(BlockSize(size)).ok_or(DiskTestError::Block(size))
    }
}

impl FromStr for BlockSize {
    type Err = DiskTestError;

    fn from_str(text: &str) -> Result<Self, DiskTestError> {
        BlockSize::try_from(text.parse::<ByteSize>()?)
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
