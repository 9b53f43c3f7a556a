//! Channels of a domain's memory: the link carries each one from the source's QEMU to the target's.

use std::{
    num::NonZeroU8,
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread,
    time::{Duration, Instant},
};

use vtax_guest::{
    launch::Launch,
    migration::{MigrationChannel, OutgoingChannels, SILENCE_MOST, SourcePulse, connect_channel},
};
use vtax_model::topology::Name;

use super::{ArrivalPhase, MigrationId, TargetLink, record::DepartureRecord};
use crate::{error::BindError, ldm_host::LdmHost};

/// Interval of attempts to connect.
const GLANCE: Duration = Duration::from_millis(20);

/// Channels that are opened by the source's QEMU during a migration.
pub(super) struct CarriedChannels {
    opened: OutgoingChannels,
    /// The target abandons the attempt when this connection is closed.
    _held: OwnedFd,
    name: Name,
    id: MigrationId,
}

impl CarriedChannels {
    /// Awaits this many channels. The migration must not begin earlier.
    pub(super) fn listen(
        launch: &Launch,
        channels: NonZeroU8,
        record: &DepartureRecord,
        held: OwnedFd,
    ) -> Result<CarriedChannels, BindError> {
        let opened = OutgoingChannels::listen(launch, channels)?;
        Ok(CarriedChannels { opened, _held: held, name: record.new_name.clone(), id: record.id.clone() })
    }

    /// Gives the link all channels that QEMU has opened since the last call.
    pub(super) fn carry(&mut self, link: &mut dyn TargetLink) -> Result<(), BindError> {
        while let Some((channel, socket)) = self.opened.next()? {
            link.carry_channel(&self.name, &self.id, channel, socket)?;
        }
        Ok(())
    }
}

impl LdmHost {
    /// Connects to the QEMU of a domain that this host is prepared for, as soon as that listens for this channel. Returns
    /// None if the attempt ends first.
    pub fn open_channel(
        &self,
        name: &Name,
        id: &MigrationId,
        channel: MigrationChannel,
        pulse: &SourcePulse,
    ) -> Result<Option<UnixStream>, BindError> {
        let is_expected = || -> Result<bool, BindError> {
            let record = self.store().arrival(id)?.filter(|record| record.phase == ArrivalPhase::Prepared);
            Ok(record.is_some_and(|record| record.domain == *name && record.channels.is_some()))
        };
        let unknown = || BindError::NotExpected { domain: name.clone() };
        if !is_expected()? {
            return Err(unknown());
        }
        self.share(name, pulse)?;
        let qemu = self.domains()?.existing(name)?.qemu().ok_or_else(unknown)?;
        let deadline = Instant::now() + SILENCE_MOST;
        while is_expected()? && Instant::now() < deadline {
            if let Some(socket) = connect_channel(qemu.launch(), channel)? {
                return Ok(Some(socket));
            }
            thread::sleep(GLANCE);
        }
        Ok(None)
    }
}
