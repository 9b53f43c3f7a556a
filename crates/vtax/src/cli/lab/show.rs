//! Tables of labs and guests.

use std::fmt::Display;

use jiff::Timestamp;
use vtax_journal::Owner;
use vtax_lab::{GuestState, GuestSummary, HoldingSummary, LabState, dependency::Ties};
use vtax_model::server::ServerSpec;
use vtax_report::Column;

use crate::cli::lists::list;

const MIB: u64 = 1 << 20;

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
    let row = |lab: &&HoldingSummary| {
        [
            lab.name.to_string(),
            state(&lab.state).to_owned(),
            lab.hosts().len().to_string(),
            lab.zones().len().to_string(),
            lab.guests().len().to_string(),
            or_dash(lab.addresses()),
            or_dash(lab.owner.as_ref().and_then(since)),
            or_dash(lab.owner.as_ref().map(maker)),
        ]
    };
    let columns = [
        Column::left("LAB"),
        Column::left("STATE"),
        Column::right("HOSTS"),
        Column::right("ZONES"),
        Column::right("GUESTS"),
        Column::left("ADDRESSES"),
        Column::wrapped("SINCE"),
        Column::wrapped("MADE BY"),
    ];
    list(columns, labs.iter().map(row))
}

fn or_dash(known: Option<impl Display>) -> String {
    known.map_or("-".to_owned(), |known| known.to_string())
}

/// Returns the command without the directory of the program, which `--json` includes.
fn maker(owner: &Owner) -> String {
    let (program, words) = owner.command.split_once(' ').unwrap_or((&owner.command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{} (pid {})", format!("{program} {words}").trim_end(), owner.pid)
}

fn since(owner: &Owner) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(owner.since).ok()?).ok()
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
    let row = |(lab, guest): (&HoldingSummary, &GuestSummary)| {
        [
            guest.name.to_string(),
            lab.name.to_string(),
            guest.host.to_string(),
            guest_state(guest.state).to_owned(),
            or_dash(guest.pid),
            guest.memory.to_string(),
            beside(guest),
            guest.vcpus.to_string(),
            pins(guest),
            guest.accel.to_string(),
        ]
    };
    let columns = [
        Column::left("GUEST"),
        Column::left("LAB"),
        Column::left("HOST"),
        Column::left("STATE"),
        Column::right("PID"),
        Column::right("MEMORY"),
        Column::right("OVERHEAD"),
        Column::right("VCPUS"),
        Column::left("CPUS"),
        Column::left("ACCEL"),
    ];
    let table = list(columns, guests(labs).map(row));
    match table.is_empty() {
        true => table,
        false => table + "overhead: host memory used by QEMU in addition to the guest's\n",
    }
}

fn guests<'a>(labs: &'a [&HoldingSummary]) -> impl Iterator<Item = (&'a HoldingSummary, &'a GuestSummary)> {
    labs.iter().flat_map(|lab| lab.guests().iter().map(move |guest| (*lab, guest)))
}

fn ties_table(labs: &[&HoldingSummary]) -> String {
    let row = |(lab, guest): (&HoldingSummary, &GuestSummary)| {
        let [on, migration] = ties(&guest.ties);
        [guest.name.to_string(), lab.name.to_string(), on, migration]
    };
    list(
        [
            Column::left("GUEST"),
            Column::left("LAB"),
            Column::wrapped("DEPENDS ON"),
            Column::wrapped("COULD MIGRATE LIVE"),
        ],
        guests(labs).map(row),
    )
}

pub(super) fn ties(ties: &Ties) -> [String; 2] {
    let on: Vec<String> = ties.depends_on.iter().map(ToString::to_string).collect();
    [or_dash((!on.is_empty()).then(|| on.join(", "))), ties.migration.to_string()]
}

/// Returns a table of the virtual functions from `vtax io create-vf`.
fn functions_table(records: &[&HoldingSummary]) -> String {
    let row = |record: &&HoldingSummary| {
        let made = record.functions()?;
        Some([
            made.device.to_string(),
            made.count.to_string(),
            state(&record.state).to_owned(),
            record.name.to_string(),
            or_dash(record.owner.as_ref().and_then(since)),
            or_dash(record.owner.as_ref().map(maker)),
        ])
    };
    let columns = [
        Column::left("FUNCTIONS OF"),
        Column::right("VFS"),
        Column::left("STATE"),
        Column::left("RECORD"),
        Column::wrapped("SINCE"),
        Column::wrapped("MADE BY"),
    ];
    list(columns, records.iter().filter_map(row))
}

/// Returns a table of the files that runs have created to measure them as disks.
fn files_table(records: &[&HoldingSummary]) -> String {
    let row = |record: &&HoldingSummary| {
        let made = record.files()?;
        Some([
            made.run.clone(),
            state(&record.state).to_owned(),
            record.name.to_string(),
            or_dash(record.owner.as_ref().and_then(since)),
            or_dash(record.owner.as_ref().map(maker)),
        ])
    };
    let columns = [
        Column::left("FILES OF"),
        Column::left("STATE"),
        Column::left("RECORD"),
        Column::wrapped("SINCE"),
        Column::wrapped("MADE BY"),
    ];
    list(columns, records.iter().filter_map(row))
}

/// Returns a table of the labs that are emulated servers, with their specifications.
pub(in crate::cli) fn servers<'a>(servers: impl Iterator<Item = (&'a ServerSpec, &'a HoldingSummary)>) -> String {
    let row = |(spec, lab): (&ServerSpec, &HoldingSummary)| {
        let guest = lab.guests().first()?;
        Some([
            spec.to_string(),
            lab.name.to_string(),
            state(&lab.state).to_owned(),
            guest_state(guest.state).to_owned(),
            or_dash(guest.pid),
            guest.memory.to_string(),
            beside(guest),
            guest.accel.to_string(),
            or_dash(lab.owner.as_ref().and_then(since)),
            or_dash(lab.owner.as_ref().map(maker)),
        ])
    };
    let columns = [
        Column::left("SERVER"),
        Column::left("LAB"),
        Column::left("STATE"),
        Column::left("RUNS"),
        Column::right("PID"),
        Column::right("MEMORY"),
        Column::right("OVERHEAD"),
        Column::left("ACCEL"),
        Column::wrapped("SINCE"),
        Column::wrapped("MADE BY"),
    ];
    list(columns, servers.filter_map(row))
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
