//! Details that the short report omits: intervals, percentiles, losses and the full noise floor.

use vtax_model::{
    cell::{Block, ColumnKey, Instrument, Medium},
    metric::{Metric, SampleFigure},
    result::{CellRecord, FloorRecord, RttTimes, SummaryRecord},
    workload::TestKind,
};

use super::{
    blocks::{BlockCells, Reported, column_head, distinct, quantity, rows_head},
    column_unit::ColumnUnit,
    number::{bound, change, interval, lost, percent},
    record::primary,
    view::{Group, Section, SectionPart, Table, TableRow, Value},
    words,
};

pub(crate) fn section(block: &BlockCells<'_>) -> Option<Section> {
    let instrument = if block.instrument == Instrument::Path { ", controlled conditions" } else { "" };
    let tables = block.figured().into_iter().map(|test| table(block, test)).filter(|table| !table.rows.is_empty());
    Section::new(
        format!("{}: details{instrument}", words::capital(&block.title())),
        tables.map(SectionPart::Table).collect(),
    )
}

fn table(block: &BlockCells<'_>, test: TestKind) -> Table {
    let (rows, columns) = (block.rows(), block.columns());
    let keys = rows.iter().flat_map(|row| columns.iter().map(move |column| (*row, *column)));
    let unit = unit(block, test);
    let packets = block.records().filter(|record| record.cell.kind() == test).any(|record| packet(record).is_some());
    let cycles = block.records().filter(|record| record.cell.kind() == test).any(|record| cycles(record).is_some());
    let counts = CountedDetails { packets, cycles };
    let lines = keys.filter_map(|(row, column)| line(block.cell(row, column, test)?, unit, counts));
    Table {
        caption: quantity(test, unit),
        labels: vec![rows_head(&rows).into(), column_head(&block.columns()).into()],
        groups: vec![Group::right("", heads(test, block.medium, counts))],
        rows: lines.collect(),
        ..Table::default()
    }
}

/// Counts that cells of a table have.
#[derive(Clone, Copy)]
struct CountedDetails {
    packets: bool,
    cycles: bool,
}

/// Unit of the figures of a test, including its percentiles.
fn unit(block: &BlockCells<'_>, test: TestKind) -> ColumnUnit {
    let figures = |record: &CellRecord| {
        let summary = record.summary.as_ref()?;
        let times = summary.times().map(|times| [times.p50.value, times.p99.value, times.p999.value, times.max]);
        Some(times.into_iter().flatten().chain(primary(record).map(|estimate| estimate.mean)))
    };
    let records = block.records().filter(|record| record.cell.kind() == test);
    ColumnUnit::of_metric(Metric::of(test), test, records.filter_map(figures).flatten())
}

fn heads(test: TestKind, medium: Medium, counts: CountedDetails) -> Vec<&'static str> {
    let beside = Metric::of(test).beside().map(|(_, head)| head);
    let mut heads: Vec<&'static str> = beside.into_iter().collect();
    heads.extend(match test.is_transactions() {
        true => vec!["mean [95 %]", "p50", "p99 [95 %]", "p99.9", "max"],
        false => vec!["mean [95 %]", "median"],
    });
    heads.extend(match test.is_transactions() {
        true if medium.is_datagram() => vec!["lost"],
        false if medium.is_datagram() => vec!["lost", "reordered"],
        false if medium.is_tcp() => vec!["retransmits"],
        _ => vec![],
    });
    heads.extend(counts.packets.then_some(["B/packet", "ns/packet"]).into_iter().flatten());
    heads.extend(counts.cycles.then_some(if test.is_transactions() { "cycles" } else { "cycles/KB" }));
    heads.push("n");
    heads
}

fn line(record: &CellRecord, unit: ColumnUnit, counts: CountedDetails) -> Option<TableRow> {
    let summary = record.summary.as_ref()?;
    let mut values: Vec<Value> = match record.cell.kind().is_transactions() {
        true => beside(summary, record.cell.kind())
            .into_iter()
            .chain(transactions(summary, record.cell.medium(), unit)?)
            .collect(),
        false => stream(summary, record, unit)?,
    };
    if counts.packets {
        values.push(packet(record).map_or(Value::Absent, |bytes| format!("{bytes:.0}").into()));
        values.push(Value::figure(summary.estimate(SampleFigure::ThreadsPerPacket).map(|estimate| estimate.mean)));
    }
    if counts.cycles {
        values.push(Value::figure(cycles(record)));
    }
    values.push(samples(summary, record.cell.kind())?.to_string().into());
    let labels = vec![record.cell.row.to_string(), record.cell.column().to_string()];
    Some(TableRow::new(labels, values))
}

/// Returns the mean size of a packet on the wire, without the Ethernet header.
fn packet(record: &CellRecord) -> Option<f64> {
    let summary = record.summary.as_ref()?;
    let (packets, bytes) = (summary.packets.filter(|packets| *packets > 0)?, summary.wire_bytes?);
    Some(bytes as f64 / packets as f64)
}

/// Returns the CPU cycles of both endpoints' threads, for a transaction or for 1,024 bytes.
fn cycles(record: &CellRecord) -> Option<f64> {
    let summary = record.summary.as_ref()?;
    let of = |figure| summary.estimate(figure).map(|estimate| estimate.mean);
    of(SampleFigure::CyclesPerTransaction).or_else(|| of(SampleFigure::CyclesPerKb))
}

fn samples(summary: &SummaryRecord, test: TestKind) -> Option<usize> {
    match test.is_transactions() {
        true => Some(summary.time_us()?.mean.n),
        false => Some(summary.estimate(Metric::of(test).figure(test))?.n),
    }
}

/// Returns the secondary figure, next to the primary quantity of the test.
fn beside(summary: &SummaryRecord, test: TestKind) -> Option<Value> {
    let (figure, _) = Metric::of(test).beside()?;
    Some(Value::figure(summary.estimate(figure).map(|estimate| estimate.mean)))
}

fn transactions(summary: &SummaryRecord, medium: Medium, unit: ColumnUnit) -> Option<Vec<Value>> {
    let rtt = summary.time_us()?;
    let of_times = |time: fn(&RttTimes) -> f64| unit.optional(rtt.times.as_ref().map(time));
    let mut values = vec![
        unit.estimate(&rtt.mean),
        of_times(|times| times.p50.value),
        rtt.times.as_ref().map_or(Value::Absent, |times| unit.percentile(&times.p99)),
        of_times(|times| times.p999.value),
        of_times(|times| times.max),
    ];
    values.extend(medium.is_datagram().then(|| lost(summary)));
    Some(values)
}

fn stream(summary: &SummaryRecord, record: &CellRecord, unit: ColumnUnit) -> Option<Vec<Value>> {
    let (test, medium) = (record.cell.kind(), record.cell.medium());
    let goodput = &summary.estimate(Metric::of(test).figure(test))?;
    let mut values = vec![unit.estimate(goodput), unit.figure(goodput.median)];
    match medium {
        _ if medium.is_tcp() => values.push(summary.retransmits.map_or(Value::Absent, Value::count)),
        _ if medium.is_datagram() => {
            values.extend([lost(summary), summary.reordered.map_or(Value::Absent, Value::count)]);
        }
        _ => {}
    }
    Some(values)
}

/// Returns the A/A difference for each block of the matrix.
pub(crate) fn noise_floor(report: &Reported<'_>) -> Option<Section> {
    let Reported { document, blocks } = report;
    let heads = ["A/A difference", "noise floor", "detectable", "rounds"];
    // Other families have theirs in their tables.
    let floors = || document.noise_floor.iter().filter(|floor| !floor.of.family().is_told_apart());
    let columns: Vec<ColumnKey> = floors().map(|floor| floor.block.test.column()).collect();
    let table = Table {
        labels: vec!["test".into(), column_head(&columns).into()],
        groups: vec![Group::right("", heads)],
        rows: floors().map(|floor| floor_line(blocks, floor)).collect(),
        ..Table::default()
    };
    let text = format!(
        "{} was measured twice in each round (A and A'): the difference between the two is noise, and the noise floor \
         is the far bound of its interval. A shown difference within it is flagged. \"Detectable\" is the smallest \
         difference that a single comparison of this many rounds shows with 80 % power, that is, in four of five \
         runs.",
        document.baseline
    );
    let parts = vec![SectionPart::Paragraph(text), SectionPart::Table(table)];
    (!document.noise_floor.is_empty()).then(|| Section::of("Noise floor", parts))
}

fn floor_line(blocks: &[BlockCells<'_>], floor: &FloorRecord) -> TableRow {
    let difference = format!("{} {}", change(floor.ratio), interval(floor.low, floor.high));
    let least = floor.smallest_shown.map_or("—".into(), percent);
    let texts = [difference, bound(floor.floor), least, floor.pairs.to_string()];
    TableRow::new(vec![floor_name(blocks, floor), floor.block.test.column().to_string()], texts)
}

/// Returns e.g. `TCP RTT, 4 streams`, with the swept value if there are several.
pub(crate) fn floor_name(blocks: &[BlockCells<'_>], floor: &FloorRecord) -> String {
    let Block { test, instrument, .. } = floor.block;
    let (medium, parallel) = (test.medium(), test.parallel());
    let rest = blocks
        .iter()
        .find(|block| block.is_of(&floor.block))
        .filter(|block| block.swept)
        .map(BlockCells::rest_of_title);
    let parallel = if parallel == 1 { String::new() } else { format!(", {}", medium.counted(parallel)) };
    let quantity = floor.of.name_of(test.kind());
    let instruments = distinct(blocks.iter().map(|block| block.instrument));
    let instrument =
        if instruments.len() > 1 { format!(" ({})", words::of_instrument(instrument)) } else { String::new() };
    let medium = if matches!(medium, Medium::Net(_)) { format!("{medium} ") } else { String::new() };
    format!("{medium}{quantity}{}{instrument}", rest.unwrap_or(parallel))
}
