//! Round-trip breakdown: the time of each stage, and the wire by difference.

use vtax_model::{
    metric::FigureUnit,
    result::{CellRecord, EndStages, ResultDocument, StageFigures, StagesSummary, SummaryRecord},
};

use super::{
    blocks::{BlockCells, Reported},
    column_unit::ColumnUnit,
    labels,
    number::{grouped, percent},
    view::{Group, Section, SectionPart, Table, TableRow},
};

/// Returns one table for each block, with the rows of the study side by side: the tax, by stage.
pub(crate) fn section(report: &Reported<'_>) -> Option<Section> {
    let document = report.document;
    let tables = report.blocks.iter().filter_map(|block| table(document, block));
    let mut parts: Vec<SectionPart> = tables.map(SectionPart::Table).collect();
    if parts.is_empty() {
        return None;
    }
    parts.extend(without(document).map(SectionPart::Paragraph));
    let text = "By kernel timestamps at both endpoints (software timestamps, unless a stage of the NIC is listed). The \
                wire is the time that the request was away less the responder's stages: a difference of medians, \
                because the two machines share no clock. Shares are of the sum of the medians, which is not the median \
                of the whole. Reading timestamps costs system calls: such round trips are longer than plain ones.";
    parts.push(SectionPart::Paragraph(text.into()));
    Some(Section::of("Round-trip breakdown", parts))
}

/// Line of the table: location, stage, and its figures in a cell.
type StageLine = (&'static str, &'static str, fn(&StagesSummary) -> Option<StageFigures>);

/// Stages in the order of the path. The wire lies between them.
const STAGES: [StageLine; 11] = [
    ("initiator", "send call to qdisc", |s| s.initiator.send_to_qdisc),
    ("initiator", "qdisc to driver", |s| s.initiator.qdisc_to_driver),
    ("initiator", "driver to wire", |s| s.initiator.driver_to_wire),
    ("responder", "NIC to stack", |s| s.responder.wire_to_stack),
    ("responder", "stack to program", |s| s.responder.stack_to_receive),
    ("responder", "in the program", |s| s.responder.turnaround),
    ("responder", "send call to qdisc", |s| s.responder.send_to_qdisc),
    ("responder", "qdisc to driver", |s| s.responder.qdisc_to_driver),
    ("responder", "driver to wire", |s| s.responder.driver_to_wire),
    ("initiator", "NIC to stack", |s| s.initiator.wire_to_stack),
    ("initiator", "stack to program", |s| s.initiator.stack_to_receive),
];

fn table(document: &ResultDocument, block: &BlockCells<'_>) -> Option<Table> {
    let records: Vec<&CellRecord> = block.records().filter(|record| stages(record).is_some()).collect();
    let all: Vec<&StagesSummary> = records.iter().filter_map(|record| stages(record)).collect();
    let first = records.first()?;
    // The stages of all rows are compared with one another.
    let times = all.iter().flat_map(|summary| STAGES.iter().filter_map(|(.., figures)| Some(figures(summary)?.p50)));
    let unit = ColumnUnit::of(FigureUnit::Microseconds, times);
    let title = |record: &CellRecord| match block.columns().len() {
        1 => format!("{} ({})", record.cell.row, unit.text()),
        _ => format!("{}, {} ({})", record.cell.row, record.cell.column().label(), unit.text()),
    };
    let taken = STAGES.iter().filter(|(.., figures)| all.iter().any(|summary| figures(summary).is_some()));
    let mut rows: Vec<TableRow> = taken.map(|stage| line(stage, &all, unit)).collect();
    let wire = rows.iter().position(|row| row.labels[0] == "responder").unwrap_or(rows.len());
    rows.insert(wire, wire_line(&all, unit));
    Some(Table {
        caption: if document.cells.len() > 1 {
            labels::test(&first.cell) + &block.rest_of_title()
        } else {
            String::new()
        },
        labels: vec!["at".into(), "stage".into()],
        groups: records.iter().map(|record| Group::right(title(record), ["p50", "p99", "share"])).collect(),
        rows,
        foot: foot(&records, &all, unit),
    })
}

fn stages(record: &CellRecord) -> Option<&StagesSummary> {
    record.summary.as_ref()?.stages.as_ref()
}

fn line((place, what, figures): &StageLine, all: &[&StagesSummary], unit: ColumnUnit) -> TableRow {
    let figures = all.iter().flat_map(|summary| match figures(summary) {
        Some(figures) => [unit.written(figures.p50), unit.written(figures.p99), share(figures.p50, summary)],
        None => ["—", "—", "—"].map(str::to_owned),
    });
    row(place, what, figures)
}

fn wire_line(all: &[&StagesSummary], unit: ColumnUnit) -> TableRow {
    let figures = all.iter().flat_map(|summary| {
        let wire = summary.wire_us;
        [or_dash(wire, unit), "—".into(), wire.map_or("—".into(), |wire| share(wire.max(0.0), summary))]
    });
    row("wire", "there and back", figures)
}

fn foot(records: &[&CellRecord], all: &[&StagesSummary], unit: ColumnUnit) -> Vec<TableRow> {
    let or_dash = |time| or_dash(time, unit);
    let of = |figures: Option<StageFigures>| {
        [or_dash(figures.map(|figures| figures.p50)), or_dash(figures.map(|figures| figures.p99)), String::new()]
    };
    let sums = all.iter().flat_map(|summary| [or_dash(sum(summary)), String::new(), String::new()]);
    let whole = records.iter().flat_map(|record| {
        let times = record.summary.as_ref().and_then(SummaryRecord::times);
        [or_dash(times.map(|times| times.p50.value)), or_dash(times.map(|times| times.p99.value)), String::new()]
    });
    vec![
        row("away", "wire and responder", all.iter().flat_map(|summary| of(summary.initiator.away))),
        row("all", "sum of the medians", sums),
        row("all", "round trip", whole),
    ]
}

fn or_dash(time: Option<f64>, unit: ColumnUnit) -> String {
    time.map_or("—".into(), |time| unit.written(time))
}

fn row(place: &str, what: &str, figures: impl Iterator<Item = String>) -> TableRow {
    TableRow::new(vec![place.into(), what.into()], figures)
}

fn share(p50: f64, summary: &StagesSummary) -> String {
    sum(summary).map_or("—".into(), |sum| percent(p50 / sum))
}

/// Sum of medians that cover the round trip once; the time in the initiator's NIC also counts as away.
fn sum(summary: &StagesSummary) -> Option<f64> {
    let EndStages { send_to_qdisc, qdisc_to_driver, away, stack_to_receive, .. } = &summary.initiator;
    let parts = [send_to_qdisc, qdisc_to_driver, away, stack_to_receive];
    parts.into_iter().map(|stage| stage.map(|figures| figures.p50)).sum()
}

fn without(document: &ResultDocument) -> Option<String> {
    let all = document.cells.iter().filter_map(stages);
    let (initiator, responder) = all.fold((0, 0), |(initiator, responder), summary| {
        (initiator + summary.initiator.without, responder + summary.responder.without)
    });
    let text = || {
        format!(
            "Messages without a timestamp, not included in any stage: {} at the initiator, {} at the responder.",
            grouped(initiator),
            grouped(responder)
        )
    };
    (initiator + responder > 0).then(text)
}
