//! The source's side of a migration.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use vtax_model::{foreign::ForeignText, topology::Name, units::ByteSize};

use super::{
    Arrival, LOOK, MigrationCancel, MigrationError, MigrationOptions, MigrationWire, SILENCE_MOST, SuspendTimes,
    key::{KEY_ID, give_key},
};
use crate::{
    error::GuestError,
    process::Qemu,
    qmp::{
        HostTime, MigrationInfo, MigrationParameters, MigrationRam, MigrationStatus, Monitor, PATIENCE, TlsEndpoint,
    },
};

/// QEMU's number of the pass that sends what has changed during the first one.
const SECOND_PASS: u64 = 2;

/// Observer of a migration at its source.
pub trait MigrationWatcher {
    /// Called several times per second, and at each new state.
    fn progress(&mut self, info: &MigrationInfo) {
        let _ = info;
    }

    /// Called when there was progress since the last call: the target has to be informed
    /// ([`SourcePulse`](super::SourcePulse)).
    fn moved(&mut self) {}

    /// Called when QEMU was told to cancel, and when the migration has failed. Several channels have to be closed then:
    /// QEMU 10.0 closes only the main one, and waits for the others as long as their other ends are stuck.
    fn cancelled(&mut self) {}

    /// The vCPUs are stopped, and everything except the device state is at the target. The guest is suspended until
    /// this returns, and the target has to be informed that its source waits on purpose. `Break` cancels: the guest
    /// resumes.
    fn before_switchover(&mut self, monitor: &mut Monitor) -> ControlFlow<()> {
        let _ = monitor;
        ControlFlow::Continue(())
    }
}

/// A guest that has left: the target has loaded it. The vCPUs of this QEMU stay stopped, and it must never be resumed.
#[derive(Debug, Clone, PartialEq)]
pub struct Departure {
    /// QEMU's figures for the whole migration.
    pub info: MigrationInfo,
    /// The time at which the vCPUs stopped, on this host's clock. None if they weren't running.
    pub stopped_at: Option<HostTime>,
}

impl Departure {
    /// Migrates a guest, until its target has loaded it. Unless the error is [undone](MigrationError::is_undone), the caller has
    /// to find out which side has the guest.
    pub fn of(
        qemu: &mut Qemu,
        wire: MigrationWire,
        options: &MigrationOptions,
        cancel: &MigrationCancel,
        watcher: &mut dyn MigrationWatcher,
    ) -> Result<Departure, MigrationError> {
        let guest = qemu.launch().name.clone();
        if options.method.channels.is_some() && wire.is_one_connection() {
            let why = "several channels (multifd) require an address, and this is a connected socket".into();
            return Err(MigrationError::Refused { guest, why });
        }
        let monitor = qemu.monitor(PATIENCE)?;
        let mut outgoing = Outgoing::new(guest, monitor, options, cancel, watcher);
        let key = give_key(&mut outgoing.monitor, qemu.launch(), options.key.as_ref(), (KEY_ID, TlsEndpoint::Client));
        let left = key.map_err(MigrationError::of_command).and_then(|key| {
            outgoing.start(wire, key.as_ref().map(|_| KEY_ID))?;
            outgoing.run()
        });
        if left.is_err() {
            // Before the next command: the monitor may not answer until then.
            outgoing.watcher.cancelled();
        }
        outgoing.forget_key();
        left.map_err(|error| error.explained(qemu))
    }

    /// The time for which the guest was suspended. If the hosts have different clocks, the arrival's time has to be
    /// [converted](HostTime::by_clock_behind) first.
    pub fn suspension(&self, arrival: &Arrival) -> SuspendTimes {
        let by_events = self.stopped_at.zip(arrival.resumed_at).and_then(|(stop, resume)| resume.since(stop));
        SuspendTimes { by_qemu: self.info.downtime(), by_events }
    }
}

pub(super) struct Outgoing<'a> {
    guest: Name,
    monitor: Monitor,
    options: &'a MigrationOptions,
    cancel: &'a MigrationCancel,
    watcher: &'a mut dyn MigrationWatcher,
    begun: Instant,
    movement: Movement,
    /// The longest time without progress.
    silence_most: Duration,
    was_running: bool,
    stopped_at: Option<HostTime>,
    /// The last dirty rate that QEMU has reported, in pages per second.
    dirty_pages_rate: u64,
    is_switching: bool,
    is_postcopy: bool,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(
        guest: Name,
        monitor: Monitor,
        options: &'a MigrationOptions,
        cancel: &'a MigrationCancel,
        watcher: &'a mut dyn MigrationWatcher,
    ) -> Outgoing<'a> {
        Outgoing {
            guest,
            monitor,
            options,
            cancel,
            watcher,
            begun: Instant::now(),
            movement: Movement::new(),
            silence_most: SILENCE_MOST,
            was_running: true,
            stopped_at: None,
            dirty_pages_rate: 0,
            is_switching: false,
            is_postcopy: false,
        }
    }

    #[cfg(test)]
    pub(super) fn patient_for(self, silence_most: Duration) -> Outgoing<'a> {
        Outgoing { silence_most, ..self }
    }

    /// Prepares QEMU and starts. If this fails, nothing has been sent.
    pub(super) fn start(&mut self, wire: MigrationWire, key: Option<&'static str>) -> Result<(), MigrationError> {
        let blocked = self.monitor.migration()?.blocked_reasons;
        if !blocked.is_empty() {
            let reasons: Vec<&str> = blocked.iter().map(ForeignText::raw).collect();
            return Err(MigrationError::Refused { guest: self.guest.clone(), why: reasons.join("; ").into() });
        }
        self.was_running = self.monitor.status()?.running;
        let monitor = &mut self.monitor;
        let migrate = || {
            monitor.set_migration_capabilities(self.options.capabilities())?;
            monitor.set_migration_parameters(&self.options.parameters(key))?;
            let uri = wire.uri();
            wire.give(monitor)?;
            monitor.migrate(&uri)
        };
        migrate().map_err(MigrationError::of_command)
    }

    /// Follows the migration to its end.
    pub(super) fn run(&mut self) -> Result<Departure, MigrationError> {
        loop {
            let info = self.monitor.migration()?;
            match info.status {
                MigrationStatus::Completed => return self.departure(info),
                MigrationStatus::Failed => return Err(self.failed(info)?),
                MigrationStatus::Cancelled => {
                    self.wait_running()?;
                    return Err(MigrationError::Cancelled { guest: self.guest.clone() });
                }
                MigrationStatus::PostcopyPaused => return Err(MigrationError::Split { guest: self.guest.clone() }),
                _ => {}
            }
            self.watcher.progress(&info);
            if let Some(ram) = info.ram.as_ref().filter(|ram| ram.dirty_pages_rate > 0) {
                self.dirty_pages_rate = ram.dirty_pages_rate;
            }
            if self.movement.note(&info) {
                self.watcher.moved();
            }
            if let Some(reason) = self.reason_to_stop(&info) {
                return self.stop(&info, reason);
            }
            if self.advance(&info)?.is_break() {
                let reason = MigrationError::Cancelled { guest: self.guest.clone() };
                return self.stop(&info, reason);
            }
            self.hear()?;
        }
    }

    /// Does what the state requires.
    fn advance(&mut self, info: &MigrationInfo) -> Result<ControlFlow<()>, GuestError> {
        match info.status {
            MigrationStatus::PreSwitchover if !self.is_switching => {
                if self.watcher.before_switchover(&mut self.monitor).is_break() || self.cancel.is_cancelled() {
                    return Ok(ControlFlow::Break(()));
                }
                self.movement = Movement::new();
                self.is_switching = true;
                // If it has ended in the meantime, its state says so.
                unless_refused(self.monitor.continue_migration())?;
            }
            MigrationStatus::Active if !self.is_postcopy && self.is_postcopy_due(info) => {
                self.is_postcopy = true;
                unless_refused(self.monitor.start_postcopy())?;
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn is_postcopy_due(&self, info: &MigrationInfo) -> bool {
        self.options.method.postcopy && info.ram.as_ref().is_some_and(|ram| ram.dirty_sync_count >= SECOND_PASS)
    }

    fn reason_to_stop(&self, info: &MigrationInfo) -> Option<MigrationError> {
        let guest = || self.guest.clone();
        let (silent, elapsed) = (self.movement.silent(), self.begun.elapsed());
        if self.cancel.is_cancelled() && self.may_cancel(info.status) {
            return Some(MigrationError::Cancelled { guest: guest() });
        }
        if silent >= self.silence_most {
            return Some(MigrationError::WireCut { guest: guest(), silent });
        }
        let within =
            self.options.limits.time.filter(|limit| info.status == MigrationStatus::Active && elapsed >= *limit)?;
        let ram = info.ram.as_ref();
        let remaining = ByteSize(ram.map_or(0, |ram| ram.remaining));
        let dirty_rate = ram.map_or(ByteSize(0), MigrationRam::dirty_rate);
        Some(MigrationError::NoConvergence { guest: guest(), within, remaining, dirty_rate })
    }

    /// Once the switchover has begun, the target may have the guest without the source knowing.
    fn may_cancel(&self, status: MigrationStatus) -> bool {
        status != MigrationStatus::PostcopyActive && (!self.is_switching || self.options.held_target)
    }

    /// Cancels, unless the target may have the guest.
    fn stop(&mut self, info: &MigrationInfo, reason: MigrationError) -> Result<Departure, MigrationError> {
        if info.status == MigrationStatus::PostcopyActive {
            return Err(MigrationError::Split { guest: self.guest.clone() });
        }
        if !self.may_cancel(info.status) {
            return Err(self.late("the end of the switchover", self.movement.silent()));
        }
        unless_refused(self.monitor.cancel_migration())?;
        self.watcher.cancelled();
        let deadline = Instant::now() + self.silence_most;
        loop {
            let info = self.monitor.migration()?;
            match info.status {
                // The cancellation came too late.
                MigrationStatus::Completed => return self.departure(info),
                MigrationStatus::Cancelled | MigrationStatus::Failed | MigrationStatus::None => break,
                _ if Instant::now() >= deadline => {
                    return Err(self.late("the end of the cancelled migration", self.silence_most));
                }
                _ => self.hear()?,
            }
        }
        self.wait_running()?;
        Err(reason)
    }

    fn failed(&mut self, info: MigrationInfo) -> Result<MigrationError, MigrationError> {
        self.wait_running()?;
        let said = info.error_desc.unwrap_or_else(|| "QEMU gives no reason".into());
        Ok(MigrationError::TargetLost { guest: self.guest.clone(), said })
    }

    /// A guest that was running resumes shortly after its migration has ended.
    fn wait_running(&mut self) -> Result<(), MigrationError> {
        let deadline = Instant::now() + self.silence_most;
        while self.was_running && !self.monitor.status()?.running {
            if Instant::now() >= deadline {
                return Err(self.late("its vCPUs, after a migration that was abandoned,", self.silence_most));
            }
            self.hear()?;
        }
        Ok(())
    }

    fn departure(&mut self, mut info: MigrationInfo) -> Result<Departure, MigrationError> {
        // QEMU omits it once the migration is complete (`populate_ram_info` in its migration/migration.c).
        if let Some(ram) = info.ram.as_mut().filter(|ram| ram.dirty_pages_rate == 0) {
            ram.dirty_pages_rate = self.dirty_pages_rate;
        }
        // Events that came before the answer.
        while let Some(event) = self.monitor.event(Instant::now())? {
            self.note(&event.name, event.at());
        }
        Ok(Departure { info, stopped_at: self.stopped_at })
    }

    /// Waits until the next poll is due. A new state of the migration is an event, too, and so is a new
    /// pass through the memory.
    fn hear(&mut self) -> Result<(), GuestError> {
        let until = Instant::now() + LOOK;
        while let Some(event) = self.monitor.event(until)? {
            self.note(&event.name, event.at());
            if matches!(event.name.as_str(), "MIGRATION" | "MIGRATION_PASS") {
                break;
            }
        }
        Ok(())
    }

    fn note(&mut self, event: &str, at: Option<HostTime>) {
        match event {
            "STOP" => self.stopped_at = at,
            "RESUME" => self.stopped_at = None,
            _ => {}
        }
    }

    /// The key is for one migration only.
    pub(super) fn forget_key(&mut self) {
        if self.options.key.is_some() {
            // If QEMU has exited, the key no longer exists. A guest that has left ends with its QEMU.
            let _ = self.monitor.set_migration_parameters(&MigrationParameters::default());
            let _ = self.monitor.remove_object(KEY_ID);
        }
    }

    fn late(&self, awaited: &'static str, waited: Duration) -> MigrationError {
        MigrationError::Late { guest: self.guest.clone(), awaited, waited }
    }
}

/// A command that QEMU refuses because the migration has progressed in the meantime.
fn unless_refused(done: Result<(), GuestError>) -> Result<(), GuestError> {
    match done {
        Err(GuestError::Refused { .. }) => Ok(()),
        done => done,
    }
}

/// The last change of a migration's figures.
struct Movement {
    last: (MigrationStatus, u64, u64),
    at: Instant,
}

impl Movement {
    fn new() -> Movement {
        Movement { last: (MigrationStatus::None, 0, 0), at: Instant::now() }
    }

    fn note(&mut self, info: &MigrationInfo) -> bool {
        let (sent, passes) = info.ram.as_ref().map_or((0, 0), |ram| (ram.transferred, ram.dirty_sync_count));
        let now = (info.status, sent, passes);
        let has_moved = now != self.last;
        if has_moved {
            *self = Movement { last: now, at: Instant::now() };
        }
        has_moved
    }

    fn silent(&self) -> Duration {
        self.at.elapsed()
    }
}
