//! The disks that a study measures.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::disk::DiskSet;

/// Disks that are there already, row by row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyDisks {
    /// Each row's. All have as many.
    pub rows: Vec<RowDisks>,
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
