//! The disks that a study measures.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{DiskRow, Row};
use crate::disk::{DiskAttach, DiskDevice, DiskPlace, DiskSet};

/// The disks of a study: each row's own, or those that all rows share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StudyDisks {
    /// Existing disks, row by row. All rows have the same number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowDisks>,
    /// Disks of this machine that rows share, each in its own way. If there are none, files are created.
    #[serde(default, skip_serializing_if = "DiskSet::is_empty")]
    pub backend: DiskSet,
    /// Disks whose NVMe controllers the row `assigned-nvme` assigns to its guest.
    #[serde(default, skip_serializing_if = "DiskSet::is_empty")]
    pub assigned: DiskSet,
    /// Those of the files that the run has created, and removes at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<PathBuf>,
    /// True if their data may be destroyed.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub destroy_data: bool,
}

/// Existing disks that one row is measured on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDisks {
    /// Row that is measured on these disks.
    pub row: Row,
    /// At least one.
    pub disks: DiskSet,
}

impl StudyDisks {
    /// Returns the disks that are attached to a guest in this way.
    pub fn of_way(&self, attach: &DiskAttach) -> &DiskSet {
        if attach.device == DiskDevice::AssignedNvme { &self.assigned } else { &self.backend }
    }

    /// Returns true if the user specified the same disks as for another study. Files created for a run are not specified.
    pub(crate) fn has_disks_of(&self, other: &StudyDisks) -> bool {
        let named = |disks: &StudyDisks| {
            let of_rows = disks.rows.iter().map(|known| &known.disks);
            let sets = of_rows.chain([&disks.backend, &disks.assigned]);
            let is_made = |place: &DiskPlace| matches!(place, DiskPlace::Here(path) if disks.made.contains(path));
            let named = |set: &DiskSet| set.0.iter().filter(|place| !is_made(place)).cloned().collect::<Vec<_>>();
            sets.map(named).collect::<Vec<_>>()
        };
        named(self) == named(other)
    }

    /// Returns the disks of a row, as the user named them.
    pub fn of(&self, row: Row) -> &DiskSet {
        let own = self.rows.iter().find(|known| known.row == row).map(|known| &known.disks);
        own.unwrap_or(match row {
            Row::Disk(DiskRow::Guest(attach)) => self.of_way(&attach),
            _ => &self.backend,
        })
    }
}
