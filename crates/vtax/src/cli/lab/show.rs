//! Tables of labs and guests.

use std::fmt::Display;

use jiff::Timestamp;
use vtax_journal::Owner;
use vtax_lab::{GuestState, GuestSummary, HoldingSummary, LabState, MadeFiles, MadeVfs, dependency::Ties};
use vtax_model::server::ServerSpec;

use crate::cli::lists::{ListColumn, list_of};

const MIB: u64 = 1 << 20;

type LabColumn<'a> = ListColumn<&'a HoldingSummary>;
type GuestColumn<'a> = ListColumn<(&'a HoldingSummary, &'a GuestSummary)>;
type FunctionsColumn<'a> = ListColumn<(MadeVfs, &'a HoldingSummary)>;
type FilesColumn<'a> = ListColumn<(&'a MadeFiles, &'a HoldingSummary)>;
type ServerColumn<'a> = ListColumn<(&'a ServerSpec, &'a HoldingSummary, &'a GuestSummary)>;

/// Returns tables of the labs, their guests with dependencies, virtual functions created by hand, and the files of
/// runs, as far as there are any.
pub(super) fn labs(held: &[HoldingSummary]) -> String {
    let (functions, others): (Vec<&HoldingSummary>, Vec<&HoldingSummary>) =
        held.iter().partition(|held| held.functions().is_some());
    let (files, labs): (Vec<&HoldingSummary>, Vec<&HoldingSummary>) =
        others.into_iter().partition(|held| held.files().is_some());
    let tables =
        [labs_table(&labs), guests_table(&labs), ties_table(&labs), functions_table(&functions), files_table(&files)];
    tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
}

fn labs_table(labs: &[&HoldingSummary]) -> String {
    let columns = [
        LabColumn::left("LAB", |lab| lab.name.to_string()),
        LabColumn::left("STATE", |lab| state(&lab.state).to_owned()),
        LabColumn::right("HOSTS", |lab| lab.hosts().len().to_string()),
        LabColumn::right("ZONES", |lab| lab.zones().len().to_string()),
        LabColumn::right("GUESTS", |lab| lab.guests().len().to_string()),
        LabColumn::left("ADDRESSES", |lab| or_dash(lab.addresses())),
        LabColumn::wrapped("SINCE", |lab| since(lab)),
        LabColumn::wrapped("CREATED BY", |lab| maker(lab)),
    ];
    list_of(columns, labs.iter().copied())
}

fn or_dash(known: Option<impl Display>) -> String {
    known.map_or("-".to_owned(), |known| known.to_string())
}

/// Returns the command without the directory of the program, which `--json` includes.
fn maker(lab: &HoldingSummary) -> String {
    let of_owner = |owner: &Owner| {
        let (program, words) = owner.command.split_once(' ').unwrap_or((&owner.command, ""));
        let program = program.rsplit('/').next().unwrap_or(program);
        format!("{} (pid {})", format!("{program} {words}").trim_end(), owner.pid)
    };
    or_dash(lab.owner.as_ref().map(of_owner))
}

fn since(lab: &HoldingSummary) -> String {
    let seconds = lab.owner.as_ref().and_then(|owner| i64::try_from(owner.since).ok());
    or_dash(seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()))
}

pub(super) fn state(state: &LabState) -> &'static str {
    match state {
        LabState::Alive => "alive",
        LabState::Kept => "kept",
        LabState::Abandoned => "abandoned",
        LabState::Damaged { .. } => "damaged",
    }
}

fn guests_table(labs: &[&HoldingSummary]) -> String {
    let columns = [
        GuestColumn::left("GUEST", |(_, guest)| guest.name.to_string()),
        GuestColumn::left("LAB", |(lab, _)| lab.name.to_string()),
        GuestColumn::left("HOST", |(_, guest)| guest.host.to_string()),
        GuestColumn::left("STATE", |(_, guest)| guest_state(guest.state).to_owned()),
        GuestColumn::right("PID", |(_, guest)| or_dash(guest.pid)),
        GuestColumn::right("MEMORY", |(_, guest)| guest.memory.to_string()),
        GuestColumn::right("OVERHEAD", |(_, guest)| beside(guest)),
        GuestColumn::right("VCPUS", |(_, guest)| guest.vcpus.to_string()),
        GuestColumn::left("CPUS", |(_, guest)| pins(guest)),
        GuestColumn::left("ACCEL", |(_, guest)| guest.accel.to_string()),
    ];
    let table = list_of(columns, guests(labs));
    match table.is_empty() {
        true => table,
        false => table + "overhead: host memory used by QEMU in addition to the guest's\n",
    }
}

fn guests<'a>(labs: &'a [&HoldingSummary]) -> impl Iterator<Item = (&'a HoldingSummary, &'a GuestSummary)> {
    labs.iter().flat_map(|lab| lab.guests().iter().map(move |guest| (*lab, guest)))
}

fn ties_table(labs: &[&HoldingSummary]) -> String {
    let columns = [
        GuestColumn::left("GUEST", |(_, guest)| guest.name.to_string()),
        GuestColumn::left("LAB", |(lab, _)| lab.name.to_string()),
        GuestColumn::wrapped("DEPENDS ON", |(_, guest)| depends_on(&guest.ties)),
        GuestColumn::wrapped("LIVE MIGRATION", |(_, guest)| guest.ties.migration.to_string()),
    ];
    list_of(columns, guests(labs))
}

pub(super) fn depends_on(ties: &Ties) -> String {
    let on: Vec<String> = ties.depends_on.iter().map(ToString::to_string).collect();
    or_dash((!on.is_empty()).then(|| on.join(", ")))
}

/// Returns a table of the virtual functions from `vtax io create-vf`.
fn functions_table(records: &[&HoldingSummary]) -> String {
    let columns = [
        FunctionsColumn::left("FUNCTIONS OF", |(made, _)| made.device.to_string()),
        FunctionsColumn::right("VFS", |(made, _)| made.count.to_string()),
        FunctionsColumn::left("STATE", |(_, record)| state(&record.state).to_owned()),
        FunctionsColumn::left("RECORD", |(_, record)| record.name.to_string()),
        FunctionsColumn::wrapped("SINCE", |(_, record)| since(record)),
        FunctionsColumn::wrapped("CREATED BY", |(_, record)| maker(record)),
    ];
    list_of(columns, records.iter().filter_map(|record| Some((record.functions()?, *record))))
}

/// Returns a table of the files that runs have created to measure them as disks.
fn files_table(records: &[&HoldingSummary]) -> String {
    let columns = [
        FilesColumn::left("FILES OF", |(made, _)| made.run.clone()),
        FilesColumn::left("STATE", |(_, record)| state(&record.state).to_owned()),
        FilesColumn::left("RECORD", |(_, record)| record.name.to_string()),
        FilesColumn::wrapped("SINCE", |(_, record)| since(record)),
        FilesColumn::wrapped("CREATED BY", |(_, record)| maker(record)),
    ];
    list_of(columns, records.iter().filter_map(|record| Some((record.files()?, *record))))
}

/// Returns a table of the labs that are emulated servers, with their specifications.
pub(in crate::cli) fn servers<'a>(servers: impl Iterator<Item = (&'a ServerSpec, &'a HoldingSummary)>) -> String {
    let columns = [
        ServerColumn::left("SERVER", |(spec, _, _)| spec.to_string()),
        ServerColumn::left("LAB", |(_, lab, _)| lab.name.to_string()),
        ServerColumn::left("STATE", |(_, lab, _)| state(&lab.state).to_owned()),
        ServerColumn::left("RUNS", |(_, _, guest)| guest_state(guest.state).to_owned()),
        ServerColumn::right("PID", |(_, _, guest)| or_dash(guest.pid)),
        ServerColumn::right("MEMORY", |(_, _, guest)| guest.memory.to_string()),
        ServerColumn::right("OVERHEAD", |(_, _, guest)| beside(guest)),
        ServerColumn::left("ACCEL", |(_, _, guest)| guest.accel.to_string()),
        ServerColumn::wrapped("SINCE", |(_, lab, _)| since(lab)),
        ServerColumn::wrapped("CREATED BY", |(_, lab, _)| maker(lab)),
    ];
    list_of(columns, servers.filter_map(|(spec, lab)| Some((spec, lab, lab.guests().first()?))))
}

fn beside(guest: &GuestSummary) -> String {
    or_dash(guest.overhead.map(|overhead| format!("{} MiB", overhead.0.div_ceil(MIB))))
}

fn guest_state(state: GuestState) -> &'static str {
    match state {
        GuestState::Running => "running",
        GuestState::Ended => "ended",
        GuestState::Planned => "planned",
    }
}

fn pins(guest: &GuestSummary) -> String {
    match guest.cpus.as_slice() {
        [] => "any".to_owned(),
        cpus => cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}
