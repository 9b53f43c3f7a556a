//! A disk test or a migration in documents: its parameters, and the fields by which programs distinguish tests.

use serde::{Deserialize, Serialize};

use super::{DiskCell, MigrationCell};
use crate::{disk::DiskTest, units::ByteSize};

/// Placeholder where a network test has its kind.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Disk,
    Migration,
}

/// All fields except `disk` are derived from it: they are written, but not read.
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

/// `test` is written, but not read.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct WrittenMigration {
    #[serde(skip_deserializing)]
    test: Kind,
    memory_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dirty_mb_per_s: Option<u32>,
}

impl From<MigrationCell> for WrittenMigration {
    fn from(MigrationCell { memory, dirty_rate }: MigrationCell) -> WrittenMigration {
        WrittenMigration { test: Kind::Migration, memory_bytes: memory.0, dirty_mb_per_s: dirty_rate }
    }
}

impl From<WrittenMigration> for MigrationCell {
    fn from(WrittenMigration { memory_bytes, dirty_mb_per_s, .. }: WrittenMigration) -> MigrationCell {
        MigrationCell { memory: ByteSize(memory_bytes), dirty_rate: dirty_mb_per_s }
    }
}
