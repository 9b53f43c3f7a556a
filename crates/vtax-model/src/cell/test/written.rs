//! A test of a disk in documents: its text, and the fields by which programs tell tests apart.

use serde::{Deserialize, Serialize};

use super::DiskCell;
use crate::{disk::DiskTest, units::ByteSize};

/// Placeholder where a network test has its kind.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Disk,
}

/// All fields but `disk` are of it: they are written, and not read.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct WrittenDisk {
    #[serde(skip_deserializing)]
    test: Kind,
    disk: DiskTest,
    #[serde(skip_deserializing)]
    threads: u32,
    /// Disks.
    #[serde(skip_deserializing)]
    luns: u32,
    #[serde(skip_deserializing)]
    block_bytes: u64,
    /// From 0 to 1.
    #[serde(skip_deserializing)]
    read_share: f64,
}

impl From<DiskCell> for WrittenDisk {
    fn from(DiskCell { disk }: DiskCell) -> WrittenDisk {
        let ByteSize(block_bytes) = disk.block.get();
        WrittenDisk {
            test: Kind::Disk,
            disk,
            threads: disk.jobs.get(),
            luns: disk.targets.get(),
            block_bytes,
            read_share: f64::from(disk.reads.get()) / 100.0,
        }
    }
}

impl From<WrittenDisk> for DiskCell {
    fn from(written: WrittenDisk) -> DiskCell {
        DiskCell { disk: written.disk }
    }
}
