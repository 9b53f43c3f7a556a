//! Connection of a migration to its target, wherever that is.

use std::os::fd::OwnedFd;

use vtax_guest::migration::MigrationOptions;
use vtax_model::topology::Name;

use super::MigrationId;
use crate::{
    error::BindError,
    order::{DomainOrder, DomainReply},
};

/// Connection to the target of a migration.
pub trait TargetLink {
    /// Gives the target an order, and waits for its end. If the connection is lost, the next order makes a new one.
    fn order(&mut self, order: DomainOrder) -> Result<DomainReply, BindError>;

    /// Returns a connected socket that leads to the QEMU of the target, which need not be prepared yet.
    fn connect(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError>;

    /// Returns a connected socket that leads to the disks of the prepared target ([`LdmHost::open_disks`]).
    ///
    /// [`LdmHost::open_disks`]: crate::LdmHost::open_disks
    fn connect_disks(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError>;

    /// Tells the target that the source makes progress. Called several times a second.
    fn beat(&mut self);
}

/// Domain that is to move.
#[derive(Debug, Clone)]
pub struct MigrationRequest {
    pub domain: Name,
    /// Its name at the target.
    pub new_name: Name,
    /// The target, as the user has written it. [`LdmHost::departure`](crate::LdmHost::departure) returns it later.
    pub target: String,
    pub options: MigrationOptions,
    /// True if disks that the target hasn't got are copied.
    pub copy_disks: bool,
    /// Domains that move to the same target afterwards, and may have this one as a master.
    pub following: Vec<Name>,
}
