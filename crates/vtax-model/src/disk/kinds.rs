//! The order of I/Os, and how they reach the kernel.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use super::DiskTestError;

/// Access pattern of a disk test.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = DiskTestError, parse_err_fn = DiskTestError::unknown_access)]
pub enum AccessPattern {
    /// Each block is equally likely, whatever came before.
    Random,
    /// From the first to the last block, repeatedly; each job in its own part.
    Sequential,
}

impl AccessPattern {
    /// All of them.
    pub const ALL: [AccessPattern; 2] = [AccessPattern::Random, AccessPattern::Sequential];
}

/// I/O engine, by fio's name.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", parse_err_ty = DiskTestError, parse_err_fn = DiskTestError::unknown_engine)]
pub enum DiskEngine {
    /// io_uring(7).
    IoUring,
    /// io_submit(2).
    #[serde(rename = "libaio")]
    #[strum(serialize = "libaio")]
    LibAio,
    /// pread(2) and pwrite(2): a job waits for each I/O.
    Psync,
}

impl DiskEngine {
    /// All of them.
    pub const ALL: [DiskEngine; 3] = [DiskEngine::IoUring, DiskEngine::LibAio, DiskEngine::Psync];

    /// Returns true if a job waits for each I/O, and so has one in flight.
    pub fn is_blocking(self) -> bool {
        self == DiskEngine::Psync
    }
}
