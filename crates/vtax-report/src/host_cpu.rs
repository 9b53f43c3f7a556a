//! Cost of guests and of relays as seen from their host: one line for each cell.

use vtax_model::{
    guest::Accelerator,
    metric::{FigureUnit, Metric, SampleFigure},
    result::{CellRecord, Estimate, GuestClock, HostCpuSummary, ResultDocument, UnitEstimate},
    study::{DiskRow, Row},
    workload::WorkUnit,
};
use vtax_plot::{Heading, Quantity, Stacked, StackedRow};

use super::{
    column_unit::ColumnUnit,
    labels::{self, Labels},
    number::{counted, three_digits},
    view::{Group, Section, SectionPart, Table, TableRow, Value},
};

/// Part of the host's CPU time.
pub(crate) struct Part {
    head: &'static str,
    of: PartSource,
    /// Set if other parts already include this time.
    is_share: bool,
}

#[derive(Clone, Copy)]
enum PartSource {
    /// Time in µs, per transaction or per KB.
    Host(fn(&HostCpuSummary) -> Option<Estimate>),
    /// Time of fio's threads where the host itself measures. In a guest they are part of the guest's time.
    OwnThreads,
}

const fn part(head: &'static str, of: fn(&HostCpuSummary) -> Option<Estimate>) -> Part {
    Part { head, of: PartSource::Host(of), is_share: false }
}

pub(crate) const GUEST: Part = part("guest", |host| host.accel.map(|_| host.guest));
pub(crate) const QEMU: Part = part("QEMU", |host| host.accel.map(|_| host.qemu));
pub(crate) const STACK: Part = part("host stack", |host| Some(host.host_stack));
const SERVICE: Part = part("service", |host| host.service);
/// A row without vhost has no thread of that name.
const VHOST: Part = part("vhost", |host| Some(host.vhost).filter(|vhost| vhost.mean > 0.0));
pub(crate) const IOTHREAD: Part = part("iothread", |host| host.iothread);
pub(crate) const DAEMON: Part = part("daemon", |host| host.daemon);
const RELAY: Part = part("relay", |host| host.relay);
pub(crate) const KERNEL: Part = Part { is_share: true, ..part("in kernel", |host| host.kernel) };
const FIO: Part = Part { head: "fio", of: PartSource::OwnThreads, is_share: false };

const OF_NETWORKS: [Part; 6] = [GUEST, SERVICE, VHOST, QEMU, RELAY, STACK];
const OF_DISKS: [Part; 7] = [FIO, GUEST, IOTHREAD, DAEMON, QEMU, KERNEL, STACK];

/// Parts that a run has.
fn parts(document: &ResultDocument) -> Vec<Part> {
    let all = if is_of_disks(document) { Vec::from(OF_DISKS) } else { Vec::from(OF_NETWORKS) };
    let has_guests = document.cells.iter().filter_map(summary).any(|host| host.accel.is_some());
    let is_shown = |part: &Part| match (part.head, is_of_disks(document)) {
        // Next to guests, vhost is always listed, even if absent.
        ("vhost", false) => has_guests,
        _ => document.cells.iter().any(|cell| value(part, cell).is_some()),
    };
    all.into_iter().filter(is_shown).collect()
}

fn is_of_disks(document: &ResultDocument) -> bool {
    document.cells.iter().any(|record| record.cell.disk().is_some())
}

/// Returns true if a row has guests, or zones whose traffic a program carries.
fn is_observed(document: &ResultDocument) -> bool {
    document.cells.iter().filter_map(summary).any(|host| host.accel.is_some() || host.relay.is_some())
}

/// Returns `None` if nothing was observed.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let records: Vec<&CellRecord> = document.cells.iter().filter(|record| summary(record).is_some()).collect();
    let all: Vec<&HostCpuSummary> = records.iter().filter_map(|record| summary(record)).collect();
    if !is_observed(document) {
        return None;
    }
    let accel = all.iter().find_map(|host| host.accel);
    let (transactions, streams): (Vec<&CellRecord>, Vec<&CellRecord>) =
        records.iter().copied().partition(|record| record.cell.kind().is_transactions());
    let parts = parts(document);
    let tables = [(&transactions, per(document)), (&streams, "KB")];
    let tables = tables.into_iter().filter_map(|(records, per)| table(records, &parts, accel, per));
    let mut told: Vec<SectionPart> = tables.map(SectionPart::Table).collect();
    told.extend(accel.map(|accel| SectionPart::Paragraph(caveat(accel).into())));
    if all.iter().any(|host| host.relay.is_some()) {
        told.push(SectionPart::Paragraph(RELAYS.into()));
    }
    told.push(SectionPart::Paragraph(match is_of_disks(document) {
        true => reading_of_disks(document),
        false => reading(&all),
    }));
    told.extend(document.guest_clocks.iter().filter(|clock| clock.is_much()).map(drift).map(SectionPart::Paragraph));
    Some(Section::of("Host CPU time", told))
}

fn per(document: &ResultDocument) -> &'static str {
    if is_of_disks(document) { "I/O" } else { "transaction" }
}

/// Value of a part in a cell.
pub(crate) fn value(part: &Part, record: &CellRecord) -> Option<UnitEstimate> {
    let host = summary(record)?;
    match part.of {
        PartSource::Host(of) => Some(UnitEstimate::new(of(host)?, FigureUnit::cpu_microseconds(record.cell.kind()))),
        PartSource::OwnThreads if host.accel.is_none() => {
            record.summary.as_ref()?.estimate_of([SampleFigure::ThreadsPerTransaction, SampleFigure::ThreadsPerKb])
        }
        PartSource::OwnThreads => None,
    }
}

/// Mean of a part in a cell, in the unit of CPU time of its test.
fn mean(part: &Part, record: &CellRecord) -> Option<f64> {
    Some(value(part, record)?.converted_to(Metric::unit_of_cpu(record.cell.kind()))?.mean)
}

fn summary(record: &CellRecord) -> Option<&HostCpuSummary> {
    record.summary.as_ref()?.host_cpu.as_ref()
}

/// Chart of the host's CPU time per transaction. Returns `None` if nothing was observed.
pub(crate) fn chart(document: &ResultDocument) -> Option<Stacked> {
    let parts: Vec<Part> = parts(document).into_iter().filter(|part| !part.is_share).collect();
    let row = |record: &CellRecord| {
        summary(record)?;
        let values = parts.iter().map(|part| mean(part, record).unwrap_or(0.0)).collect();
        Some(StackedRow { name: labels::name(document, &record.cell), values })
    };
    let transactions = |record: &&CellRecord| record.cell.kind().is_transactions();
    let rows: Vec<StackedRow> = document.cells.iter().filter(transactions).filter_map(row).collect();
    if !is_observed(document) {
        return None;
    }
    let (what, unit) =
        (per(document), ColumnUnit::of(FigureUnit::Microseconds, rows.iter().map(|row| row.values.iter().sum())));
    let rows = rows.into_iter().map(|row| {
        let values = row.values.into_iter().map(|value| unit.value(value)).collect();
        StackedRow { values, ..row }
    });
    let rows: Vec<StackedRow> = rows.collect();
    (!rows.is_empty()).then(|| Stacked {
        heading: Heading::new(
            most(&rows, unit)
                .map_or_else(|| "Host CPU time".to_owned(), |most| format!("{most} of host CPU time per {what}")),
            format!("CPU time of the host per {what}, by purpose."),
        ),
        quantity: Quantity::new("CPU", format!("{} per {what}", unit.text())),
        parts: parts.iter().map(|part| part.head.to_owned()).collect(),
        rows,
    })
}

/// Returns e.g. `vxlan, TCP RR takes 24.1 µs` for the row that takes most.
fn most(rows: &[StackedRow], unit: ColumnUnit) -> Option<String> {
    let total = |row: &StackedRow| row.values.iter().sum::<f64>();
    let most = rows.iter().max_by(|one, other| total(one).total_cmp(&total(other)))?;
    let more = if rows.len() > 1 { "takes most" } else { "takes" };
    Some(format!("{} {more}: {} {}", most.name, three_digits(total(most)), unit.text()))
}

fn table(records: &[&CellRecord], parts: &[Part], accel: Option<Accelerator>, per: &str) -> Option<Table> {
    let times = records.iter().flat_map(|record| parts.iter().filter_map(|part| mean(part, record)));
    let unit = ColumnUnit::of(Metric::unit_of_cpu(records.first()?.cell.kind()), times);
    let title = match records.first()?.cell.kind().work_unit() {
        WorkUnit::Transaction => format!("{} per {per}", unit.text()),
        WorkUnit::Kilobyte => unit.text().to_owned(),
    };
    let exits = records.iter().filter_map(|record| summary(record)).any(|summary| summary.vm_exits.is_some());
    let labels = Labels::of_records(records);
    let heads = std::iter::once("row".to_owned()).chain(labels.heads());
    let counts = exits.then_some("exits").into_iter().chain(["interrupts"]);
    let head = |part: &Part| match (part.head, accel) {
        ("guest", Some(Accelerator::Tcg)) => "guest (emulated)",
        (head, _) => head,
    };
    Some(Table {
        labels: heads.collect(),
        groups: vec![Group::right(title, parts.iter().map(head)), Group::right(format!("per {per}"), counts)],
        rows: records.iter().filter_map(|record| line(record, (parts, unit), &labels, exits)).collect(),
        ..Table::default()
    })
}

fn line(record: &CellRecord, (parts, unit): (&[Part], ColumnUnit), labels: &Labels, exits: bool) -> Option<TableRow> {
    let host = summary(record)?;
    let figure = |estimate: Estimate| Value::Figure(estimate.mean);
    let exits = exits.then(|| host.vm_exits.map_or(Value::Absent, figure));
    let parts = parts.iter().map(|part| unit.optional(mean(part, record)));
    let figures = parts.chain(exits).chain([figure(host.interrupts)]);
    let labels = std::iter::once(record.cell.row.to_string()).chain(labels.line(&record.cell));
    Some(TableRow::new(labels.collect(), figures))
}

const RELAYS: &str = "Relay: the programs that carry the traffic of a row's zone (pasta, slirp4netns, docker-proxy), in \
                      user space and in the kernel.";

fn caveat(accel: Accelerator) -> &'static str {
    match accel {
        Accelerator::Kvm => {
            "Guest: time in which KVM ran the guest's instructions, accounted by the kernel's timer tick; all other \
             time of its vCPU threads is QEMU's."
        }
        Accelerator::Tcg => {
            "The guests ran under TCG: the guest's time is QEMU translating and emulating its \
             instructions, many times what a CPU would need for them; no share of it is the cost of a real guest."
        }
    }
}

fn reading_of_disks(document: &ResultDocument) -> String {
    let missing = document.cells.iter().any(|record| {
        let has_guest = matches!(record.cell.row, Row::Disk(DiskRow::Guest(_)));
        has_guest && record.summary.is_some() && summary(record).is_none()
    });
    let missing = match missing {
        true => " Rows are omitted if their samples are too short: fio took most of the time to start and to end.",
        false => "",
    };
    format!(
        "For a guest's disk, fio is part of the guest's time. iothread: thread of QEMU that serves only this disk. \
         daemon: the storage daemon that does so. QEMU: the rest of QEMU. In kernel: a share of these three, their \
         system calls (file system, block layer, driver) and, under KVM, the kernel's work for the guest. Host stack: \
         time of the whole machine in hardware and software interrupts, by ticks, including the completion of I/Os. No \
         column includes kernel workers.{missing}"
    )
}

fn reading(all: &[&HostCpuSummary]) -> String {
    let whole = all.iter().any(|summary| summary.whole_samples);
    let window = if whole { " Whole samples were observed, including their warm-up." } else { "" };
    format!(
        "Host stack: time of the whole machine in hardware and software interrupts, by ticks. The columns \
         don't add up to the CPU of the tables above: an interrupt that was served on a thread's time is in that \
         thread's figure too, unless the kernel accounts for it separately, and the system calls of an endpoint on the \
         host itself are in none of them.{window}"
    )
}

fn drift(clock: &GuestClock) -> String {
    let way = if clock.drift_ppm > 0.0 { "fast" } else { "slow" };
    let seconds = clock.seconds.round() as u32;
    format!(
        "The clock of guest {} is {} ppm (± {}) {way} relative to the host's, over {}: times taken inside the guest \
         are off by as much.",
        clock.guest,
        three_digits(clock.drift_ppm.abs()),
        three_digits(clock.uncertainty_ppm),
        counted(seconds, "second"),
    )
}
