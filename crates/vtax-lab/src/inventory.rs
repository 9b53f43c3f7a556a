//! All labs of this user, and the removal of what killed processes left.

use std::{collections::HashSet, fmt, path::PathBuf};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use vtax_guest::{accel, launch::Launch, process::Qemu};
use vtax_journal::{DamagedJournal, Journal, JournalError, JournalState, Opened, Owner, Record, Snapshot, scan};
use vtax_model::{guest::Accelerator, server::ServerSpec, topology::Name, units::ByteSize};
use vtax_sys::pci::PciAddress;

use crate::{
    blueprint::Blueprint,
    dependency::Ties,
    error::LabError,
    record::LabRecord,
    site::{self, Receipt, Site},
    step::LabStep,
    world::World,
};

/// A lab in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LabSummary {
    pub name: Name,
    #[serde(flatten)]
    pub state: LabState,
    /// Who made it and since when, as far as its journal says.
    pub owner: Option<Owner>,
    pub hosts: Vec<Name>,
    pub zones: Vec<Name>,
    #[serde(default)]
    pub guests: Vec<GuestSummary>,
    /// The virtual functions, if this is a record of functions that were made by hand (`vtax io create-vf`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<MadeVfs>,
    /// Its addresses; an emulated server has none here.
    pub addresses: Option<Ipv4Net>,
}

/// A guest in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct GuestSummary {
    pub name: Name,
    pub host: Name,
    pub state: GuestState,
    /// QEMU's process, as long as it runs.
    pub pid: Option<u32>,
    pub memory: ByteSize,
    /// The host's memory that QEMU takes beside the guest's RAM, as long as QEMU runs.
    pub overhead: Option<ByteSize>,
    pub vcpus: u32,
    /// The host's CPUs that they are pinned to.
    pub cpus: Vec<u32>,
    pub accel: Accelerator,
    /// What was asked for, if this guest is an emulated server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,
    /// What it depends on, and whether it could migrate live.
    #[serde(flatten)]
    pub ties: Ties,
}

/// The state of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum GuestState {
    Running,
    Ended,
    Planned,
}

/// The state of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum LabState {
    /// A living process holds its journal.
    Alive,
    /// It stays until it is taken down by name.
    Kept,
    /// Its maker is dead; `clean` removes it.
    Abandoned,
    /// Its journal can't be read.
    Damaged {
        /// Why not, with file and line.
        why: String,
    },
}

/// The virtual functions of a record in the list of labs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MadeVfs {
    pub device: PciAddress,
    pub count: u32,
}

/// What `clean` did.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CleanReport {
    pub removed: Vec<Name>,
    pub left: Vec<LabSummary>,
    pub failures: Vec<LabError>,
    /// The labs among the removed ones that were found by their marks.
    pub notes: Vec<CleanNote>,
}

/// Why a lab was found by its marks, not by its journal.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum CleanNote {
    /// The journal can't be read. It is kept under another name.
    Damaged { lab: Name, error: JournalError, kept: PathBuf },
    /// The journal didn't know all that was there.
    Lost { lab: Name },
    /// There was no journal.
    Missing { lab: Name },
}

impl fmt::Display for CleanNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_marks = "what the lab had made was found by its marks, and removed";
        match self {
            CleanNote::Damaged { lab, error, kept } => write!(
                f,
                "lab {lab}: its journal can't be read ({error}); {by_marks}; the file is kept as {}, remove it when you don't \
                 need it",
                kept.display()
            ),
            CleanNote::Lost { lab } => write!(f, "lab {lab}: its journal has lost lines; {by_marks}"),
            CleanNote::Missing { lab } => write!(f, "lab {lab}: its journal is gone; {by_marks}"),
        }
    }
}

/// All labs of this user, by name.
pub fn list(world: &World) -> Result<Vec<LabSummary>, LabError> {
    let found = scan::<LabStep>(&world.journals())?;
    Ok(found.into_iter().filter_map(|(id, snapshot)| Some(summary(Name::try_from(id).ok()?, &snapshot))).collect())
}

/// Removes labs whose process was killed, or only the one named `only`, and what killed probes of KVM left. The report has what could not be removed.
pub fn clean(world: &World, only: Option<&Name>) -> Result<CleanReport, LabError> {
    accel::remove_abandoned();
    let mut report = CleanReport::default();
    let is_wanted = |name: &Name| only.is_none_or(|only| only == name);
    let journals = scan::<LabStep>(&world.journals())?;
    let has_journal: HashSet<String> = journals.iter().map(|(id, _)| id.clone()).collect();
    for (id, snapshot) in journals {
        let Some(name) = Name::try_from(id).ok().filter(is_wanted) else { continue };
        let summary = summary(name.clone(), &snapshot);
        match (snapshot, summary.state) {
            (Ok(_), LabState::Abandoned) | (Err(JournalError::Corrupt { .. }), _) => {
                report.note(&name, remove(world, &name));
            }
            (Err(error), _) => report.failures.push(error.into()),
            (Ok(_), state) => report.left.push(LabSummary { state, ..summary }),
        }
    }
    for name in world.lab_names()?.iter().filter(|name| is_wanted(name) && !has_journal.contains(name.as_str())) {
        if let Some(removed) = remove_without_journal(world, name).transpose() {
            report.note(name, removed.map(Some));
        }
    }
    Ok(report)
}

impl CleanReport {
    fn note(&mut self, name: &Name, removed: Result<Option<CleanNote>, LabError>) {
        match removed {
            Ok(note) => {
                self.removed.push(name.clone());
                self.notes.extend(note);
            }
            // A living process has it, or another vtax has removed it meanwhile.
            Err(LabError::Journal(JournalError::Busy { .. })) => {
                self.left.push(LabSummary { state: LabState::Alive, ..unknown(name.clone()) });
            }
            Err(LabError::Journal(JournalError::Missing { .. })) => {}
            Err(error) => self.failures.push(error),
        }
    }
}

/// Makes this process the keeper of an ordinary user's kept labs. Returns when no lab needs it any more. A lab whose
/// journal is damaged or gone needs it until it is cleaned: its marks are in the keeper's namespaces.
pub fn keeper_main() -> Result<(), LabError> {
    World::keep(|world| {
        let labs = list(world)?;
        let is_known = |name: &Name| labs.iter().any(|lab| lab.name == *name);
        Ok(labs.iter().any(|lab| lab.state != LabState::Abandoned) || !world.lab_names()?.iter().all(is_known))
    })
}

/// Removes an abandoned lab, or one whose journal is damaged. The note says if the journal didn't tell all.
fn remove(world: &World, name: &Name) -> Result<Option<CleanNote>, LabError> {
    let mut site = Site::new(name, &world.lab_directory(name));
    // This comes first: opening a journal cuts off a torn line, and a living lab's stays as it is.
    site.claim()?;
    match Journal::<LabStep>::open_any(&world.journals(), name.as_str())? {
        Opened::Whole(journal) => {
            let has_lost = site::undo(journal, &mut site)?;
            Ok(has_lost.then(|| CleanNote::Lost { lab: name.clone() }))
        }
        Opened::Damaged(damaged) => remove_by_marks(name, &mut site, damaged).map(Some),
    }
}

fn remove_by_marks(name: &Name, site: &mut Site, damaged: DamagedJournal) -> Result<CleanNote, LabError> {
    site.sweep()?;
    let (error, kept) = damaged.set_aside()?;
    Ok(CleanNote::Damaged { lab: name.clone(), error, kept })
}

/// Removes a lab that has a directory and no journal. It gets an empty journal meanwhile, so that nobody else takes
/// its name. None if there is nothing to remove.
fn remove_without_journal(world: &World, name: &Name) -> Result<Option<CleanNote>, LabError> {
    let journal = match Journal::create(&world.journals(), name.as_str(), LabRecord::KIND, &()) {
        Err(JournalError::Taken { .. } | JournalError::Corrupt { .. } | JournalError::Format { .. }) => {
            return Ok(None);
        }
        journal => journal?,
    };
    let mut site = Site::new(name, &world.lab_directory(name));
    if let Err(error) = site.claim() {
        journal.discard_if_empty()?;
        return Err(error);
    }
    let has_lost = site::undo(journal, &mut site)?;
    Ok(has_lost.then(|| CleanNote::Missing { lab: name.clone() }))
}

fn summary(name: Name, snapshot: &Result<Snapshot<LabStep>, JournalError>) -> LabSummary {
    let none = unknown(name);
    let snapshot = match snapshot {
        Ok(snapshot) => snapshot,
        Err(error) => return LabSummary { state: LabState::Damaged { why: error.to_string() }, ..none },
    };
    let record = LabRecord::read(&snapshot.id, snapshot.header.as_ref()).ok();
    let state = record.as_ref().map_or(snapshot.state, |record| record.state(snapshot.state)).into();
    let owner = snapshot.header.as_ref().map(|header| header.owner.clone());
    match record.map(|record| record.blueprint) {
        Some(blueprint) => LabSummary {
            state,
            owner,
            guests: guests(&blueprint, &snapshot.records),
            functions: functions(&blueprint, &snapshot.records),
            hosts: blueprint.hosts,
            zones: blueprint.zones,
            addresses: Some(blueprint.addresses).filter(|range| !range.addr().is_unspecified()),
            ..none
        },
        None => LabSummary { state, owner, ..none },
    }
}

/// A lab of which nothing but its name is known.
fn unknown(name: Name) -> LabSummary {
    LabSummary {
        name,
        state: LabState::Abandoned,
        owner: None,
        hosts: Vec::new(),
        zones: Vec::new(),
        guests: Vec::new(),
        functions: None,
        addresses: None,
    }
}

/// A record of virtual functions is a lab without hosts.
fn functions(blueprint: &Blueprint, records: &[Record<LabStep>]) -> Option<MadeVfs> {
    match records.first().map(|record| &record.step) {
        Some(LabStep::CreateVfs { device, count, .. }) if blueprint.hosts.is_empty() => {
            Some(MadeVfs { device: *device, count: *count })
        }
        _ => None,
    }
}

fn guests(blueprint: &Blueprint, records: &[Record<LabStep>]) -> Vec<GuestSummary> {
    let steps = || records.iter().map(|record| &record.step);
    let of = |record| guest(record, |launch| Ties::of(launch, blueprint, steps()));
    records.iter().filter_map(of).collect()
}

fn guest(record: &Record<LabStep>, ties: impl Fn(&Launch) -> Ties) -> Option<GuestSummary> {
    let LabStep::StartGuest { host, launch, pins } = &record.step else { return None };
    let process = record.progress.receipt().and_then(Receipt::process);
    let qemu = process.map(|process| Qemu::attach((**launch).clone(), process)).filter(Qemu::is_alive);
    let state = match (process, &qemu) {
        (_, Some(_)) => GuestState::Running,
        (Some(_), None) => GuestState::Ended,
        (None, None) => GuestState::Planned,
    };
    Some(GuestSummary {
        name: launch.name.clone(),
        host: host.clone(),
        state,
        pid: qemu.as_ref().map(|qemu| qemu.process().pid.0),
        memory: launch.memory,
        overhead: qemu.and_then(|qemu| qemu.overhead().ok()),
        vcpus: launch.vcpus,
        cpus: pins.cpus.clone(),
        accel: launch.accel,
        server: launch.server,
        ties: ties(launch),
    })
}

impl From<JournalState> for LabState {
    fn from(state: JournalState) -> LabState {
        match state {
            JournalState::Alive => LabState::Alive,
            JournalState::Kept => LabState::Kept,
            JournalState::Abandoned => LabState::Abandoned,
        }
    }
}
