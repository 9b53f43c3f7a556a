//! Comparison of two runs, cell by cell.
//!
//! Nothing is paired here, and anything else that changed between the two runs is part of the difference; the report
//! states that before its first figure.

mod misgivings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vtax_model::{
    cell::{Block, Cell, ColumnKey, Instrument},
    metric::Metric,
    result::{CellRecord, ResultDocument},
    run::Difference,
    study::Row,
};
use vtax_stats::{IndependentRatio, PValue, Preference, Significance, Verdict, holm, median};

pub(crate) use misgivings::sampling;
use misgivings::{instruments, misgivings};

use super::{
    blocks::{distinct, grouped, rows_head, sizes},
    column_unit::ColumnUnit,
    disks,
    heading::{date, plan},
    labels,
    number::{brief_change, brief_interval, counted},
    view::{Column, Group, JudgedChange, Section, SectionPart, Table, TableRow, Value, View},
    words,
};

/// Maximum number of cells that an answer names.
const NAMED: usize = 6;

/// Schema of [`RunComparison`] as JSON.
const SCHEMA: &str = "vtax.comparison/v1";

/// Comparison of two runs, cell by cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    schema: &'static str,
    a: RunNamed,
    b: RunNamed,
    /// Caveat that applies to every figure, if one of the runs is of an emulated server or was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) caveat: Option<String>,
    /// Reasons against comparing these two runs, a sentence each.
    warnings: Vec<String>,
    /// Other differences between the runs: name, first, second.
    differences: Vec<(String, String, String)>,
    pub(crate) cells: Vec<Compared>,
    /// Rows with figures in only one of the runs, with that run.
    alone: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RunNamed {
    id: String,
    title: String,
    started: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Compared {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) of: Metric,
    /// Medians over the rounds of each run: µs, Mb/s or seconds.
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) a_rounds: usize,
    pub(crate) b_rounds: usize,
    /// Second run over first run.
    pub(crate) ratio: f64,
    /// Bounds of the 95 % interval; absent if there are too few rounds for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) high: Option<f64>,
    /// Exact Mann-Whitney p of this cell alone.
    pub(crate) p: f64,
    pub(crate) p_adjusted: f64,
    /// Verdict on the second run.
    pub(crate) verdict: Verdict,
}

/// Compares the second run with the first, by this metric in tests that have it, or by each test's own.
pub fn compare(a: &ResultDocument, b: &ResultDocument, metric: Option<Metric>) -> RunComparison {
    let mut cells: Vec<Compared> = a.cells.iter().filter_map(|record| compared(record, b, metric)).collect();
    judge(&mut cells);
    let alone = [(a, b), (b, a)].into_iter().flat_map(|(one, other)| only_in(one, other)).collect();
    let (caveat, warnings, differences) = (caveat(a, b), misgivings(a, b), differences(a, b));
    RunComparison { schema: SCHEMA, a: named(a), b: named(b), caveat, warnings, differences, cells, alone }
}

fn caveat(a: &ResultDocument, b: &ResultDocument) -> Option<String> {
    match (&a.caveat, &b.caveat) {
        (None, None) => None,
        (Some(first), Some(second)) if first == second => Some(first.to_string()),
        (Some(first), Some(second)) => Some(format!("the first run: {first}; the second run: {second}")),
        (Some(first), None) => Some(format!("the first run: {first}")),
        (None, Some(second)) => Some(format!("the second run: {second}")),
    }
}

fn named(document: &ResultDocument) -> RunNamed {
    RunNamed { id: document.id.clone(), title: document.heading(), started: document.started.clone() }
}

/// Compares by what was measured: the index of a swept value depends on the other values that were swept.
pub(crate) fn is_same(other: Cell, cell: Cell) -> bool {
    Cell { variant: cell.variant, ..other } == cell
}

fn of_cell(document: &ResultDocument, cell: Cell) -> Option<&CellRecord> {
    document.cells.iter().find(|record| is_same(record.cell, cell))
}

/// Compares a cell without correction; Holm's correction over all cells follows later.
fn compared(record: &CellRecord, other: &ResultDocument, metric: Option<Metric>) -> Option<Compared> {
    let cell = record.cell;
    let of = Metric::chosen(metric, cell.kind())?;
    let (a, b) = (rounds_of(record, of), rounds_of(of_cell(other, cell)?, of));
    let found = IndependentRatio::of(&a, &b)?;
    let (low, high) = found.interval.unzip();
    Some(Compared {
        cell,
        of,
        a: median(&a),
        b: median(&b),
        a_rounds: a.len(),
        b_rounds: b.len(),
        ratio: found.ratio,
        low,
        high,
        p: found.p,
        p_adjusted: found.p,
        verdict: Verdict::NoneShown,
    })
}

/// Figures of a metric, one per round: the baseline's two samples of a round share its conditions, so they count as one.
pub(crate) fn rounds_of(record: &CellRecord, metric: Metric) -> Vec<f64> {
    let test = record.cell.kind();
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in &record.samples {
        rounds.entry(sample.round).or_default().push(sample.metric(metric, test));
    }
    let geometric = |values: Vec<f64>| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp();
    rounds.into_values().map(geometric).filter(|value| value.is_finite() && *value > 0.0).collect()
}

fn judge(cells: &mut [Compared]) {
    let p_values: Vec<PValue> = cells.iter().map(|cell| PValue::new(cell.p).unwrap_or(PValue::ONE)).collect();
    for (cell, adjusted) in cells.iter_mut().zip(holm(&p_values)) {
        cell.p_adjusted = adjusted.get();
        let apart = cell.low.zip(cell.high).is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        if apart && cell.p_adjusted < Significance::FIVE_PERCENT.get() {
            let worse = (cell.ratio > 1.0) == (cell.of.direction() == Preference::LowerIsBetter);
            cell.verdict = if worse { Verdict::Slower } else { Verdict::Faster };
        }
    }
}

/// Rows with figures in `one` that the other run lacks, each with its number of cells.
fn only_in(one: &ResultDocument, other: &ResultDocument) -> Vec<String> {
    let measured = |record: &CellRecord| !record.samples.is_empty();
    let missing = |record: &&CellRecord| !of_cell(other, record.cell).is_some_and(measured);
    let alone = one.cells.iter().filter(|record| measured(record)).filter(missing).map(|record| record.cell);
    let rows = grouped(alone.map(|cell| ((cell.row, cell.instrument), cell)));
    let several =
        instruments(one).iter().chain(&instruments(other)).any(|by| *by != words::of_instrument(Instrument::System));
    let line = |((row, instrument), cells): &((Row, Instrument), Vec<Cell>)| {
        let by = if several { format!(" ({})", words::of_instrument(*instrument)) } else { String::new() };
        format!("{row}, {}{by}: in {} only", counted(cells.len() as u32, "cell"), one.id)
    };
    rows.iter().map(line).collect()
}

/// Returns nothing for imported runs: almost nothing is known about them.
pub(crate) fn differences(a: &ResultDocument, b: &ResultDocument) -> Vec<(String, String, String)> {
    if a.imported.is_some() || b.imported.is_some() {
        return Vec::new();
    }
    let of = |name: &str, text: fn(&ResultDocument) -> String| (name.to_owned(), text(a), text(b));
    let settings = [
        of("study", |run| run.study.clone()),
        of("plan", plan),
        of("disks", |run| disks::facts(run).join("; ")),
        of("both endpoints", |run| run.both.to_string()),
        of("initiator's CPUs", |run| format!("{:?}", run.placement.initiator)),
        of("responder's CPUs", |run| format!("{:?}", run.placement.responder)),
    ];
    settings.into_iter().chain(machines(a, b)).filter(|(_, first, second)| first != second).collect()
}

/// All fields of the two machines. A field that one run lacks is empty there.
fn machines(a: &ResultDocument, b: &ResultDocument) -> Vec<(String, String, String)> {
    let [first, second] = [a, b].map(|document| BTreeMap::from_iter(words::flattened(&document.environment)));
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let of = |fields: &BTreeMap<String, String>, name| fields.get(name).map_or("not reported".into(), String::clone);
    names.into_iter().map(|name| (name.replace('_', " "), of(&first, name), of(&second, name))).collect()
}

impl RunComparison {
    /// Returns the reason why nothing is compared, if nothing is.
    pub fn nothing_in_common(&self) -> Option<String> {
        let alone: Vec<&str> = self.alone.iter().take(NAMED).map(String::as_str).collect();
        let more = if self.alone.len() > NAMED { "; …" } else { "" };
        self.cells.is_empty().then(|| match alone.is_empty() {
            true => "neither run has a stored sample".to_owned(),
            false => format!(
                "they have no cell in common (same row, MTU, test, sizes and options): {}{more}",
                alone.join("; ")
            ),
        })
    }

    pub(crate) fn view(&self) -> View {
        let fact = |name, run: &RunNamed| (name, format!("{}, {}, {}", run.id, date(&run.started), run.title));
        let blocks = distinct(self.cells.iter().map(block));
        let mut sections: Vec<Section> = blocks.into_iter().map(|block| self.section(block)).collect();
        let different = self
            .differences
            .iter()
            .map(|(name, a, b)| format!("{name}: {a} in the first run, {b} in the second"))
            .collect();
        sections.extend(Section::bullets("Other differences", different));
        sections.extend(Section::bullets("Not compared", self.alone.clone()));
        sections.push(reading());
        View {
            title: "Run comparison".into(),
            warnings: self.all_warnings(),
            facts: vec![fact("first", &self.a), fact("second", &self.b)],
            sections,
            answer: self.answer(),
        }
        .with_caveat(self.caveat.as_deref())
    }

    /// Returns the cells in which the second run is shown to be worse by more than this limit.
    pub fn worse_than(&self, limit: Difference) -> Vec<String> {
        let cost = |cell: &Compared| cell.of.cost_ratio(cell.ratio).ln();
        let worse = |cell: &&Compared| cell.verdict == Verdict::Slower && cost(cell) > limit.log();
        self.cells.iter().filter(worse).map(|cell| self.told(cell)).collect()
    }

    /// Returns the differences that are shown, largest first.
    fn answer(&self) -> Option<Section> {
        let size = |cell: &Compared| cell.ratio.ln().abs();
        let of = |verdict: Verdict, words: &str| {
            let mut cells: Vec<&Compared> = self.cells.iter().filter(|cell| cell.verdict == verdict).collect();
            cells.sort_by(|one, other| size(other).total_cmp(&size(one)));
            let more = cells.len().saturating_sub(NAMED);
            let named = words::list(cells.into_iter().take(NAMED).map(|cell| self.told(cell)), "; ")?;
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            Some(format!("{words}: {named}{more}"))
        };
        let rest = self.cells.iter().filter(|cell| !cell.verdict.is_shown()).count();
        let rest = (rest > 0).then(|| format!("no difference shown: {rest} of {} cells", self.cells.len()));
        let lines = [of(Verdict::Slower, "slower"), of(Verdict::Faster, "faster"), rest];
        Section::bullets("", lines.into_iter().flatten().collect())
    }

    /// Returns e.g. `bridge TCP RR at MTU 1500 +4.1 % [+3.2, +5.0]`.
    fn told(&self, Compared { cell, ratio, low, high, .. }: &Compared) -> String {
        let interval = low.zip(*high).map_or(String::new(), |(low, high)| format!(" {}", brief_interval(low, high)));
        let several = self.cells.iter().any(|other| other.cell.column() != cell.column());
        let column = if several { format!(" {}", ColumnKey::among(&[cell.column()])) } else { String::new() };
        format!("{} {}{column} {}{interval}", cell.row, labels::test(cell), brief_change(*ratio))
    }

    fn all_warnings(&self) -> Vec<String> {
        let caveat = self.caveat.iter().map(|caveat| format!("{}.", words::capital(caveat)));
        let at_different_times = "The two runs took place at different times: anything else that changed on the machine \
                                  is part of every difference below. To judge a change, measure both variants in one \
                                  run.";
        caveat.chain(self.warnings.iter().cloned()).chain([at_different_times.to_owned()]).collect()
    }

    fn section(&self, wanted: Block) -> Section {
        let (medium, parallel, instrument) = (wanted.test.medium(), wanted.test.parallel(), wanted.instrument);
        let mut cells: Vec<&Compared> = self.cells.iter().filter(|compared| block(compared) == wanted).collect();
        let rows: Vec<Row> = cells.iter().map(|compared| compared.cell.row).collect();
        let place = |row: Row| rows.iter().position(|known| *known == row);
        cells.sort_by_key(|compared| place(compared.cell.row));
        // Disk tests differ by their blocks, which `disk` alone doesn't show.
        let of_disks = cells[0].cell.net().is_none().then(|| words::capital(&sizes(&cells[0].cell)));
        let medium_told = of_disks.filter(|told| !told.is_empty()).unwrap_or_else(|| medium.to_string());
        let mut title = match self.cells.iter().all(|compared| compared.cell.instrument == Instrument::System) {
            true => medium_told.clone(),
            false => format!("{}, {medium_told}", words::capital(words::of_instrument(instrument))),
        };
        if parallel != 1 {
            title += &format!(", {}", medium.counted(parallel));
        }
        let swept = self.of_sweep(cells[0]).into_iter();
        swept.filter(|text| !medium_told.eq_ignore_ascii_case(text)).for_each(|text| title += &format!(", {text}"));
        let figures = cells.iter().flat_map(|compared| [compared.a, compared.b]);
        let of = cells[0].of;
        let unit = ColumnUnit::of_metric(of, wanted.kind(), figures);
        let columns = [Column::right("first"), Column::right("second"), Column::left("change [95 % interval]")];
        let table = Table {
            labels: vec![rows_head(&rows).into(), wanted.test.column().head().into()],
            groups: vec![Group::untitled(columns)],
            rows: cells.into_iter().map(|compared| line(compared, unit)).collect(),
            ..Table::default()
        };
        Section::of(format!("{title}: {}", of.quantity(wanted.kind(), unit.text())), vec![SectionPart::Table(table)])
    }

    /// Text that distinguishes a cell from those of its kind with another swept value; empty if there are none.
    fn of_sweep(&self, compared: &Compared) -> Vec<String> {
        let own = block(compared);
        let others = self.cells.iter().map(block).filter(|other| Block { variant: own.variant, ..*other } == own);
        if distinct(others).iter().all(|other| other.variant == own.variant) {
            return Vec::new();
        }
        let varying = words::varying(self.cells.iter().map(|compared| &compared.cell));
        let options = words::of_keys(&compared.cell.options(), &varying);
        let sizes = Some(sizes(&compared.cell)).filter(|text| !text.is_empty());
        sizes.into_iter().chain(options).collect()
    }
}

/// Block of a cell. A table has its block's cells of every column, so the block is the same in all.
fn block(compared: &Compared) -> Block {
    let block = compared.cell.block();
    Block { test: block.test.in_any_column(), ..block }
}

fn line(compared: &Compared, unit: ColumnUnit) -> TableRow {
    let figure = |value: f64| unit.figure(value);
    let word = match (compared.verdict, compared.low) {
        (Verdict::Slower, _) => "slower",
        (Verdict::Faster, _) => "faster",
        (_, Some(_)) => "no difference shown",
        (_, None) => "too few rounds",
    };
    let ends = compared.low.zip(compared.high).map(<[f64; 2]>::from);
    let (verdict, words) = (Some(compared.verdict), word.into());
    let finding = Value::Judged(JudgedChange { ratio: compared.ratio, ends, verdict, words });
    let labels = vec![compared.cell.row.to_string(), compared.cell.column().to_string()];
    TableRow::new(labels, [figure(compared.a), figure(compared.b), finding])
}

fn reading() -> Section {
    let text = "First and second: medians over rounds. Change: Hodges-Lehmann ratio of the second run to the \
                first with its exact Mann-Whitney interval. Slower, faster: significant at 5 % after Holm's \
                correction for all cells.";
    Section::of("Legend", vec![SectionPart::Paragraph(text.into())])
}
