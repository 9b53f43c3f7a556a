//! Tables of the cost of each row compared with the baseline: its figure, the tax with its interval, and the verdict.
//! The baseline's own row has its noise floor.

mod silence;
pub(crate) mod threads;

use vtax_model::{
    analysis::noise,
    cell::{self, ColumnKey},
    metric::{Metric, SampleFigure},
    result::{CellRecord, Delta, FloorRecord, ResultDocument, TaxRecord},
    study::Row,
    workload::TestKind,
};
use vtax_stats::Verdict;

use super::{
    Options,
    blocks::{BlockCells, distinct, rows_head},
    column_unit::ColumnUnit,
    disks,
    notes::Notes,
    number::{bound, whole_change},
    record::{absence, estimate, unavailable},
    view::{Column, Group, JudgedChange, SectionPart, Table, TableRow, Value},
    words,
};

/// Columns of a table for each cell.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Told {
    metric: Metric,
    /// Set if something is compared.
    tax: bool,
    /// Set if the tax also appears in µs, ns per KB or seconds.
    cost: bool,
    /// Set if published figures appear next to ours.
    published: bool,
    /// Unit of our levels and the published ones.
    unit: ColumnUnit,
    cost_unit: ColumnUnit,
}

pub(crate) struct Costs<'a> {
    document: &'a ResultDocument,
    options: &'a Options,
    /// Set if published figures appear next to ours, where a test has some.
    published: bool,
    /// The only MTU to report, if the others would show the same.
    column: Option<ColumnKey>,
    notes: &'a mut Notes,
    /// Unavailable rows already listed, each once.
    told: Vec<Row>,
}

/// Cells under one title of a table: a block at one MTU.
type Spot<'a> = (&'a BlockCells<'a>, ColumnKey);

impl<'a> Costs<'a> {
    pub(crate) fn new(document: &'a ResultDocument, options: &'a Options, notes: &'a mut Notes) -> Costs<'a> {
        Costs { document, options, published: false, column: None, notes, told: Vec::new() }
    }

    pub(crate) fn with_published(self, published: bool) -> Costs<'a> {
        Costs { published, ..self }
    }

    pub(crate) fn at(self, column: Option<ColumnKey>) -> Costs<'a> {
        Costs { column, ..self }
    }

    /// Returns a table for each test, with a group of columns for each transport and MTU; unusual sizes have separate
    /// tables. For blocks that show nothing, it returns a line.
    pub(crate) fn parts(&mut self, blocks: &[&BlockCells<'_>], test: TestKind, of: Metric) -> Vec<SectionPart> {
        let of_test = blocks.iter().filter(|block| block.tests().contains(&test));
        let (plain, unusual): (Vec<&BlockCells<'_>>, Vec<&BlockCells<'_>>) =
            of_test.partition(|block| block.is_plain());
        let mut tables = Vec::new();
        let mut silent = Vec::new();
        let mut telling = |costs: &Costs<'_>, blocks: &[_]| {
            let (quiet, telling): (Vec<Spot<'_>>, Vec<Spot<'_>>) =
                costs.spots(blocks, test).into_iter().partition(|spot| costs.is_silent(spot, test, of));
            silent.extend(quiet);
            telling
        };
        let spots = telling(self, &plain);
        tables.extend(self.table(&spots, test, of, None));
        for block in unusual {
            if threads::has_many(block, test) {
                tables.extend(self.by_threads(block, test, of));
                continue;
            }
            let spots = telling(self, &[block]);
            tables.extend(self.table(&spots, test, of, Some(block.title())));
        }
        let line = self.of_silent(&silent, test, of).map(SectionPart::Paragraph);
        tables.into_iter().map(SectionPart::Table).chain(line).collect()
    }

    fn spots<'b>(&self, blocks: &[&'b BlockCells<'b>], test: TestKind) -> Vec<Spot<'b>> {
        let of_block = |block: &&'b BlockCells<'b>| {
            let block = *block;
            block
                .columns()
                .into_iter()
                .map(move |column| (block, column))
                .filter(|spot| !of_spot(spot, test).is_empty())
        };
        let all = blocks.iter().flat_map(of_block);
        all.filter(|(_, column)| self.column.is_none_or(|only| only == *column)).collect()
    }

    fn table(&mut self, spots: &[Spot<'_>], test: TestKind, of: Metric, title: Option<String>) -> Option<Table> {
        let records: Vec<&CellRecord> = spots.iter().flat_map(|spot| of_spot(spot, test)).collect();
        let rows: Vec<Row> =
            distinct(spots.iter().flat_map(|(block, _)| block.records()).map(|record| record.cell.row));
        if records.is_empty() || of != Metric::of(test) && !records.iter().any(|record| level(record, of).is_some()) {
            return None;
        }
        let told = self.told(&records, of);
        let lines: Vec<TableRow> = rows.iter().filter_map(|row| self.line(*row, spots, test, told)).collect();
        let group = |(block, column): &Spot<'_>| {
            let named = if title.is_some() { column.label() } else { format!("{}, {}", block.medium, column.label()) };
            Group { title: named, columns: columns(told, test) }
        };
        Some(Table {
            caption: self.caption(test, told, title.as_deref()),
            labels: vec![rows_head(&rows).into()],
            groups: spots.iter().map(group).collect(),
            rows: lines,
            ..Table::default()
        })
    }

    fn told(&self, records: &[&CellRecord], metric: Metric) -> Told {
        let tax = records.iter().any(|record| record.tax_of(metric).is_some());
        let published = self.published && records.iter().any(|record| record.published.is_some());
        let cost = tax
            && self.options.detail
            && records.iter().filter_map(|record| record.tax_of(metric)).any(|tax| tax.delta.is_some());
        let published = published && records.iter().all(|record| metric == Metric::of(record.cell.kind()));
        let [unit, cost_unit] = units(records, metric, published);
        Told { metric, tax, cost, published, unit, cost_unit }
    }

    fn caption(&self, test: TestKind, told: Told, title: Option<&str>) -> String {
        let what = told.metric.caption(test, told.unit.text());
        let tax = if told.tax { format!(", and the tax compared with {}", self.reference()) } else { String::new() };
        let title = title.map_or(String::new(), |title| format!("{}: ", words::capital(title)));
        format!("{title}{what}{tax}")
    }

    /// Returns e.g. `native`, or `host-to-host; a step's against its path`.
    fn reference(&self) -> String {
        let baseline = self.document.baseline;
        let own = |record: &CellRecord| record.cell.row.reference(baseline) == baseline;
        match self.document.cells.iter().all(own) {
            true => baseline.to_string(),
            false => format!("{baseline}; a step's with its path"),
        }
    }

    /// Returns `None` for an unavailable row that a table above lists already.
    fn line(&mut self, row: Row, spots: &[Spot<'_>], test: TestKind, told: Told) -> Option<TableRow> {
        let records: Vec<_> = spots.iter().map(|(block, column)| block.cell(row, *column, test)).collect();
        let known: Vec<&CellRecord> = records.iter().flatten().copied().collect();
        let published = told.published && known.iter().any(|record| record.published.is_some());
        if let Some(text) = (!published).then(|| unavailable(&known, self.notes)).flatten() {
            let again = self.told.contains(&row);
            self.told.push(row);
            return (!again).then(|| TableRow::without_values(vec![row.to_string()], text));
        }
        let cells = records.into_iter().zip(spots);
        let values = cells.flat_map(|(record, (block, column))| {
            let baseline = block.cell(self.document.baseline, *column, test);
            self.values(record, baseline, told)
        });
        let values: Vec<Value> = values.collect();
        Some(TableRow::new(vec![disks::label(self.document, row, self.notes)], values))
    }

    fn values(&mut self, record: Option<&CellRecord>, baseline: Option<&CellRecord>, told: Told) -> Vec<Value> {
        let is_baseline = record.is_some_and(|record| record.cell.row == self.document.baseline);
        let mut values: Vec<Value> =
            told.metric.beside().map(|(figure, _)| beside(record, figure)).into_iter().collect();
        values.push(self.level(record, told.metric, told.unit));
        if told.tax {
            values.push(record.map_or(Value::Absent, |record| self.tax(record, told.metric)));
        }
        if told.cost {
            let delta = record.and_then(|record| record.tax_of(told.metric)).and_then(|tax| tax.delta.as_ref());
            values.push(delta.map_or("".into(), |delta| in_unit(delta, told.cost_unit).into()));
        }
        if told.published {
            let theirs = record.and_then(|record| record.published);
            let of_baseline = baseline.and_then(|record| record.published).filter(|_| !is_baseline);
            let tax = theirs.zip(of_baseline).map(|(theirs, baseline)| whole_change(theirs / baseline));
            let absent = if is_baseline { Value::from("") } else { Value::Absent };
            values.push(theirs.map_or(Value::Absent, |theirs| told.unit.given(theirs)));
            values.push(tax.map_or(absent, Value::from));
        }
        values
    }

    fn level(&mut self, record: Option<&CellRecord>, of: Metric, unit: ColumnUnit) -> Value {
        let level = record.and_then(|record| level(record, of));
        level.map_or_else(|| absence(record, self.notes), |value| unit.figure(value))
    }

    /// Cost of a cell compared with the baseline's.
    pub(crate) fn tax(&mut self, record: &CellRecord, of: Metric) -> Value {
        match record.tax_of(of) {
            Some(tax) => self.finding(record, tax),
            None if record.cell.row == self.document.baseline => {
                floor(self.document, &record.cell.block(), of).map_or("".into(), |floor| noise(floor).into())
            }
            None if record.summary.is_some() => "too few rounds".into(),
            None => Value::Absent,
        }
    }

    fn finding(&mut self, record: &CellRecord, tax: &TaxRecord) -> Value {
        if tax.verdict == Verdict::TooNoisy {
            let mark = self.notes.mark(why_noisy(self.document, record));
            return format!("too noisy to tell {mark}").into();
        }
        Value::Judged(finding(tax))
    }
}

pub(crate) fn finding(tax: &TaxRecord) -> JudgedChange {
    JudgedChange {
        ratio: tax.ratio,
        ends: Some([tax.low, tax.high]),
        verdict: Some(tax.verdict),
        words: verdict_against(tax.verdict, None, most(tax), tax.within_floor),
    }
}

/// Returns a verdict in words, e.g. `slower than native`. `most` is the share by which a cell is worse at most, for a
/// verdict without a shown difference.
pub(crate) fn verdict_against(verdict: Verdict, baseline: Option<Row>, most: f64, within_floor: bool) -> String {
    let than = baseline.map_or(String::new(), |row| format!(" than {row}"));
    let words = match verdict {
        Verdict::Slower => format!("slower{than}"),
        Verdict::Faster => format!("faster{than}"),
        Verdict::NotConfirmed => "not significant".into(),
        Verdict::NoneLarger => format!("≤ {} worse", bound(most)),
        Verdict::TooNoisy => "too noisy".into(),
        Verdict::NoneShown => "no difference shown".into(),
    };
    if within_floor { format!("{words}, within noise") } else { words }
}

fn columns(told: Told, test: TestKind) -> Vec<Column> {
    let beside = told.metric.beside().map(|(_, head)| Column::right(head));
    let mut columns: Vec<Column> =
        beside.into_iter().chain([Column::right(told.metric.head(test, told.unit.text()))]).collect();
    columns.extend(told.tax.then(|| Column::left("tax [95 %]")));
    columns.extend(told.cost.then(|| Column::right(format!("{} [95 %]", told.cost_unit.text()))));
    if told.published {
        columns.extend(["published", "published tax"].map(Column::right));
    }
    columns
}

/// Units of the levels and of the costs of these cells.
fn units(records: &[&CellRecord], metric: Metric, published: bool) -> [ColumnUnit; 2] {
    let test = records[0].cell.kind();
    let ours = records.iter().filter_map(|record| level(record, metric));
    let theirs = records.iter().filter(|_| published).filter_map(|record| record.published);
    let deltas = records.iter().filter_map(|record| record.tax_of(metric)?.delta.as_ref());
    let costs = deltas.map(|delta| figures_of(delta).map(f64::abs).into_iter().fold(0.0, f64::max));
    [ColumnUnit::of_metric(metric, test, ours.chain(theirs)), ColumnUnit::of_costs(metric, test, costs)]
}

fn of_spot<'a>((block, column): &Spot<'a>, test: TestKind) -> Vec<&'a CellRecord> {
    block.rows().into_iter().filter_map(|row| block.cell(row, *column, test)).collect()
}

/// Level of a cell by a metric, in its stored unit.
pub(crate) fn level(record: &CellRecord, of: Metric) -> Option<f64> {
    estimate(record, of).map(|estimate| estimate.mean)
}

/// Empty where there is none: the figure next to it shows the reason.
fn beside(record: Option<&CellRecord>, figure: SampleFigure) -> Value {
    let estimate = record.and_then(|record| record.summary.as_ref()?.estimate(figure));
    estimate.map_or("".into(), |estimate| Value::Figure(estimate.mean))
}

/// Formats a tax as a time: `+2.53 [2.41, 2.66]`.
fn in_unit(delta: &Delta, unit: ColumnUnit) -> String {
    unit.cost(figures_of(delta))
}

fn figures_of(Delta { delta, delta_low, delta_high, .. }: &Delta) -> [f64; 3] {
    [*delta, *delta_low, *delta_high]
}

/// Upper bound of how much worse the cell is.
pub(crate) fn at_most(tax: &TaxRecord) -> String {
    bound(most(tax))
}

/// Upper bound of how much worse the cell is, as a share. Old documents lack it.
pub(crate) fn most(tax: &TaxRecord) -> f64 {
    let costly = || tax.of.cost_ratio(tax.low).max(tax.of.cost_ratio(tax.high)) - 1.0;
    tax.at_most.unwrap_or_else(|| costly().max(0.0))
}

/// A/A difference of the baseline in these cells.
pub(crate) fn floor<'a>(document: &'a ResultDocument, block: &cell::Block, of: Metric) -> Option<&'a FloorRecord> {
    document.noise_floor.iter().find(|floor| floor.block == *block && floor.of == of)
}

/// A/A difference of the baseline as a finding.
pub(crate) fn again(floor: &FloorRecord) -> Value {
    let found =
        JudgedChange { ratio: floor.ratio, ends: Some([floor.low, floor.high]), verdict: None, words: noise(floor) };
    if is_wide(floor) { noise(floor).into() } else { Value::Judged(found) }
}

/// Returns e.g. `noise ± 1.2 %`.
fn noise(floor: &FloorRecord) -> String {
    if is_wide(floor) { "too noisy".into() } else { format!("noise ± {}", bound(floor.floor)) }
}

/// A factor of two: half the rate, twice the time.
fn is_wide(floor: &FloorRecord) -> bool {
    floor.low < 0.5 || floor.high > 2.0
}

/// Reason why a cell has no verdict, with a remedy.
pub(crate) fn why_noisy(document: &ResultDocument, record: &CellRecord) -> String {
    let causes = noise::causes(document, record);
    let told: Vec<String> = causes.iter().map(|cause| format!("{} ({})", cause.why(), cause.remedy())).collect();
    match told.is_empty() {
        true => "too noisy to tell: a factor of two would have gone unnoticed. No cause was found; more rounds \
                 (--samples) narrow the interval"
            .into(),
        false => format!("too noisy to tell: a factor of two would have gone unnoticed: {}", told.join("; ")),
    }
}
