//! All labs of this user, and the removal of what killed processes left.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use vtax_journal::{Journal, JournalError, JournalState, Owner, Record, Snapshot, scan};
use vtax_model::{guest::Accelerator, server::ServerSpec, topology::Name, units::ByteSize};
use vtax_sys::pci::PciAddress;

use crate::{
    blueprint::Blueprint,
    dependency::Ties,
    error::LabError,
    guest::{accel, launch::Launch, process::Qemu},
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
    for (id, snapshot) in scan::<LabStep>(&world.journals())? {
        let Ok(name) = Name::try_from(id) else { continue };
        if only.is_some_and(|only| *only != name) {
            continue;
        }
        let summary = summary(name.clone(), &snapshot);
        match (snapshot, summary.state) {
            (Err(error), _) => report.failures.push(error.into()),
            (Ok(_), LabState::Abandoned) => match remove(world, &name) {
                Ok(()) => report.removed.push(name),
                // Another vtax has taken it over or removed it meanwhile.
                Err(LabError::Journal(JournalError::Busy { .. } | JournalError::Missing { .. })) => {}
                Err(error) => report.failures.push(error),
            },
            (Ok(_), state) => report.left.push(LabSummary { state, ..summary }),
        }
    }
    Ok(report)
}

/// Makes this process the keeper of an ordinary user's kept labs. Returns when no lab needs it any more.
pub fn keeper_main() -> Result<(), LabError> {
    World::keep(|world| Ok(list(world)?.iter().any(|lab| matches!(lab.state, LabState::Alive | LabState::Kept))))
}

fn remove(world: &World, name: &Name) -> Result<(), LabError> {
    let journal = Journal::<LabStep>::open(&world.journals(), name.as_str())?;
    let mut site = Site::new(name, &world.lab_directory(name));
    site::undo(journal, &mut site)
}

fn summary(name: Name, snapshot: &Result<Snapshot<LabStep>, JournalError>) -> LabSummary {
    let none = LabSummary {
        name,
        state: LabState::Abandoned,
        owner: None,
        hosts: Vec::new(),
        zones: Vec::new(),
        guests: Vec::new(),
        functions: None,
        addresses: None,
    };
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
