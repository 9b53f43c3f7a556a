//! Connection to the target of a migration, wherever it is.

use std::os::fd::OwnedFd;

use vtax_guest::migration::{MigrationOptions, OutgoingChannels};
use vtax_model::topology::Name;

use super::MigrationId;
use crate::{
    error::BindError,
    order::{DomainOrder, DomainReply},
};

/// Connection to the target of a migration.
pub trait TargetLink {
    /// Gives the target an order, and waits for it to complete. If the connection is lost, the next order makes a new
    /// one.
    fn order(&mut self, order: DomainOrder) -> Result<DomainReply, BindError>;

    /// Returns a socket connected to the target's QEMU, which need not be prepared yet. If the memory has several
    /// channels, nothing is sent on this one, and the target abandons the attempt when it is closed.
    fn connect(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError>;

    /// Carries the memory's channels, as the source's QEMU opens them, to that of the prepared target
    /// ([`LdmHost::open_channel`]), in the background. QEMU notices if that fails: all channels are closed.
    ///
    /// [`LdmHost::open_channel`]: crate::LdmHost::open_channel
    fn carry_channels(&mut self, name: &Name, id: &MigrationId, opened: OutgoingChannels) -> Result<(), BindError>;

    /// Closes the channels immediately, also those that QEMU has yet to open.
    fn close_channels(&mut self);

    /// Returns a socket connected to the disks of the prepared target ([`LdmHost::open_disks`]).
    ///
    /// [`LdmHost::open_disks`]: crate::LdmHost::open_disks
    fn connect_disks(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError>;

    /// Informs the target that the source makes progress. Called several times per second.
    fn beat(&mut self);
}

/// Domain to be moved.
#[derive(Debug, Clone)]
pub struct MigrationRequest {
    pub domain: Name,
    /// Its name at the target.
    pub new_name: Name,
    /// The target, as written by the user. [`LdmHost::departure`](crate::LdmHost::departure) returns it later.
    pub target: String,
    pub options: MigrationOptions,
    /// True if disks missing at the target are copied.
    pub copy_disks: bool,
    /// Domains that move to the same target afterwards, and may have this one as a master.
    pub following: Vec<Name>,
}
