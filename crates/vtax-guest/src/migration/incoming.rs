//! The target's side of a migration.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use vtax_sys::access_list::GrantedAccess;

use super::{
    LOOK, MigrationCancel, MigrationError, MigrationOptions, MigrationWire, SILENCE_MOST, SourcePulse,
    key::{KEY_ID, KeyFile, give_key},
};
use crate::{
    error::GuestError,
    process::Qemu,
    qmp::{HostTime, MigrationSocket, MigrationStatus, Monitor, PATIENCE, QmpEvent, TlsEndpoint},
    userfaultfd,
};

/// A QEMU that awaits a guest. It was started with [`Launch::incoming`](crate::launch::Launch::incoming). If anything
/// here fails, it is unusable and has to be ended.
#[derive(Debug)]
pub struct IncomingGuest<'a> {
    qemu: &'a mut Qemu,
    monitor: Monitor,
    address: Option<SocketAddr>,
    /// The server reads the file at the handshake.
    _key: Option<KeyFile>,
    /// QEMU opens it when the guest is about to run before all of its memory has arrived.
    _userfaultfd: Option<GrantedAccess>,
    silence_most: Duration,
    /// The event of the start of the processors.
    resumed: Option<QmpEvent>,
}

/// A guest that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The time at which its vCPUs started, on this host's clock. None if it was paused at its source, and still is.
    pub resumed_at: Option<HostTime>,
}

impl<'a> IncomingGuest<'a> {
    /// Starts listening for a guest. Returns as soon as the source may connect.
    pub fn listen(
        qemu: &'a mut Qemu,
        wire: MigrationWire,
        options: &MigrationOptions,
    ) -> Result<IncomingGuest<'a>, MigrationError> {
        let mut monitor = qemu.monitor(PATIENCE)?;
        let userfaultfd = options.method.postcopy.then(|| userfaultfd::admit(qemu.process())).flatten();
        let listening = listen(&mut monitor, qemu, wire, options).map_err(MigrationError::of_command);
        let (key, address) = listening.map_err(|error| error.explained(qemu))?;
        Ok(IncomingGuest {
            qemu,
            monitor,
            address,
            _key: key,
            _userfaultfd: userfaultfd,
            silence_most: SILENCE_MOST,
            resumed: None,
        })
    }

    /// Returns a guest that was loaded, by this process or by another one, but not yet resumed.
    pub fn loaded(qemu: &'a mut Qemu) -> Result<IncomingGuest<'a>, MigrationError> {
        let mut monitor = qemu.monitor(PATIENCE)?;
        let info = monitor.migration()?;
        if info.status != MigrationStatus::Completed {
            let (guest, said) = (qemu.launch().name.clone(), "not all of it was received".into());
            return Err(MigrationError::NotArrived { guest, said });
        }
        let (address, silence_most) = (None, SILENCE_MOST);
        Ok(IncomingGuest { qemu, monitor, address, _key: None, _userfaultfd: None, silence_most, resumed: None })
    }

    /// The address for the source, with the port selected. None for a connected socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Waits until the guest has been loaded. It then runs, unless it was started with its processors stopped.
    pub fn receive(&mut self, pulse: &SourcePulse, cancel: &MigrationCancel) -> Result<(), MigrationError> {
        pulse.beat();
        self.watch(pulse, cancel).map_err(|error| error.explained(self.qemu))
    }

    fn watch(&mut self, pulse: &SourcePulse, cancel: &MigrationCancel) -> Result<(), MigrationError> {
        let guest = self.qemu.launch().name.clone();
        loop {
            let info = self.monitor.migration()?;
            match info.status {
                MigrationStatus::Completed => return Ok(()),
                MigrationStatus::Failed => {
                    let said = info.error_desc.unwrap_or_else(|| "QEMU gives no reason".into());
                    return Err(MigrationError::NotArrived { guest, said });
                }
                MigrationStatus::PostcopyPaused => return Err(MigrationError::Split { guest }),
                _ if cancel.is_cancelled() => return Err(MigrationError::TargetCancelled { guest }),
                _ => {}
            }
            let silent = pulse.silent();
            if silent >= self.silence_most {
                return Err(MigrationError::SourceSilent { guest, silent });
            }
            self.hear("MIGRATION", Instant::now() + LOOK)?;
        }
    }

    /// Waits for an event, and records a start of the processors before it.
    fn hear(&mut self, awaited: &str, until: Instant) -> Result<(), GuestError> {
        while let Some(event) = self.monitor.event(until)? {
            let is_awaited = event.name == awaited;
            if event.name == "RESUME" {
                self.resumed = Some(event);
            }
            if is_awaited {
                break;
            }
        }
        Ok(())
    }

    /// Starts the guest's processors, if necessary, and returns once they run. Call it only after the source has
    /// completed: a guest that was paused there would run here.
    pub fn resume(mut self) -> Result<Arrival, MigrationError> {
        let resumed = self.start_processors();
        resumed.map_err(|error| error.explained(self.qemu))
    }

    fn start_processors(&mut self) -> Result<Arrival, MigrationError> {
        let (is_held, is_running) = (self.qemu.launch().paused, self.monitor.status()?.running);
        match (is_held, is_running) {
            (true, false) => self.monitor.resume()?,
            // Another process has resumed it and died since; or it was paused at its source.
            (true, true) | (false, false) => return Ok(Arrival { resumed_at: None }),
            (false, true) => {}
        }
        if self.resumed.is_none() {
            self.hear("RESUME", Instant::now() + self.silence_most)?;
        }
        if let Some(event) = &self.resumed {
            return Ok(Arrival { resumed_at: event.at() });
        }
        let guest = self.qemu.launch().name.clone();
        Err(MigrationError::Late { guest, awaited: "the start of its vCPUs", waited: self.silence_most })
    }
}

type Listening = (Option<KeyFile>, Option<SocketAddr>);

fn listen(
    monitor: &mut Monitor,
    qemu: &Qemu,
    wire: MigrationWire,
    options: &MigrationOptions,
) -> Result<Listening, GuestError> {
    let key = give_key(monitor, qemu.launch(), options.key.as_ref(), (KEY_ID, TlsEndpoint::Server))?;
    monitor.set_migration_capabilities(options.capabilities())?;
    monitor.set_migration_parameters(&options.parameters(key.as_ref().map(|_| KEY_ID)))?;
    let uri = wire.uri();
    wire.give(monitor)?;
    monitor.migrate_incoming(&uri)?;
    let address = monitor.migration()?.socket_address.iter().find_map(tcp);
    Ok((key, address))
}

fn tcp(socket: &MigrationSocket) -> Option<SocketAddr> {
    Some(SocketAddr::new(socket.host.parse().ok()?, socket.port.parse().ok()?))
}
