//! Eligibility of a domain for migration to another host.
//!
//! The source describes the domain in a [`MigrationOffer`] and finds what keeps it there. The target compares the offer
//! with its own resources and answers with a [`MigrationVerdict`]. Both only look, so nothing is locked or changed; the
//! migration itself binds the resources at the target first, all or nothing.
//!
//! An offer comes from another machine. The target checks it as it checks a configuration, compares it with what it has,
//! and opens one file that it names: the domain's boot image or kernel, whose size it reads.

mod check;
mod dirty_rate;
mod obstacle;
mod offer;
mod source;
mod target;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::{
    obstacle::{
        DiskObstacle, MigrationNames, NetworkObstacle, Obstacle, ObstacleText, ProcessorObstacle, ResourceObstacle,
        ServiceObstacle, SourceObstacle,
    },
    offer::{MigrationOffer, OfferedDisk, OfferedGuest},
};

/// Answer of the target to an offer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationVerdict {
    /// Reasons against the migration. Without any, it would succeed.
    pub obstacles: Vec<Obstacle>,
}
