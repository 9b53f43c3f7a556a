//! The disks that a study measures.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::disk::DiskSet;

/// The disks of a study: each row's own, or those that all rows share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyDisks {
    /// Disks that are there already, row by row. All have as many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowDisks>,
    /// The disks of this machine that rows share, each by its own way. If there are none, files are made.
    #[serde(default, skip_serializing_if = "DiskSet::is_empty")]
    pub backend: DiskSet,
    /// Whether what is on them may be lost.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub destroy_data: bool,
}

/// The disks of one row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDisks {
    /// The row.
    pub row: Row,
    /// At least one.
    pub disks: DiskSet,
}

impl StudyDisks {
    /// The disks of a row.
    pub fn of(&self, row: Row) -> Option<&DiskSet> {
        self.rows.iter().find(|known| known.row == row).map(|known| &known.disks)
    }
}
