//! Settings that all migrations of a study have in common.

use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Migrations of guests of this machine from one QEMU to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyMigrations {
    /// The source switches over as soon as it expects a suspend time below this.
    pub max_suspend: Span,
}

impl Default for StudyMigrations {
    /// As `vtax ldm migrate-domain`.
    fn default() -> StudyMigrations {
        StudyMigrations { max_suspend: Span::from_millis(300) }
    }
}
