//! Settings shared by all migrations of a study.

use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Migrations of guests of this machine from one QEMU to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyMigrations {
    /// Suspend time at which the source switches over, by its own estimate.
    pub max_suspend: Span,
}

impl Default for StudyMigrations {
    /// The defaults of `vtax ldm migrate-domain`.
    fn default() -> StudyMigrations {
        StudyMigrations { max_suspend: Span::from_millis(300) }
    }
}
