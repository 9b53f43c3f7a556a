//! Tables of labs and guests.

use comfy_table::Table;
use jiff::Timestamp;
use vtax_journal::Owner;
use vtax_lab::{GuestState, GuestSummary, LabState, LabSummary, dependency::Ties};
use vtax_model::server::ServerSpec;

use crate::cli::lists::{self, table};

const MIB: u64 = 1 << 20;

/// The labs, and behind them their guests, those guests' ties, and virtual functions that were made by
/// hand, as far as there are any.
pub(super) fn labs(labs: &[LabSummary]) -> String {
    let (functions, labs): (Vec<&LabSummary>, Vec<&LabSummary>) = labs.iter().partition(|lab| lab.functions.is_some());
    let tables = [labs_table(&labs), guests_table(&labs), ties_table(&labs), functions_table(&functions)];
    tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
}

fn labs_table(labs: &[&LabSummary]) -> String {
    let mut table = table(["LAB", "STATE", "HOSTS", "ZONES", "GUESTS", "ADDRESSES", "SINCE", "MADE BY"]);
    for lab in labs {
        table.add_row([
            lab.name.to_string(),
            state(&lab.state).to_owned(),
            lab.hosts.len().to_string(),
            lab.zones.len().to_string(),
            lab.guests.len().to_string(),
            lab.addresses.map_or("-".to_owned(), |net| net.to_string()),
            lab.owner.as_ref().map_or("-".to_owned(), since),
            lab.owner.as_ref().map_or("-".to_owned(), maker),
        ]);
    }
    shown(table, &[6, 7])
}

/// Empty without lines.
fn shown(table: Table, wide: &[usize]) -> String {
    if table.is_empty() { String::new() } else { lists::text(table, wide) }
}

/// The command without the folder of the program, which `--json` has.
fn maker(owner: &Owner) -> String {
    let (program, words) = owner.command.split_once(' ').unwrap_or((&owner.command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{} (pid {})", format!("{program} {words}").trim_end(), owner.pid)
}

fn since(owner: &Owner) -> String {
    let time = i64::try_from(owner.since).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or("-".to_owned(), |time| time.to_string())
}

pub(super) fn state(state: &LabState) -> &'static str {
    match state {
        LabState::Alive => "alive",
        LabState::Kept => "kept",
        LabState::Abandoned => "abandoned",
        LabState::Damaged { .. } => "damaged",
    }
}

/// Empty if there are none.
fn guests_table(labs: &[&LabSummary]) -> String {
    let mut table = table(["GUEST", "LAB", "HOST", "STATE", "PID", "MEMORY", "BESIDE", "VCPUS", "CPUS", "ACCEL"]);
    for (lab, guest) in labs.iter().flat_map(|lab| lab.guests.iter().map(move |guest| (lab, guest))) {
        table.add_row([
            guest.name.to_string(),
            lab.name.to_string(),
            guest.host.to_string(),
            guest_state(guest.state).to_owned(),
            guest.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            guest.memory.to_string(),
            beside(guest),
            guest.vcpus.to_string(),
            pins(guest),
            guest.accel.to_string(),
        ]);
    }
    match table.is_empty() {
        true => String::new(),
        false => lists::text(table, &[]) + "beside: the host's memory that QEMU takes beside the guest's\n",
    }
}

/// What guests depend on; empty if there are none.
fn ties_table(labs: &[&LabSummary]) -> String {
    let mut table = table(["GUEST", "LAB", "DEPENDS ON", "COULD MIGRATE LIVE"]);
    for (lab, guest) in labs.iter().flat_map(|lab| lab.guests.iter().map(move |guest| (lab, guest))) {
        table.add_row([vec![guest.name.to_string(), lab.name.to_string()], ties(&guest.ties)].concat());
    }
    shown(table, &[2, 3])
}

pub(super) fn ties(ties: &Ties) -> Vec<String> {
    let on: Vec<String> = ties.depends_on.iter().map(ToString::to_string).collect();
    vec![if on.is_empty() { "-".to_owned() } else { on.join(", ") }, ties.migration.to_string()]
}

/// What `vtax io create-vf` made.
fn functions_table(records: &[&LabSummary]) -> String {
    let mut table = table(["FUNCTIONS OF", "VFS", "STATE", "RECORD", "SINCE", "MADE BY"]);
    for record in records {
        let Some(made) = record.functions else { continue };
        table.add_row([
            made.device.to_string(),
            made.count.to_string(),
            state(&record.state).to_owned(),
            record.name.to_string(),
            record.owner.as_ref().map_or("-".to_owned(), since),
            record.owner.as_ref().map_or("-".to_owned(), maker),
        ]);
    }
    shown(table, &[4, 5])
}

/// The labs that are emulated servers, with what kind they are.
pub(in crate::cli) fn servers<'a>(servers: impl Iterator<Item = (&'a ServerSpec, &'a LabSummary)>) -> String {
    let mut table = table(["SERVER", "LAB", "STATE", "RUNS", "PID", "MEMORY", "BESIDE", "ACCEL", "SINCE", "MADE BY"]);
    for (spec, lab) in servers {
        let Some(guest) = lab.guests.first() else { continue };
        table.add_row([
            spec.to_string(),
            lab.name.to_string(),
            state(&lab.state).to_owned(),
            guest_state(guest.state).to_owned(),
            guest.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            guest.memory.to_string(),
            beside(guest),
            guest.accel.to_string(),
            lab.owner.as_ref().map_or("-".to_owned(), since),
            lab.owner.as_ref().map_or("-".to_owned(), maker),
        ]);
    }
    lists::text(table, &[8, 9])
}

fn beside(guest: &GuestSummary) -> String {
    guest.overhead.map_or("-".to_owned(), |overhead| format!("{} MiB", overhead.0.div_ceil(MIB)))
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
