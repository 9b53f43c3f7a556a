//! Migration of a domain to another host.
//!
//! The source describes the domain in a [`MigrationOffer`] and finds obstacles on its side. The target compares the
//! offer with its own resources and answers with a [`MigrationVerdict`]. Both only inspect, so nothing is locked or
//! changed.
//!
//! An offer comes from another machine. The target checks it like a configuration, compares it with its own resources,
//! and opens only one of the files named there: the domain's boot image or kernel, whose size it reads.
//!
//! ```text
//!  source (depart)                                     target (arrive)
//!  record of the departure; a guardian process
//!  PrepareMigration ─────────────────────────────────▶ record of the arrival; resources bound, all or none;
//!                                                      QEMU waits for the memory
//!  disks that only the source has, mirrored ════════▶ open_disks: an NBD server of QEMU
//!  memory, over one connection or several channels ══▶ receive_guest; open_channel
//!  vCPUs stopped, all sent and loaded
//!  EndMigration: Take ───────────────────────────────▶ the record says that this host owns the guest; vCPUs run;
//!                                                      addresses announced; supervisor
//!  QEMU ended, resources released, domain removed
//!  ForgetMigration ──────────────────────────────────▶ no record any more
//! ```
//!
//! If the moving process dies, its guardian asks the target how it ended (`settle_migration`); `handover` has the
//! decisions.

mod arrive;
mod channels;
mod check;
mod copies;
mod depart;
mod dirty_rate;
mod flag;
mod handover;
mod id;
mod link;
mod obstacle;
mod offer;
mod record;
mod source;
mod target;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use vtax_model::run::Environment;

pub(crate) use self::handover::ArrivalPhase;
pub use self::{
    arrive::{IncomingDomain, MigrationAnswer},
    copies::DiskCopy,
    depart::{Migrated, MigrationProgress},
    handover::{GuestOwner, MigrationEnd},
    id::MigrationId,
    link::{MigrationRequest, TargetLink},
    obstacle::{
        CopyObstacle, DiskObstacle, MigrationNames, NetworkObstacle, Obstacle, ObstacleText, ProcessorObstacle,
        ResourceObstacle, ServiceObstacle, SourceObstacle,
    },
    offer::{MigrationOffer, OfferedDisk, OfferedGuest},
    record::DepartureRecord,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationVerdict {
    /// Reasons against the migration. Without any, it would succeed.
    pub obstacles: Vec<Obstacle>,
    /// Disks to be copied before the memory moves.
    pub copies: Vec<DiskCopy>,
    /// Machine of the host that compared, for the stored result.
    pub machine: Box<Environment>,
}
