//! Settings shared by all migrations of a study, and the domain that `vtax ldm migrate-domain` has migrated.

use serde::{Deserialize, Serialize};

use crate::{
    endpoint::LabHost,
    foreign::ForeignText,
    topology::Name,
    units::{BitRate, Span},
};

/// Migrations of guests of this machine from one QEMU to another, or one migration of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyMigrations {
    /// Suspend time at which the source switches over, by its own estimate.
    pub max_suspend: Span,
    /// Domain that moved from one host to another; absent if the study has its own guests. Such a run has one sample, and
    /// cannot be continued: the domain is elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<MigratedDomain>,
}

/// Domain of a stored migration, with what `vtax ldm migrate-domain` was asked to do.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigratedDomain {
    /// Its name at the source.
    pub name: Name,
    /// Host of a lab on this machine that it left; absent for the machine itself.
    pub source: Option<LabHost>,
    /// Host that it moved to, as the user wrote it: `ssh:HOST` or `LAB/HOST`.
    pub target: ForeignText,
    /// Bandwidth limit.
    pub bandwidth: Option<BitRate>,
    /// True if its processors could be throttled.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub auto_converge: bool,
    /// True if disks that the target did not share were copied first.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub copy_disks: bool,
}

impl Default for StudyMigrations {
    /// The defaults of `vtax ldm migrate-domain`.
    fn default() -> StudyMigrations {
        StudyMigrations { max_suspend: Span::from_millis(300), domain: None }
    }
}
