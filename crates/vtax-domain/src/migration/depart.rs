//! The source's side of a migration: it moves a domain, and afterwards lets it continue or removes it.

use std::{
    fs,
    ops::ControlFlow,
    os::fd::OwnedFd,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use vtax_guest::{
    migration::{
        Arrival, Departure, DiskMirrors, DiskProgress, DiskToCopy, MigrationCancel, MigrationError, MigrationOptions,
        MigrationWatcher, MigrationWire, OutgoingChannels, SILENCE_MOST, SuspendTimes, end_mirrors,
    },
    process::Qemu,
    qmp::{MigrationInfo, MigrationStatus, Monitor, PATIENCE},
};
use vtax_model::{domain::DomainState, topology::Name};
use vtax_sys::process::ProcessId;

use super::{
    GuestOwner, IncomingDomain, MigrationAnswer, MigrationEnd, MigrationId, MigrationNames, MigrationRequest,
    ObstacleText, TargetLink, handover::SourceGuest, record::DepartureRecord,
};
use crate::{
    bound::BoundDomain,
    error::BindError,
    host_change::HostChange,
    ldm_host::LdmHost,
    notice::DomainNotice,
    order::{DomainOrder, DomainReply},
    store::boot,
    supervisor_process,
};

/// File in the domain's directory that cancels its migration.
const CANCEL: &str = "cancel-migration";
/// Polling interval of a record.
const GLANCE: Duration = Duration::from_millis(50);
/// Interval at which a guardian wakes up.
const MOVES: Duration = Duration::from_secs(3600);
/// Time limit for a cancelled attempt to end: QEMU and the target have their own deadlines.
const CANCELLED: Duration = Duration::from_secs(60);
/// Time after which the user is told what a cancellation waits for.
const SILENT: Duration = Duration::from_secs(1);

/// Migration of a domain, once it is complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Migrated {
    /// Time for which the domain was suspended.
    pub suspend: SuspendTimes,
    /// Figures of QEMU. None for a domain that did not run.
    pub info: Option<MigrationInfo>,
    /// Total time from the first order.
    pub total: Duration,
}

/// Phase of a migration, with the figures of QEMU.
#[derive(Debug, Clone, Copy)]
pub enum MigrationProgress<'a> {
    /// Disks are copied. The memory follows.
    Disks(DiskProgress),
    Memory(&'a MigrationInfo),
}

/// Guest that the target has taken.
struct Taken {
    departure: Option<Departure>,
    answer: MigrationAnswer,
}

impl LdmHost {
    /// Moves a domain to another host. If that fails, the domain is here as before, unless the error says otherwise.
    /// `hear` receives QEMU's figures during the migration.
    pub fn migrate(
        &self,
        request: &MigrationRequest,
        link: &mut dyn TargetLink,
        cancel: &MigrationCancel,
        hear: &mut dyn FnMut(MigrationProgress<'_>),
    ) -> Result<Migrated, BindError> {
        let begun = Instant::now();
        let MigrationRequest { domain, new_name, target, .. } = request;
        let id = MigrationId::random();
        let record = DepartureRecord::new(id, domain.clone(), new_name.clone(), target.clone())?;
        // Before the record exists: without a guardian, it would never be settled.
        self.start_guardian(&record)?;
        let record = self.change(|host| host.begin_departure(record))?;
        match self.send(request, &record, link, (cancel, hear)) {
            Ok(taken) => {
                // The domain has moved in any case. Its guardian, or the next command here, releases what is left.
                if let Err(error) = self.end_departure(&record, GuestOwner::Target, link) {
                    self.tell_trouble(&error);
                }
                Ok(migrated(&taken, begun))
            }
            Err(error) => match self.settle(&record, link) {
                Ok(GuestOwner::Source) => Err(error),
                Ok(GuestOwner::Target) => {
                    Ok(Migrated { suspend: SuspendTimes::default(), info: None, total: begun.elapsed() })
                }
                Err(unsettled) => {
                    self.tell_trouble(&error);
                    let why = unsettled.to_string();
                    Err(BindError::Unsettled { domain: domain.clone(), target: target.clone(), why })
                }
            },
        }
    }

    fn send(
        &self,
        request: &MigrationRequest,
        record: &DepartureRecord,
        link: &mut dyn TargetLink,
        (cancel, hear): (&MigrationCancel, &mut dyn FnMut(MigrationProgress<'_>)),
    ) -> Result<Taken, BindError> {
        let MigrationRequest { domain, new_name, target, options, copy_disks, following } = request;
        let (mut offer, mut obstacles) = self.offer_migration(domain)?;
        obstacles.retain(|obstacle| !obstacle.is_resolved_by(following));
        if !obstacles.is_empty() {
            let names = MigrationNames { domain: domain.clone(), target: target.clone() };
            return Err(BindError::cannot_migrate(&names, &ObstacleText::of_all(&obstacles, &names)));
        }
        if (offer.state == DomainState::Active) != record.is_live {
            return Err(BindError::Changed { domain: domain.clone() });
        }
        offer.copy_disks = *copy_disks;
        let incoming = IncomingDomain {
            offer: Box::new(offer),
            name: new_name.clone(),
            id: record.id.clone(),
            key: options.key.clone(),
            channels: options.method.channels,
        };
        // The process that receives the memory is started first, so that it releases the preparations if the connection
        // breaks.
        let wire = match record.is_live {
            true => Some(link.connect(&record.new_name, &record.id)?),
            false => None,
        };
        let copied = prepare(incoming, target, link)?;
        let departure = match wire {
            Some(wire) => Some(self.depart(request, (record, &copied), (wire, link), (cancel, hear))?),
            None => None,
        };
        let answer = ask(record, MigrationEnd::Take, link)?;
        match answer.owner {
            GuestOwner::Target => Ok(Taken { departure, answer }),
            GuestOwner::Source => Err(BindError::NotTaken { domain: domain.clone(), target: target.clone() }),
        }
    }

    /// Sends the disks and the memory of a running domain, until the target has loaded all of it.
    fn depart(
        &self,
        request: &MigrationRequest,
        (record, copied): (&DepartureRecord, &[Name]),
        (wire, link): (OwnedFd, &mut dyn TargetLink),
        (cancel, hear): (&MigrationCancel, &mut dyn FnMut(MigrationProgress<'_>)),
    ) -> Result<Departure, BindError> {
        let domains = self.domains()?;
        let (bound, mut qemu) = domains.active(&record.domain)?;
        let directory = domains.directory(&record.domain);
        let ports = ports(&bound, copied);
        let mut watch = DepartureWatch { link, cancel, hear, directory, mirrors: None, failed: None };
        let options = MigrationOptions { held_target: true, ..request.options.clone() };
        watch.copy_disks(&mut qemu, record, ports, &options)?;
        let (wire, _held) = match options.method.channels {
            Some(count) => {
                let opened = OutgoingChannels::listen(qemu.launch(), count)?;
                watch.link.carry_channels(&record.new_name, &record.id, opened)?;
                (MigrationWire::Channels, Some(wire))
            }
            None => (MigrationWire::Connected(wire), None),
        };
        let departed = Departure::of(&mut qemu, wire, &options, cancel, &mut watch);
        if departed.is_err() {
            watch.link.close_channels();
        }
        match watch.failed {
            Some(error) => Err(error.into()),
            None => Ok(departed?),
        }
    }

    /// Returns the record of a domain that leaves this host, or whose migration was interrupted.
    pub fn departure(&self, domain: &Name) -> Result<Option<DepartureRecord>, BindError> {
        Ok(self.store().departure(domain)?)
    }

    /// Waits for the process that moves a domain to exit. Returns the record that it left unsettled.
    pub fn await_mover(&self, domain: &Name, mover: ProcessId) -> Result<Option<DepartureRecord>, BindError> {
        while matches!(mover.wait_end(MOVES), Ok(false)) {}
        Ok(self.departure(domain)?.filter(|record| record.mover == mover))
    }

    /// Ends a migration whose process has died: asks the target, and lets the domain continue here or removes it.
    pub fn settle_migration(&self, domain: &Name, link: &mut dyn TargetLink) -> Result<GuestOwner, BindError> {
        match self.departure(domain)? {
            Some(record) if record.has_mover() => {
                Err(BindError::Migrates { domain: domain.clone(), target: record.target })
            }
            Some(record) => self.settle(&record, link),
            None => Err(BindError::NotMigrating { domain: domain.clone() }),
        }
    }

    fn settle(&self, record: &DepartureRecord, link: &mut dyn TargetLink) -> Result<GuestOwner, BindError> {
        let question = match record.is_live {
            true => self.guest_of(record)?.question(),
            false => MigrationEnd::GiveUp,
        };
        let owner = ask(record, question, link)?.owner;
        self.end_departure(record, owner, link)?;
        Ok(owner)
    }

    fn guest_of(&self, record: &DepartureRecord) -> Result<SourceGuest, BindError> {
        let Some(mut qemu) = self.domains()?.find(&record.domain)?.and_then(|bound| bound.qemu()) else {
            return Ok(SourceGuest::Gone);
        };
        let status = qemu.monitor(PATIENCE)?.migration()?.status;
        Ok(if status == MigrationStatus::Completed { SourceGuest::Sent } else { SourceGuest::Here })
    }

    /// Acts on the target's answer. This can be repeated.
    fn end_departure(
        &self,
        record: &DepartureRecord,
        owner: GuestOwner,
        link: &mut dyn TargetLink,
    ) -> Result<(), BindError> {
        self.change_as_is(|host| match host.departure_of(record)? {
            false => Ok(()),
            true if owner == GuestOwner::Source => host.stay(record),
            true => host.leave(record),
        })?;
        if owner == GuestOwner::Target
            && let Err(error) = link.order(DomainOrder::ForgetMigration { id: record.id.clone() })
        {
            // Its record there remains, harmlessly.
            self.tell_trouble(&error);
        }
        Ok(())
    }

    /// Cancels the migration of a domain, and waits until it has ended.
    pub(crate) fn cancel_migration(&self, domain: &Name) -> Result<(), BindError> {
        let none = || BindError::NotMigrating { domain: domain.clone() };
        let record = self.departure(domain)?.ok_or_else(none)?;
        let path = self.domains()?.directory(domain).join(CANCEL);
        if record.is_live {
            fs::write(&path, "").map_err(BindError::file("write", &path))?;
        }
        self.await_cancelled(&record, CANCELLED)
    }

    /// Waits until the process that moves a domain has ended the migration.
    fn await_cancelled(&self, record: &DepartureRecord, patience: Duration) -> Result<(), BindError> {
        let DepartureRecord { domain, id, mover, .. } = record;
        let (begun, mut is_told) = (Instant::now(), false);
        while self.departure(domain)?.is_some_and(|now| now.id == *id) {
            let waited = begun.elapsed();
            if waited >= patience {
                return Err(BindError::MoverSilent { domain: domain.clone(), mover: mover.pid, waited });
            }
            if waited >= SILENT && !is_told {
                self.tell(DomainNotice::AwaitsMover { domain: domain.clone(), mover: mover.pid.0 });
                is_told = true;
            }
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Starts the process that settles the migration if this one dies.
    fn start_guardian(&self, record: &DepartureRecord) -> Result<(), BindError> {
        let DepartureRecord { domain, mover, .. } = record;
        let verb = ["settle-migration", domain.as_str(), &mover.to_string()];
        supervisor_process::start(domain, self.domains()?.command(&verb))
    }
}

impl HostChange<'_> {
    /// Records that a domain is leaving. From now on nothing else changes it.
    fn begin_departure(&self, mut record: DepartureRecord) -> Result<DepartureRecord, BindError> {
        let domain = &record.domain;
        self.configuration().domain(domain)?;
        let domains = self.domains()?;
        domains.check_settled(domain)?;
        let bound = domains.find(domain)?;
        record.is_live = bound.as_ref().is_some_and(|bound| bound.state() == DomainState::Active);
        // Left by an earlier attempt.
        let _ = fs::remove_file(domains.directory(domain).join(CANCEL));
        self.store().write_departure(&record)?;
        Ok(record)
    }

    /// Returns false if another process has settled it in the meantime.
    fn departure_of(&self, record: &DepartureRecord) -> Result<bool, BindError> {
        Ok(self.store().departure(&record.domain)?.is_some_and(|now| now.id == record.id))
    }

    /// The target does not own the guest, and never will.
    fn stay(&self, record: &DepartureRecord) -> Result<(), BindError> {
        let domains = self.domains()?;
        if let Some(bound) = domains.find(&record.domain)? {
            let _ = fs::remove_file(domains.directory(&record.domain).join(CANCEL));
            if let Some(mut qemu) = bound.qemu().filter(|_| record.is_live) {
                run_on(&mut qemu)?;
                let ports: Vec<u32> = bound.bindings.disks.iter().map(|bound| bound.disk.id).collect();
                end_mirrors(&mut qemu, &ports)?;
            }
            // The moving process may have died while it was ending the supervisor, which may seem alive for a moment. A
            // domain without a QEMU is left to the supervisor, which rebinds it.
            if record.is_live && bound.state() == DomainState::Active && bound.qemu().is_some() {
                supervisor_process::end(&domains.directory(&record.domain));
                domains.supervise_again(&bound)?;
            }
        }
        Ok(self.store().remove_departure(&record.domain)?)
    }

    /// The target owns the guest. Its QEMU here never runs again.
    fn leave(&self, record: &DepartureRecord) -> Result<(), BindError> {
        let (domains, domain) = (self.domains()?, &record.domain);
        if domains.find(domain)?.is_some() {
            domains.take_back(domain)?;
        }
        self.remove_moved(domain)?;
        Ok(self.store().remove_departure(domain)?)
    }
}

/// Returns the disks that have to be copied.
fn prepare(incoming: IncomingDomain, target: &str, link: &mut dyn TargetLink) -> Result<Vec<Name>, BindError> {
    match link.order(DomainOrder::PrepareMigration(Box::new(incoming)))? {
        DomainReply::MigrationPrepared { copied } => Ok(copied),
        _ => Err(odd(target)),
    }
}

/// Returns the copied disks of a domain with their ports.
fn ports(bound: &BoundDomain, copied: &[Name]) -> Vec<(Name, u32)> {
    let disks = bound.bindings.disks.iter().map(|bound| &bound.disk).filter(|disk| copied.contains(&disk.name));
    disks.map(|disk| (disk.name.clone(), disk.id)).collect()
}

fn odd(target: &str) -> BindError {
    let why = "it has answered another order than was given".to_owned();
    BindError::MigrationTarget { target: target.to_owned(), why }
}

fn ask(record: &DepartureRecord, end: MigrationEnd, link: &mut dyn TargetLink) -> Result<MigrationAnswer, BindError> {
    let DepartureRecord { id, new_name, target, .. } = record;
    match link.order(DomainOrder::EndMigration { name: new_name.clone(), id: id.clone(), end })? {
        DomainReply::MigrationEnded(answer) => Ok(answer),
        _ => Err(odd(target)),
    }
}

/// Resumes the vCPUs of a guest that has not left.
fn run_on(qemu: &mut Qemu) -> Result<(), BindError> {
    let mut monitor = qemu.monitor(PATIENCE)?;
    let deadline = Instant::now() + SILENCE_MOST;
    loop {
        let (info, status) = (monitor.migration()?, monitor.status()?);
        match info.status {
            _ if status.running || status.is_starting() => return Ok(()),
            MigrationStatus::None
            | MigrationStatus::Completed
            | MigrationStatus::Cancelled
            | MigrationStatus::Failed => {
                // QEMU resumes it by itself after a failure, but not once everything was sent.
                return Ok(monitor.resume()?);
            }
            _ if Instant::now() >= deadline => {
                let (guest, awaited) = (qemu.launch().name.clone(), "the end of the cancelled migration");
                return Err(MigrationError::Late { guest, awaited, waited: SILENCE_MOST }.into());
            }
            // It may have exited in the meantime, and then refuses.
            _ => drop(monitor.cancel_migration()),
        }
        thread::sleep(GLANCE);
    }
}

fn migrated(taken: &Taken, begun: Instant) -> Migrated {
    let Taken { departure, answer } = taken;
    let arrival = Arrival { resumed_at: answer.resumed_at.filter(|_| answer.boot == boot()) };
    Migrated {
        suspend: departure.as_ref().map(|departure| departure.suspension(&arrival)).unwrap_or_default(),
        info: departure.as_ref().map(|departure| departure.info.clone()),
        total: begun.elapsed(),
    }
}

/// Follows QEMU's progress, for the target and the user.
struct DepartureWatch<'a> {
    link: &'a mut dyn TargetLink,
    cancel: &'a MigrationCancel,
    hear: &'a mut dyn FnMut(MigrationProgress<'_>),
    /// The domain's directory.
    directory: PathBuf,
    /// The copies of disks, which end when this is dropped.
    mirrors: Option<DiskMirrors>,
    /// The reason why they could not be completed.
    failed: Option<MigrationError>,
}

impl DepartureWatch<'_> {
    /// Copies the disks at these ports until both sides have the same blocks, and keeps them the same.
    fn copy_disks(
        &mut self,
        qemu: &mut Qemu,
        record: &DepartureRecord,
        ports: Vec<(Name, u32)>,
        options: &MigrationOptions,
    ) -> Result<(), BindError> {
        if ports.is_empty() {
            return Ok(());
        }
        let connected = ports.into_iter().map(|(name, port)| {
            Ok(DiskToCopy { name, port, wire: self.link.connect_disks(&record.new_name, &record.id)? })
        });
        let disks = connected.collect::<Result<Vec<_>, BindError>>()?;
        let mirrors = self.mirrors.insert(DiskMirrors::start(qemu, disks, options)?);
        let mut moved = |progress| {
            if self.directory.join(CANCEL).exists() {
                self.cancel.cancel();
            }
            self.link.beat();
            (self.hear)(MigrationProgress::Disks(progress));
        };
        Ok(mirrors.copy(qemu, self.cancel, &mut moved)?)
    }
}

impl MigrationWatcher for DepartureWatch<'_> {
    fn progress(&mut self, info: &MigrationInfo) {
        if self.directory.join(CANCEL).exists() {
            self.cancel.cancel();
        }
        (self.hear)(MigrationProgress::Memory(info));
    }

    fn moved(&mut self) {
        self.link.beat();
    }

    fn cancelled(&mut self) {
        self.link.close_channels();
    }

    /// From now on QEMU may exit only because of the migration, which is not a failure of the domain.
    fn before_switchover(&mut self, monitor: &mut Monitor) -> ControlFlow<()> {
        supervisor_process::end(&self.directory);
        self.link.beat();
        self.failed = self.mirrors.as_ref().and_then(|mirrors| mirrors.complete(monitor).err());
        match self.failed {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domains::{TestHost, configuration, name};

    /// Without a word, a user would not know why the command hangs.
    #[test]
    fn a_process_that_does_not_cancel_its_migration_is_named() {
        let test = TestHost::with_domains();
        test.store(&configuration());
        let record = DepartureRecord::new(MigrationId::random(), name("mars"), name("mars"), "peer".to_owned());
        let record = record.expect("this process");
        test.host.store().lock().expect("it is free").write_departure(&record).expect("there is room");
        let (own, patience) = (std::process::id(), SILENT + 4 * GLANCE);
        let told = test.host.await_cancelled(&record, patience).expect_err("this process moves it").to_string();
        assert!(told.contains(&format!("(pid {own}) has not responded to the cancellation for 1 s")), "{told}");
        assert_eq!(test.heard(), [DomainNotice::AwaitsMover { domain: name("mars"), mover: own }]);
        // A migration that has ended is not waited for.
        test.host.store().lock().expect("it is free").remove_departure(&name("mars")).expect("it is there");
        test.host.await_cancelled(&record, Duration::ZERO).expect("it has ended");
        assert_eq!(test.heard(), []);
    }
}
