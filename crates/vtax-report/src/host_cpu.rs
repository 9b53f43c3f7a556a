//! What guests cost, seen from the machine that they are on: one line for each cell.

use vtax_model::{
    guest::Accelerator,
    result::{CellRecord, Estimate, GuestClock, HostCpuSummary, ResultDocument},
};

use super::{
    labels::Labels,
    number::{counted, three_digits},
    view::{Group, Section, SectionPart, Table, TableRow, Value},
};

/// None if no row has guests.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let records: Vec<&CellRecord> = document.cells.iter().filter(|record| summary(record).is_some()).collect();
    let (transactions, streams): (Vec<&CellRecord>, Vec<&CellRecord>) =
        records.iter().copied().partition(|record| record.cell.kind().is_transactions());
    let tables = [table(&transactions, "µs per transaction"), table(&streams, "µs per KB")];
    let mut parts: Vec<SectionPart> = tables.into_iter().flatten().map(SectionPart::Table).collect();
    let all: Vec<&HostCpuSummary> = records.iter().filter_map(|record| summary(record)).collect();
    parts.push(SectionPart::Paragraph(caveat(all.first()?).into()));
    parts.push(SectionPart::Paragraph(reading(&all)));
    parts.extend(document.guest_clocks.iter().filter(|clock| clock.is_much()).map(drift).map(SectionPart::Paragraph));
    Some(Section::of("CPU, from the host", parts))
}

fn summary(record: &CellRecord) -> Option<&HostCpuSummary> {
    record.summary.as_ref()?.host_cpu.as_ref()
}

/// None without cells.
fn table(records: &[&CellRecord], unit: &str) -> Option<Table> {
    let first = summary(records.first()?)?;
    let guest = match first.accel {
        Accelerator::Kvm => "guest",
        Accelerator::Tcg => "guest (emulated)",
    };
    let exits = records.iter().filter_map(|record| summary(record)).any(|summary| summary.vm_exits.is_some());
    let labels = Labels::of_records(records);
    let heads = std::iter::once("row".to_owned()).chain(labels.heads());
    let counts = exits.then_some("exits").into_iter().chain(["interrupts"]);
    Some(Table {
        labels: heads.collect(),
        groups: vec![
            Group::right(unit, [guest, "vhost", "QEMU", "host stack"]),
            Group::right(unit.replace("µs ", ""), counts),
        ],
        rows: records.iter().filter_map(|record| line(record, &labels, exits)).collect(),
        ..Table::default()
    })
}

fn line(record: &CellRecord, labels: &Labels, exits: bool) -> Option<TableRow> {
    let HostCpuSummary { guest, vhost, qemu, host_stack, vm_exits, interrupts, .. } = summary(record)?;
    let figure = |estimate: &Estimate| Value::Figure(estimate.mean);
    // A row without vhost has no thread of that name.
    let vhost = if vhost.mean > 0.0 { figure(vhost) } else { Value::Absent };
    let exits = exits.then(|| vm_exits.as_ref().map_or(Value::Absent, figure));
    let figures =
        [figure(guest), vhost, figure(qemu), figure(host_stack)].into_iter().chain(exits).chain([figure(interrupts)]);
    let labels = std::iter::once(record.cell.row.to_string()).chain(labels.line(&record.cell));
    Some(TableRow::new(labels.collect(), figures))
}

fn caveat(summary: &HostCpuSummary) -> &'static str {
    match summary.accel {
        Accelerator::Kvm => {
            "The guest's time is what KVM ran of its instructions, which the kernel counts by its timer tick; what its \
             vCPUs' threads did beside is QEMU's."
        }
        Accelerator::Tcg => {
            "The guests ran under TCG: what stands as the guest's time is QEMU translating and emulating its \
             instructions, many times what a CPU would need for them, and no share of it is the cost of a real guest."
        }
    }
}

fn reading(all: &[&HostCpuSummary]) -> String {
    let whole = all.iter().any(|summary| summary.whole_samples);
    let window = if whole { " Whole samples were observed, their warm-up too." } else { "" };
    format!(
        "The host stack is the time of the whole machine in hardware and software interrupts, by ticks. The columns \
         don't add up to the CPU of the tables above: an interrupt that was served on a thread's time is in that \
         thread's figure too, unless the kernel keeps it apart, and the system calls of an end that runs on the host \
         itself are in none of them.{window}"
    )
}

fn drift(clock: &GuestClock) -> String {
    let way = if clock.drift_ppm > 0.0 { "fast" } else { "slow" };
    let seconds = clock.seconds.round() as u32;
    format!(
        "The clock of guest {} is {} ppm (± {}) {way} against the host's, over {}: times that were taken inside are \
         off by as much.",
        clock.guest,
        three_digits(clock.drift_ppm.abs()),
        three_digits(clock.uncertainty_ppm),
        counted(seconds, "second"),
    )
}
