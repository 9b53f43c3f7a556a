//! Channels of a domain's memory at the target.

use std::{
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use vtax_guest::migration::{MigrationChannel, MigrationError, SILENCE_MOST, SourcePulse, connect_channel};
use vtax_model::topology::Name;

use super::{ArrivalPhase, MigrationId};
use crate::{error::BindError, ldm_host::LdmHost};

/// Interval of attempts to connect.
const GLANCE: Duration = Duration::from_millis(20);

impl LdmHost {
    /// Connects to the QEMU of a domain that this host is prepared for, as soon as that listens for this channel.
    /// Returns None if the attempt ends first.
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
        while is_expected()? {
            if let Some(socket) = connect_channel(qemu.launch(), channel)? {
                return Ok(Some(socket));
            }
            if Instant::now() >= deadline {
                // The source's QEMU only says that the channel was closed.
                let said = format!("its QEMU did not await the {channel} channel within {SILENCE_MOST:?}").into();
                return Err(MigrationError::NotArrived { guest: name.clone(), said }.into());
            }
            thread::sleep(GLANCE);
        }
        Ok(None)
    }
}
