//! Concurrent pairs, each with its own figures, and how closely they started together.

use vtax_model::{
    metric::{FigureUnit, SampleFigure},
    result::{CellRecord, Estimate, PairSummary, ParallelSummary, ResultDocument},
    run::PairRecord,
};

use super::{
    column_unit::{ColumnUnit, sized},
    labels::{self, Labels},
    number::{counted, lost},
    view::{Group, Section, SectionPart, Table, TableRow, Value},
};

/// Returns a table for each cell with several pairs. Several such cells have an overview, and tables only on demand.
pub(crate) fn section(document: &ResultDocument, detail: bool) -> Option<Section> {
    let several = |record: &&CellRecord| parallel(record).is_some();
    let records: Vec<&CellRecord> = document.cells.iter().filter(several).collect();
    let mut all: Vec<SectionPart> = Vec::new();
    if records.len() > 1 {
        all.extend(overview(&records));
    }
    if records.len() == 1 || detail {
        let of = |record: &&CellRecord| Some(parts(document, record, parallel(record)?));
        all.extend(records.iter().filter_map(of).flatten());
    }
    Section::new("Concurrent pairs", all)
}

fn parallel(record: &CellRecord) -> Option<&ParallelSummary> {
    record.summary.as_ref()?.parallel.as_ref()
}

/// A line for each cell: its fastest and slowest pair, and the time between the first and the last start.
fn overview(records: &[&CellRecord]) -> Vec<SectionPart> {
    let (transactions, streams): (Vec<&CellRecord>, Vec<&CellRecord>) =
        records.iter().partition(|record| record.cell.kind().is_transactions());
    let tables = [(transactions, FigureUnit::Microseconds), (streams, FigureUnit::MegabitsPerSecond)];
    let mut parts: Vec<SectionPart> = Vec::new();
    for (records, stored) in tables.into_iter().filter(|(records, _)| !records.is_empty()) {
        parts.push(SectionPart::Table(overview_table(&records, stored)));
    }
    let clock = if by_one_clock(records) { ", by one clock" } else { ", with its uncertainty (±)" };
    parts.push(SectionPart::Paragraph(format!(
        "Start: delay of the last pair after the first, median and worst of the samples{clock}. \
         --detail lists every pair."
    )));
    parts
}

fn by_one_clock(records: &[&CellRecord]) -> bool {
    records.iter().filter_map(|record| parallel(record)).all(|all| all.uncertainty_us == 0.0)
}

fn overview_table(records: &[&CellRecord], stored: FigureUnit) -> Table {
    let all = || records.iter().filter_map(|record| parallel(record));
    let unit = ColumnUnit::of(stored, all().flat_map(extremes).flatten());
    let delay = ColumnUnit::of(FigureUnit::Microseconds, all().flat_map(|all| [all.skew_us, all.skew_us_most]));
    let quantity = match stored {
        FigureUnit::Microseconds => format!("RTT of a pair ({})", unit.text()),
        _ => format!("{} of a pair", unit.text()),
    };
    let labels = Labels::of_records(records);
    let starts: &[&str] = if by_one_clock(records) { &["median", "worst"] } else { &["median", "worst", "±"] };
    let line = |record: &&CellRecord| {
        let mut figures = parallel(record).map_or_else(Vec::new, |all| overview_figures(all, unit, delay));
        figures.truncate(3 + starts.len());
        TableRow::new(std::iter::once(record.cell.row.to_string()).chain(labels.line(&record.cell)).collect(), figures)
    };
    Table {
        labels: std::iter::once("row".to_owned()).chain(labels.heads()).collect(),
        groups: vec![
            Group::right("", ["pairs"]),
            Group::right(quantity, ["fastest", "slowest"]),
            Group::right(format!("start of the last ({})", delay.text()), starts.iter().copied()),
        ],
        rows: records.iter().map(line).collect(),
        ..Table::default()
    }
}

fn overview_figures(parallel: &ParallelSummary, unit: ColumnUnit, delay: ColumnUnit) -> Vec<Value> {
    let [fastest, slowest] = extremes(parallel);
    let ParallelSummary { skew_us, skew_us_most, uncertainty_us, pairs } = parallel;
    let skew = [skew_us, skew_us_most, uncertainty_us].map(|us| delay.figure(*us));
    let pairs = Value::from(pairs.len().to_string());
    [pairs, unit.optional(fastest), unit.optional(slowest)].into_iter().chain(skew).collect()
}

/// Fastest and slowest pair: mean RTT in µs for transactions, otherwise Mb/s.
pub(crate) fn extremes(parallel: &ParallelSummary) -> [Option<f64>; 2] {
    let over = |of: fn(&PairSummary) -> Option<f64>| -> [Option<f64>; 2] {
        let all = || parallel.pairs.iter().filter_map(of);
        [all().reduce(f64::min), all().reduce(f64::max)]
    };
    let [slowest, fastest] = over(|pair| pair.goodput_mbps.map(|rate| rate.mean));
    let rtt = over(|pair| pair.rtt_us);
    [rtt[0].or(fastest), rtt[1].or(slowest)]
}

fn parts(document: &ResultDocument, record: &CellRecord, parallel: &ParallelSummary) -> Vec<SectionPart> {
    let transactions = record.cell.kind().is_transactions();
    let datagrams = record.cell.medium().is_datagram();
    let units = PairUnits::of(parallel);
    let rate = if transactions { "rate/s [95 %]".to_owned() } else { format!("{} [95 %]", units.rate.text()) };
    let heads = [
        Some(rate),
        transactions.then(|| format!("p50 ({})", units.time.text())),
        transactions.then(|| "p99".to_owned()),
        datagrams.then(|| "lost".to_owned()),
    ];
    let shown = heads.each_ref().map(Option::is_some);
    let row = |label: String, values: [Value; 4]| {
        TableRow::new(vec![label], values.into_iter().zip(shown).filter(|(_, shown)| *shown).map(|(value, _)| value))
    };
    let table = Table {
        caption: labels::name(document, &record.cell),
        labels: vec!["pair".into()],
        groups: vec![Group::right("", heads.into_iter().flatten())],
        rows: parallel
            .pairs
            .iter()
            .enumerate()
            .map(|(index, pair)| row(name(record, index), of_pair(pair, units)))
            .collect(),
        foot: vec![row("all".into(), of_all(record, units))],
    };
    vec![SectionPart::Table(table), SectionPart::Paragraph(skew(parallel))]
}

/// Returns e.g. `1: ssh:vm1 to ssh:vm2`.
fn name(record: &CellRecord, index: usize) -> String {
    let ends = record.ends.as_ref().and_then(|ends| ends.pairs.get(index));
    let names = |pair: &PairRecord| format!(": {} to {}", pair.initiator.name, pair.responder.name);
    format!("{}{}", index + 1, ends.map(names).unwrap_or_default())
}

/// Units of a table of pairs.
#[derive(Clone, Copy)]
struct PairUnits {
    rate: ColumnUnit,
    time: ColumnUnit,
}

impl PairUnits {
    fn of(ParallelSummary { pairs, .. }: &ParallelSummary) -> PairUnits {
        let rates = pairs.iter().filter_map(|pair| Some(pair.goodput_mbps?.mean));
        let times = pairs.iter().flat_map(|pair| [pair.p50_us, pair.p99_us]).flatten();
        PairUnits {
            rate: ColumnUnit::of(FigureUnit::MegabitsPerSecond, rates),
            time: ColumnUnit::of(FigureUnit::Microseconds, times),
        }
    }

    /// Transactions or else bandwidth.
    fn rate(self, transactions: Option<Estimate>, goodput: Option<Estimate>) -> Value {
        match (transactions, goodput) {
            (Some(rate), _) => Value::from(&rate),
            (None, Some(rate)) => self.rate.estimate(&rate),
            (None, None) => Value::Absent,
        }
    }
}

fn of_pair(pair: &PairSummary, units: PairUnits) -> [Value; 4] {
    let [p50, p99] = [pair.p50_us, pair.p99_us].map(|time| units.time.optional(time));
    [units.rate(pair.transactions_per_s, pair.goodput_mbps), p50, p99, Value::count(pair.lost)]
}

fn of_all(record: &CellRecord, units: PairUnits) -> [Value; 4] {
    let Some(summary) = &record.summary else { return std::array::from_fn(|_| Value::Absent) };
    let times = summary.times();
    let rate = units.rate(summary.estimate(SampleFigure::Rate), summary.estimate(SampleFigure::Goodput));
    let [p50, p99] = [times.map(|times| times.p50.value), times.map(|times| times.p99.value)];
    [rate, units.time.optional(p50), units.time.optional(p99), lost(summary)]
}

fn skew(parallel: &ParallelSummary) -> String {
    let ParallelSummary { skew_us, skew_us_most, uncertainty_us, pairs } = parallel;
    let known = match *uncertainty_us {
        0.0 => "by one clock".to_owned(),
        uncertainty => format!("known to ± {}", sized(uncertainty, FigureUnit::Microseconds)),
    };
    format!(
        "The last of {} started {} after the first (median of the samples; at most {}), {known}. A \
         pair's percentiles are medians over its samples; those of all pairs are from the merged histogram.",
        counted(pairs.len() as u32, "pair"),
        sized(*skew_us, FigureUnit::Microseconds),
        sized(*skew_us_most, FigureUnit::Microseconds),
    )
}
