//! Connection to the target of a migration, wherever it is.

use std::os::fd::OwnedFd;

use vtax_guest::migration::{MigrationChannel, MigrationOptions};
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

    /// Carries a channel of the memory from this socket, which is connected to the source's QEMU, to that of the prepared
    /// target ([`LdmHost::open_channel`]), in the background. If that fails, the socket is closed.
    ///
    /// [`LdmHost::open_channel`]: crate::LdmHost::open_channel
    fn carry_channel(
        &mut self,
        name: &Name,
        id: &MigrationId,
        channel: MigrationChannel,
        socket: OwnedFd,
    ) -> Result<(), BindError>;

    /// Closes the carried channels at once.
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
