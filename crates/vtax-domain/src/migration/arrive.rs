//! The target's side of a migration: it prepares for a domain, receives its memory, and takes ownership or abandons it.

use std::{
    fs,
    num::NonZeroU8,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use vtax_guest::{
    launch::{Boot, Launch},
    migration::{
        IncomingGuest, MigrationCancel, MigrationKey, MigrationMethod, MigrationOptions, MigrationWire, SILENCE_MOST,
        SourcePulse, end_disks, serve_disks,
    },
    process::Qemu,
    qmp::HostTime,
};
use vtax_model::{domain::DomainError, topology::Name};
use vtax_step::Announcement;
use vtax_sys::directory;

use super::{
    ArrivalPhase, DiskCopy, GuestOwner, MigrationEnd, MigrationId, MigrationNames, MigrationOffer, ObstacleText,
    handover::{TargetAction, TargetGuest},
    record::ArrivalRecord,
};
use crate::{
    bound::{BoundDomain, Started},
    error::BindError,
    host_change::HostChange,
    ldm_host::LdmHost,
    plan::port_vlans,
    store::boot,
};

/// The key of a migration, in the domain's directory until the guest has arrived.
const KEY: &str = "migration-key";
/// The last sign of progress of the source, shared by all processes that receive parts of it.
const PULSE: &str = "migration-pulse";
/// The socket of the NBD server, in the domain's directory.
const DISKS: &str = "disks.sock";
/// Time limit for preparing a target, which may have to clear the guest's memory.
const PREPARED: Duration = Duration::from_secs(600);
/// Polling interval of a record.
const GLANCE: Duration = Duration::from_millis(50);

/// Domain for which a target prepares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IncomingDomain {
    pub offer: Box<MigrationOffer>,
    /// Its name at the target.
    pub name: Name,
    pub id: MigrationId,
    /// Encrypts its memory in transit.
    pub key: Option<MigrationKey>,
    /// The number of channels for its memory, if there are several.
    pub channels: Option<NonZeroU8>,
}

/// Answer of a target that was asked to end an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationAnswer {
    pub owner: GuestOwner,
    /// The time at which the vCPUs were just started.
    pub(super) resumed_at: Option<HostTime>,
    /// Boot ID of the target's machine: clocks of one machine agree.
    pub(super) boot: String,
}

impl LdmHost {
    /// Waits until this host is prepared for a domain, receives its memory from `wire` or through
    /// [`open_channel`](LdmHost::open_channel), and waits for the source's decision. On failure, this host abandons the
    /// guest, unless it owns it.
    pub fn receive_guest(
        &self,
        name: &Name,
        id: &MigrationId,
        wire: OwnedFd,
        pulse: &SourcePulse,
        cancel: &MigrationCancel,
    ) -> Result<(), BindError> {
        let unknown = || BindError::NotExpected { domain: name.clone() };
        let Some(record) = self.await_preparation(id, cancel)? else {
            // The source's order to prepare has failed, as it knows.
            return if cancel.is_cancelled() { self.give_up(name, id).map(drop) } else { Err(unknown()) };
        };
        let load = || {
            if record.domain != *name {
                return Err(unknown());
            }
            let domains = self.domains()?;
            let mut qemu = domains.existing(name)?.qemu().ok_or_else(unknown)?;
            self.share(name, pulse)?;
            let key = fs::read_to_string(key_file(&domains.directory(name))).ok().and_then(|text| text.parse().ok());
            let method = MigrationMethod { channels: record.channels, ..MigrationMethod::default() };
            let options = MigrationOptions { key, method, held_target: true, ..MigrationOptions::default() };
            let wire = match record.channels {
                Some(_) => MigrationWire::Channels,
                None => MigrationWire::Connected(wire),
            };
            let mut incoming = IncomingGuest::listen(&mut qemu, wire, &options)?;
            Ok(incoming.receive(pulse, cancel)?)
        };
        match load().and_then(|()| self.await_end(id)) {
            Ok(true) => Ok(()),
            Ok(false) => self.give_up(name, id).map(drop),
            Err(error) => self.give_up(name, id).and(Err(error)),
        }
    }

    /// Connects to the NBD server with the disks of a domain that this host is prepared for. There is one connection
    /// per disk.
    pub fn open_disks(&self, name: &Name, id: &MigrationId, pulse: &SourcePulse) -> Result<OwnedFd, BindError> {
        let unknown = || BindError::NotExpected { domain: name.clone() };
        let record = self.store().arrival(id)?.filter(|record| record.phase == ArrivalPhase::Prepared);
        record.filter(|record| record.domain == *name).ok_or_else(unknown)?;
        self.share(name, pulse)?;
        let path = self.domains()?.directory(name).join(DISKS);
        Ok(UnixStream::connect(&path).map_err(BindError::file("connect to", &path))?.into())
    }

    /// Waits for the end of an attempt of which this process receives a part. If data stops arriving, this host abandons it.
    pub fn await_attempt(&self, name: &Name, id: &MigrationId, pulse: &SourcePulse) -> Result<(), BindError> {
        while self.store().arrival(id)?.is_some_and(|record| record.phase == ArrivalPhase::Prepared) {
            if pulse.silent() >= SILENCE_MOST {
                return self.give_up(name, id).map(drop);
            }
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    pub(super) fn share(&self, name: &Name, pulse: &SourcePulse) -> Result<(), BindError> {
        let path = self.domains()?.directory(name).join(PULSE);
        pulse.share(&path).map_err(BindError::file("write", &path))
    }

    /// Waits until this host is prepared. Returns None if that takes too long, is cancelled, or has failed.
    fn await_preparation(
        &self,
        id: &MigrationId,
        cancel: &MigrationCancel,
    ) -> Result<Option<ArrivalRecord>, BindError> {
        let deadline = Instant::now() + PREPARED;
        while self.store().arrival(id)?.is_none() {
            if cancel.is_cancelled() || Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(GLANCE);
        }
        // The record is written first. The preparing process holds the lock until everything is done or undone.
        let record = self.change_as_is(|host| Ok(host.store().arrival(id)?))?;
        Ok(record.filter(|record| record.phase == ArrivalPhase::Prepared))
    }

    /// Waits until the source has asked this host to take the loaded guest, or to abandon it. Returns false if it does
    /// neither.
    fn await_end(&self, id: &MigrationId) -> Result<bool, BindError> {
        let deadline = Instant::now() + SILENCE_MOST;
        loop {
            let is_open = self.store().arrival(id)?.is_some_and(|record| record.phase == ArrivalPhase::Prepared);
            match is_open {
                false => return Ok(true),
                true if Instant::now() >= deadline => return Ok(false),
                true => thread::sleep(GLANCE),
            }
        }
    }

    fn give_up(&self, name: &Name, id: &MigrationId) -> Result<MigrationAnswer, BindError> {
        self.end_migration(name, id, MigrationEnd::GiveUp)
    }

    /// Ends an attempt. The request may arrive late, or twice.
    pub(crate) fn end_migration(
        &self,
        name: &Name,
        id: &MigrationId,
        asked: MigrationEnd,
    ) -> Result<MigrationAnswer, BindError> {
        // Reconciliation would abandon a guest that is about to be taken, if the process that prepared it has died.
        self.change_as_is(|host| host.end_arrival(name, id, asked))
    }
}

impl HostChange<'_> {
    /// Binds the resources of a domain that is about to arrive: all, or none. Its QEMU waits for its memory.
    /// Returns the disks that the source has to copy.
    pub(crate) fn prepare_migration(&self, incoming: IncomingDomain) -> Result<Vec<Name>, BindError> {
        let IncomingDomain { offer, name, id, key, channels } = incoming;
        let verdict = self.host().check_migration(&offer, &name)?;
        if !verdict.obstacles.is_empty() {
            let names = MigrationNames { domain: offer.domain.clone(), target: "this host".to_owned() };
            return Err(BindError::cannot_migrate(&names, &ObstacleText::of_all(&verdict.obstacles, &names)));
        }
        if self.configuration().domains.contains_key(&name) {
            return Err(DomainError::Exists { what: "domain", name }.into());
        }
        let mut record = ArrivalRecord::new(id, name, offer.running().is_some())?;
        record.copies = verdict.copies;
        record.channels = channels;
        self.store().write_arrival(&record)?;
        let prepared =
            self.add_arriving(&offer, &record, key.as_ref()).and_then(|()| self.serve_disks(&record, key.as_ref()));
        prepared.inspect_err(|_| {
            if let Err(left) = self.abandon(&record) {
                self.tell_trouble(&left);
            }
        })
    }

    fn add_arriving(
        &self,
        offer: &MigrationOffer,
        record: &ArrivalRecord,
        key: Option<&MigrationKey>,
    ) -> Result<(), BindError> {
        let name = &record.domain;
        let arriving = offer.renamed(name)?;
        let added = self.edit_moving(|all| {
            all.add_domains_of(&arriving)?;
            all.set_masters(name, offer.masters.clone())
        })?;
        if offer.guest.is_none() {
            return Ok(());
        }
        added.with_wanted(|domains, wanted| {
            let (bindings, launch) = domains.plan(name, wanted)?;
            let launch = match offer.running() {
                Some(guest) => incoming(name, &guest.launch, launch)?,
                None => launch,
            };
            domains.claim(&bindings, wanted.configuration, launch)?;
            let directory = domains.directory(name);
            key.map_or(Ok(()), |key| write_key(&directory, key))
        })
    }

    /// Serves the disks that are copied, until the guest has arrived.
    fn serve_disks(&self, record: &ArrivalRecord, key: Option<&MigrationKey>) -> Result<Vec<Name>, BindError> {
        if record.copies.is_empty() {
            return Ok(Vec::new());
        }
        let (domains, name) = (self.domains()?, &record.domain);
        let bound = domains.existing(name)?;
        let mut qemu = bound.qemu().ok_or_else(|| BindError::NotExpected { domain: name.clone() })?;
        let copied: Vec<(Name, u32)> = record.copied(&bound).map(|disk| (disk.name.clone(), disk.id)).collect();
        serve_disks(&mut qemu, &domains.directory(name).join(DISKS), key, &copied)?;
        Ok(copied.into_iter().map(|(name, _)| name).collect())
    }

    /// Ends the NBD server before the guest runs.
    fn close_disks(&self, record: &ArrivalRecord, bound: &BoundDomain, qemu: &mut Qemu) {
        if record.copies.is_empty() {
            return;
        }
        let _ = self.domains().map(|domains| fs::remove_file(domains.directory(&record.domain).join(DISKS)));
        let ports: Vec<u32> = record.copied(bound).map(|disk| disk.id).collect();
        // The source has disconnected, and no one else has the key.
        if let Err(error) = end_disks(qemu, &ports) {
            self.tell_trouble(&error.into());
        }
    }

    fn end_arrival(&self, name: &Name, id: &MigrationId, asked: MigrationEnd) -> Result<MigrationAnswer, BindError> {
        let record = self.store().arrival(id)?.filter(|record| record.domain == *name);
        let phase = record.as_ref().map(|record| record.phase);
        // A target that is asked to abandon the guest must not wait for the monitor of its QEMU.
        let guest = match (&record, asked) {
            (Some(record), MigrationEnd::Take) => self.guest_of(record),
            _ => TargetGuest::Incomplete,
        };
        let answer = |owner, resumed_at| Ok(MigrationAnswer { owner, resumed_at, boot: boot() });
        match (TargetAction::of(phase, guest, asked), record) {
            (TargetAction::Own, Some(record)) => answer(GuestOwner::Target, self.own(record)?),
            (TargetAction::Abandon, Some(record)) => {
                self.abandon(&record)?;
                answer(GuestOwner::Source, None)
            }
            (TargetAction::Answer(owner), record) => {
                // The process that recorded this host's ownership may have died before the guest ran.
                if let Some(Err(error)) = record.map(|record| self.start_owned(&record)) {
                    self.tell_trouble(&error);
                }
                answer(owner, None)
            }
            (TargetAction::Own | TargetAction::Abandon, None) => answer(GuestOwner::Source, None),
        }
    }

    fn guest_of(&self, record: &ArrivalRecord) -> TargetGuest {
        if !record.is_live {
            return TargetGuest::Loaded;
        }
        let is_loaded = || {
            let mut qemu = self.domains().ok()?.existing(&record.domain).ok()?.qemu()?;
            IncomingGuest::loaded(&mut qemu).is_ok().then_some(())
        };
        is_loaded().map_or(TargetGuest::Incomplete, |()| TargetGuest::Loaded)
    }

    /// Records that this host owns the guest, and lets it run. From then on, the source never resumes it.
    fn own(&self, mut record: ArrivalRecord) -> Result<Option<HostTime>, BindError> {
        let announcements = if record.is_live { self.announcements(&record.domain) } else { Vec::new() };
        record.phase = ArrivalPhase::Owned;
        self.store().write_arrival(&record)?;
        if !record.is_live {
            return Ok(None);
        }
        let resumed_at = self.run_arrived(&record, announcements);
        // It is this host's domain now, whatever happens to it.
        resumed_at.or_else(|error| {
            self.tell_trouble(&error);
            Ok(None)
        })
    }

    fn run_arrived(
        &self,
        record: &ArrivalRecord,
        announcements: Vec<Announcement>,
    ) -> Result<Option<HostTime>, BindError> {
        let (domains, name) = (self.domains()?, &record.domain);
        let none = || BindError::NotExpected { domain: name.clone() };
        let bound = domains.existing(name)?;
        let mut qemu = bound.qemu().ok_or_else(none)?;
        self.close_disks(record, &bound, &mut qemu);
        let arrival = IncomingGuest::loaded(&mut qemu)?.resume()?;
        let running = Instant::now();
        let directory = domains.directory(name);
        Started { is_up: true, ..Started::now() }.write(&directory)?;
        self.announce(announcements, running);
        let _ = fs::remove_file(key_file(&directory));
        let _ = fs::remove_file(directory.join(PULSE));
        domains.start_supervisor(name)?;
        Ok(arrival.resumed_at)
    }

    /// Prepares to announce the addresses of a domain's vnets. Without an announcement, switches learn them when the
    /// domain first sends, so a failure is not fatal.
    fn announcements(&self, name: &Name) -> Vec<Announcement> {
        let prepare = || {
            let (domains, all) = (self.domains()?, self.configuration());
            let bound = domains.existing(name)?;
            let mut site = domains.site();
            let stack = site.own()?;
            let vnets = bound.bindings.constraints.vnets.iter().zip(&bound.bindings.nics);
            let announced = vnets.map(|(vnet, nic)| {
                let (uplink, macs) = (domains.uplink(&vnet.switch, all)?, vnet.macs().collect::<Vec<_>>());
                let vlans = port_vlans(vnet, all.switch(&vnet.switch)?);
                Ok(stack.announce(&nic.tap, uplink.as_deref(), &macs, Some(&vlans))?)
            });
            announced.collect::<Result<Vec<_>, BindError>>()
        };
        prepare().unwrap_or_else(|error| {
            self.tell_trouble(&error);
            Vec::new()
        })
    }

    /// Announces the addresses of a domain that has just started to run, several times because each frame may be lost.
    fn announce(&self, mut announcements: Vec<Announcement>, running: Instant) {
        let Ok(domains) = self.domains() else { return };
        let mut site = domains.site();
        loop {
            let Ok(stack) = site.own() else { return };
            let due = announcements.iter_mut().filter_map(|announcement| {
                announcement.make(running.elapsed(), stack).unwrap_or_else(|error| {
                    self.tell_trouble(&error.into());
                    None
                })
            });
            let Some(next) = due.min() else { return };
            thread::sleep(next.saturating_sub(running.elapsed()));
        }
    }

    /// Releases the resources prepared for a domain that doesn't arrive.
    fn abandon(&self, record: &ArrivalRecord) -> Result<(), BindError> {
        let domains = self.domains()?;
        if domains.find(&record.domain)?.is_some() {
            domains.take_back(&record.domain)?;
        }
        self.remove_moved(&record.domain)?;
        // Its QEMU, which wrote to them, has exited.
        record.copies.iter().try_for_each(DiskCopy::discard)?;
        Ok(self.store().remove_arrival(&record.id)?)
    }

    /// Removes the constraints of a domain that is not on this host.
    pub(super) fn remove_moved(&self, domain: &Name) -> Result<(), BindError> {
        self.edit_moving(|all| match all.domains.contains_key(domain) {
            true => all.remove_moved_domain(domain),
            false => Ok(()),
        })
        .map(drop)
    }

    /// Completes arrivals interrupted by a killed vtax or a reboot: guests that no one will take are abandoned, and
    /// guests that this host owns are run.
    pub(crate) fn finish_arrivals(&self) -> Result<(), BindError> {
        // An unreadable one was already reported, and is left as it is.
        let arrivals = self.store().arrivals()?.into_iter().flatten();
        let mut finished = Ok(());
        for record in arrivals {
            let one = match record.phase {
                ArrivalPhase::Prepared if record.is_abandoned() => self.abandon(&record),
                ArrivalPhase::Prepared => Ok(()),
                ArrivalPhase::Owned => self.start_owned(&record),
            };
            finished = finished.and(one);
        }
        finished
    }

    /// Runs a guest that this host owns and that was never started here.
    fn start_owned(&self, record: &ArrivalRecord) -> Result<(), BindError> {
        let name = &record.domain;
        if !record.is_live || record.is_of_other_boot() {
            return Ok(());
        }
        let waits = |bound: &BoundDomain| {
            let is_incoming = bound.guest.as_ref().is_some_and(|guest| guest.launch.incoming);
            is_incoming && bound.started.is_none()
        };
        let Some(mut qemu) = self.domains()?.find(name)?.filter(waits).and_then(|bound| bound.qemu()) else {
            return Ok(());
        };
        if IncomingGuest::loaded(&mut qemu).is_err() {
            return Ok(());
        }
        self.run_arrived(record, self.announcements(name)).map(drop)
    }

    /// The source knows that this host owns the guest, and its QEMU there has exited.
    pub(crate) fn forget_migration(&self, id: &MigrationId) -> Result<(), BindError> {
        let Some(record) = self.store().arrival(id)?.filter(|record| record.phase == ArrivalPhase::Owned) else {
            return Ok(());
        };
        // Without its record, no one would know that it must still be started.
        self.start_owned(&record)?;
        let qemu = self.domains()?.find(&record.domain)?.and_then(|bound| bound.qemu());
        if let Some(Err(error)) = qemu.filter(|_| record.is_live).map(|qemu| qemu.lock_disks()) {
            self.tell_trouble(&error.into());
        }
        Ok(self.store().remove_arrival(id)?)
    }
}

/// Returns how the target's QEMU is started, if the guest would not notice a difference.
pub(super) fn incoming(name: &Name, here: &Launch, mut there: Launch) -> Result<Launch, BindError> {
    // The running kernel has read its parameters. Some of them describe the source's CPU; the next boot gets this one's.
    if let (Boot::Kernel { append: had, .. }, Boot::Kernel { append, .. }) = (&here.boot, &mut there.boot) {
        append.clone_from(had);
    }
    // Every QEMU has SeaBIOS, and emulates the machines of earlier ones: a newer QEMU's own is another one.
    there.qboot = there.qemu.qboot.clone().filter(|_| here.qboot.is_some());
    there.machine = here.machine.clone().or(there.machine);
    let differences: Vec<String> = here.differences(&there).iter().map(ToString::to_string).collect();
    match differences.is_empty() {
        true => Ok(Launch { incoming: true, ..there }),
        false => Err(BindError::LaunchDiffers { domain: name.clone(), differences: differences.join("; ") }),
    }
}

fn key_file(directory: &Path) -> PathBuf {
    directory.join(KEY)
}

fn write_key(directory: &Path, key: &MigrationKey) -> Result<(), BindError> {
    let path = key_file(directory);
    let written = directory::create_private_file(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, key.to_string().as_bytes()));
    written.map_err(BindError::file("write", &path))
}
