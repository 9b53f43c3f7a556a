//! Latency that loads add to transactions on an idle path, next to the loads' bandwidth.

use vtax_model::{
    metric::{Metric, SampleFigure},
    result::{CellRecord, Delta, FloorRecord, ResultDocument},
    study::Row,
};

use super::{
    column_unit::{ColumnUnit, sized},
    labels::{self, Labels},
    notes::Notes,
    tax::{self, most, verdict_against},
    view::{Group, Section, SectionPart, Table, TableRow, Value},
};

/// Reported times of transactions, with the heads of their columns.
const TIMES: [(Metric, &str); 3] = [(Metric::Rtt, "mean"), (Metric::P50, "p50"), (Metric::P99, "p99")];
/// Directions of loads, with the heads of their columns.
const LOADS: [(SampleFigure, &str); 2] =
    [(SampleFigure::LoadForward, "forward"), (SampleFigure::LoadReverse, "reverse")];

/// Returns the added latency of each load in a sentence.
pub(crate) fn answer(document: &ResultDocument) -> Vec<SectionPart> {
    let lines: Vec<String> = loaded(document).filter_map(|record| sentence(document, record)).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let lead = format!("Latency added by the load, compared with {}, with 95 % intervals:", document.baseline);
    vec![SectionPart::Paragraph(lead), SectionPart::bullets(lines)]
}

/// Returns the table of added latencies, with the idle path compared with itself.
pub(crate) fn section(document: &ResultDocument, notes: &mut Notes) -> Option<Section> {
    let records: Vec<&CellRecord> = loaded(document).filter(|record| record.summary.is_some()).collect();
    let all: Vec<&CellRecord> = document.cells.iter().collect();
    let labels = Labels::of_records(&all);
    let floors = || document.noise_floor.iter().filter_map(|floor| floor.delta.as_ref());
    let deltas = records.iter().flat_map(|record| TIMES.map(|(of, _)| delta(record, of))).flatten();
    let sizes = deltas.chain(floors()).map(|delta| delta.delta.abs().max(delta.delta_high.abs()));
    let times = ColumnUnit::of_costs(Metric::Rtt, records.first()?.cell.kind(), sizes);
    let directions = LOADS.into_iter().filter(|(of, _)| records.iter().any(|record| mbps(record, *of).is_some()));
    let directions: Vec<(SampleFigure, &str)> = directions.collect();
    let rates = records.iter().flat_map(|record| LOADS.map(|(of, _)| mbps(record, of))).flatten();
    let rates = ColumnUnit::of(SampleFigure::LoadForward.unit(), rates);
    let mut rows = Vec::new();
    for (nth, record) in records.iter().enumerate() {
        let added = TIMES.map(|(of, _)| added(record, of, times, notes));
        let load = directions.iter().map(|(of, _)| rates.optional(mbps(record, *of)));
        rows.push(TableRow::new(labels.line(&record.cell), added.into_iter().chain(load)));
        let block = record.cell.block();
        if records.get(nth + 1).is_none_or(|next| next.cell.block() != block) {
            rows.extend(idle_again(document, record, &labels, times, directions.len()));
        }
    }
    let groups = vec![
        Group::right(format!("added latency ({})", times.text()), TIMES.map(|(_, head)| format!("{head} [95 %]"))),
        Group::right(format!("load ({})", rates.text()), directions.iter().map(|(_, head)| *head)),
    ];
    let table = Table { labels: labels.heads(), groups, rows, ..Table::default() };
    Section::of_table("Latency under load", table)
}

fn loaded(document: &ResultDocument) -> impl Iterator<Item = &CellRecord> {
    document.cells.iter().filter(|record| record.cell.row.load().is_some())
}

/// Goodput of the load in one direction.
fn mbps(record: &CellRecord, of: SampleFigure) -> Option<f64> {
    record.summary.as_ref()?.estimate(of).map(|load| load.mean)
}

fn delta(record: &CellRecord, of: Metric) -> Option<&Delta> {
    record.tax_of(of)?.delta.as_ref()
}

fn ends(delta: &Delta) -> [f64; 3] {
    [delta.delta, delta.delta_low, delta.delta_high]
}

/// Returns the difference, with a note where it may be none.
fn added(record: &CellRecord, of: Metric, unit: ColumnUnit, notes: &mut Notes) -> Value {
    let Some((tax, delta)) = record.tax_of(of).and_then(|tax| Some((tax, tax.delta.as_ref()?))) else {
        return Value::Absent;
    };
    let told = unit.cost(ends(delta));
    if tax.verdict.is_shown() && !tax.within_floor {
        return told.into();
    }
    let mark = notes.mark(verdict_against(tax.verdict, None, most(tax), tax.within_floor));
    format!("{told} {mark}").into()
}

fn idle_again(
    document: &ResultDocument,
    record: &CellRecord,
    labels: &Labels,
    unit: ColumnUnit,
    directions: usize,
) -> Option<TableRow> {
    let block = record.cell.block();
    let floor = |of: Metric| tax::floor(document, &block, of);
    floor(Metric::Rtt)?;
    let mut cell = record.cell;
    cell.row = Row::Load(None);
    let mut labels = labels.line(&cell);
    if let Some(idle) = labels.iter_mut().find(|label| **label == cell.row.to_string()) {
        idle.push_str(" (repeated)");
    }
    let value = |floor: &FloorRecord| floor.delta.as_ref().map(|delta| unit.cost(ends(delta)).into());
    let times = TIMES.map(|(of, _)| floor(of).and_then(value).unwrap_or(Value::Absent));
    Some(TableRow::new(labels, times.into_iter().chain(std::iter::repeat_n(Value::Absent, directions))))
}

/// Returns e.g. `under:tcp-stream, TCP RR: mean +9.90 ms [9.85, 9.94], p50 …, p99 …; load 94.1 Mb/s forward`.
fn sentence(document: &ResultDocument, record: &CellRecord) -> Option<String> {
    let kind = record.cell.kind();
    let unit =
        ColumnUnit::of_costs(Metric::Rtt, kind, TIMES.iter().filter_map(|(of, _)| Some(delta(record, *of)?.delta)));
    let time = |(of, head): (Metric, &str)| {
        let delta = delta(record, of)?;
        let [more, interval] = unit.split_cost(ends(delta));
        Some(format!("{head} {more} {} {interval}", unit.text()))
    };
    let times: Vec<String> = TIMES.into_iter().filter_map(time).collect();
    let load = |(of, head): (SampleFigure, &str)| Some(format!("{} {head}", sized(mbps(record, of)?, of.unit())));
    let loads: Vec<String> = LOADS.into_iter().filter_map(load).collect();
    let name = labels::name(document, &record.cell);
    (!times.is_empty()).then(|| format!("{name}: {}; load {}", times.join(", "), loads.join(", ")))
}
