//! Tables of labs and guests.

use comfy_table::{Table, presets};
use jiff::Timestamp;
use vtax_journal::Owner;
use vtax_lab::{GuestState, GuestSummary, LabState, LabSummary};

const MIB: u64 = 1 << 20;

/// The labs, and behind them their guests if there are any.
pub(super) fn labs(labs: &[LabSummary]) -> String {
    let guests = guests_table(labs);
    let labs = labs_table(labs);
    if guests.is_empty() { labs } else { format!("{labs}\n{guests}") }
}

fn labs_table(labs: &[LabSummary]) -> String {
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
            lab.owner.as_ref().map_or("-".to_owned(), |owner| format!("{} (pid {})", owner.command, owner.pid)),
        ]);
    }
    format!("{}\n", table.trim_fmt())
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
fn guests_table(labs: &[LabSummary]) -> String {
    let mut table = table(["GUEST", "LAB", "HOST", "STATE", "PID", "MEMORY", "BESIDE", "VCPUS", "CPUS", "ACCEL"]);
    for (lab, guest) in labs.iter().flat_map(|lab| lab.guests.iter().map(move |guest| (lab, guest))) {
        table.add_row([
            guest.name.to_string(),
            lab.name.to_string(),
            guest.host.to_string(),
            guest_state(guest.state).to_owned(),
            guest.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            guest.memory.to_string(),
            guest.overhead.map_or("-".to_owned(), |overhead| format!("{} MiB", overhead.0.div_ceil(MIB))),
            guest.vcpus.to_string(),
            pins(guest),
            guest.accel.to_string(),
        ]);
    }
    match table.is_empty() {
        true => String::new(),
        false => format!("{}\nbeside: what QEMU takes of the host's memory beside the guest's\n", table.trim_fmt()),
    }
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

pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}
