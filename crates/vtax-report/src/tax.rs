//! What each row costs against the baseline: level, cost with its interval, and what is shown. The baseline's own row
//! has its cost against itself, measured twice in each round: that is noise alone.

use vtax_model::{
    analysis::noise,
    cell,
    result::{CellRecord, CostUnit, Delta, FloorRecord, Metric, ResultDocument, TaxRecord},
    study::Row,
    units::Mtu,
    workload::TestKind,
};
use vtax_stats::verdict::Verdict;

use super::{
    Format, Options,
    blocks::{self, BlockCells, distinct, names, rows_head},
    layout::{Column, Figure, Group, Table, TableRow},
    notes::Notes,
    number::{bound, brief_change, brief_cost, change, cost, interval, seconds, three_digits},
    record::{absence, compares_engines, estimate, unavailable},
};

/// From this width on two groups of columns fit beside each other with their verdicts in words.
const WIDE: usize = 110;

/// How many groups of columns with level, cost and verdict fit; a table of more groups has only the costs.
const GROUPS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing is compared: the level alone.
    Level,
    /// Level and cost, each in a column.
    LevelAndCost,
    /// One column: the level in the baseline's row, the cost in all others.
    CostAlone,
}

pub(crate) struct Costs<'a> {
    pub(crate) document: &'a ResultDocument,
    /// Verdicts in words, where there is room; else in marks.
    pub(crate) words: bool,
    /// Whether tables of many groups are short.
    short: bool,
    pub(crate) notes: &'a mut Notes,
    /// Rows that can't run here, once each.
    told: Vec<Row>,
}

pub(crate) fn in_words(document: &ResultDocument, options: &Options) -> bool {
    options.format == Format::Markdown || options.detail && options.width >= WIDE || compares_engines(document)
}

/// The cells under one title of a table: a block at one MTU.
type Spot<'a> = (&'a BlockCells<'a>, Mtu);

impl<'a> Costs<'a> {
    pub(crate) fn new(document: &'a ResultDocument, options: &Options, notes: &'a mut Notes) -> Costs<'a> {
        let words = in_words(document, options);
        Costs { document, words, short: !words && !options.detail, notes, told: Vec::new() }
    }

    /// A table for each test, with a group of columns for each transport and MTU; unusual sizes have their own tables.
    pub(crate) fn tables(&mut self, blocks: &[&BlockCells<'_>], test: TestKind, of: Metric) -> Vec<Table> {
        let of_test = blocks.iter().filter(|block| block.tests().contains(&test));
        let (plain, unusual): (Vec<&BlockCells<'_>>, Vec<&BlockCells<'_>>) =
            of_test.partition(|block| block.is_plain());
        let mut tables = Vec::new();
        tables.extend(self.table(&spots(&plain, test), test, of, None));
        for block in unusual {
            tables.extend(self.table(&spots(&[block], test), test, of, Some(block.title())));
        }
        tables
    }

    fn table(&mut self, spots: &[Spot<'_>], test: TestKind, of: Metric, title: Option<String>) -> Option<Table> {
        let records = || spots.iter().flat_map(|(block, _)| block.records());
        let rows: Vec<Row> = distinct(records().map(|record| record.cell.row));
        let compared = records().any(|record| record.tax_of(of).is_some());
        let any = records().any(|record| record.cell.workload.kind() == test && level(record, of).is_some());
        let any_row = rows.iter().any(|row| spots.iter().any(|(block, mtu)| block.cell(*row, *mtu, test).is_some()));
        if !any && (of == Metric::Cpu || !any_row) {
            return None;
        }
        let told = match (compared, self.short && spots.len() > GROUPS) {
            (false, _) => Told::Level,
            (true, false) => Told::LevelAndCost,
            (true, true) => Told::CostAlone,
        };
        let lines: Vec<TableRow> = rows.iter().filter_map(|row| self.line(*row, spots, test, of, told)).collect();
        let group = |(block, mtu): &Spot<'_>| {
            let named = if title.is_some() { format!("MTU {mtu}") } else { format!("{}, MTU {mtu}", block.transport) };
            let level = Column::right(level_head(test, of));
            match told {
                Told::Level => Group { title: named, columns: vec![level] },
                Told::LevelAndCost => Group { title: named, columns: vec![level, Column::left("cost [95 %]")] },
                Told::CostAlone => Group { title: String::new(), columns: vec![Column::left(named)] },
            }
        };
        Some(Table {
            caption: self.caption(test, of, title.as_deref(), told),
            labels: vec![rows_head(&rows).into()],
            groups: spots.iter().map(group).collect(),
            rows: lines,
            ..Table::default()
        })
    }

    fn caption(&self, test: TestKind, of: Metric, title: Option<&str>, told: Told) -> String {
        let what = match of {
            Metric::Cpu if test.is_transactions() => format!("CPU of both ends' threads, {test}: µs"),
            Metric::Cpu => format!("CPU of both ends' threads, {test}: ns per KB"),
            _ => format!("{}: {}", names(test)[1], blocks::unit(of)),
        };
        let baseline = self.document.baseline;
        let cost = match (told, of) {
            (Told::Level, _) => String::new(),
            (Told::CostAlone, Metric::Goodput) => {
                format!(", {baseline}'s ± its noise floor; what the others cost in ns/KB, ± 95 %, and in %")
            }
            (Told::CostAlone, _) => format!(", {baseline}'s ± its noise floor; what the others cost, ± 95 %, and in %"),
            (Told::LevelAndCost, Metric::Goodput) => format!("; cost against {baseline} in ns/KB"),
            (Told::LevelAndCost, _) => format!("; cost against {baseline}"),
        };
        let title = title.map_or(String::new(), |title| format!("{title}. "));
        format!("{title}{what}{cost}")
    }

    /// None for a row that can't run here, if a table above says so.
    fn line(&mut self, row: Row, spots: &[Spot<'_>], test: TestKind, of: Metric, told: Told) -> Option<TableRow> {
        let records: Vec<_> = spots.iter().map(|(block, mtu)| block.cell(row, *mtu, test)).collect();
        let known: Vec<&CellRecord> = records.iter().flatten().copied().collect();
        if let Some(text) = unavailable(&known, self.notes) {
            let again = self.told.contains(&row);
            self.told.push(row);
            return (!again).then(|| TableRow::without_figures(vec![row.to_string()], text));
        }
        let mut figures = Vec::new();
        for record in records {
            match (told, record.filter(|record| level(record, of).is_some())) {
                (Told::CostAlone, Some(record)) => figures.push(self.cost_alone(record, of)),
                _ => figures.push(self.level(record, of)),
            }
            if told == Told::LevelAndCost {
                figures.push(record.map_or(Figure::absent(), |record| self.figure(record, of)));
            }
        }
        Some(TableRow::new(vec![row.to_string()], figures))
    }

    fn level(&mut self, record: Option<&CellRecord>, of: Metric) -> Figure {
        let told = record.and_then(|record| level(record, of)).map(|value| level_text(of, value).into());
        told.unwrap_or_else(|| absence(record, self.notes))
    }

    /// The baseline's level with its noise floor; what another row costs, with the longer half of its interval.
    fn cost_alone(&mut self, record: &CellRecord, of: Metric) -> Figure {
        match record.tax_of(of) {
            Some(tax) => self.finding(record, tax, brief_cost),
            None if record.cell.row == self.document.baseline => {
                let level = level(record, of).map_or(String::new(), |value| level_text(of, value));
                let noise = floor(self.document, &record.cell.block(), of).map(noise).unwrap_or_default();
                format!("{level} {noise}").trim_end().into()
            }
            None => "too few rounds".into(),
        }
    }

    /// What a cell costs against the baseline's.
    pub(crate) fn figure(&mut self, record: &CellRecord, of: Metric) -> Figure {
        match record.tax_of(of) {
            Some(tax) => self.finding(record, tax, cost),
            None if record.cell.row == self.document.baseline => {
                floor(self.document, &record.cell.block(), of).map_or("".into(), again)
            }
            None if record.summary.is_some() => "too few rounds".into(),
            None => Figure::absent(),
        }
    }

    fn finding(&mut self, record: &CellRecord, tax: &TaxRecord, cost: CostText) -> Figure {
        let word = self.word(record, tax);
        if tax.verdict == Verdict::TooNoisy {
            return word.into();
        }
        let [change, interval] = of_ratio([tax.ratio, tax.low, tax.high], tax.delta.as_ref(), cost);
        Figure::Change([change, interval, word])
    }

    /// The verdict, short or in words: `?` is not confirmed, `~` is within the noise floor.
    pub(crate) fn word(&mut self, record: &CellRecord, tax: &TaxRecord) -> String {
        let percent = brief_change(tax.ratio);
        let text = match (tax.verdict, self.words) {
            (Verdict::Slower, false) => percent,
            (Verdict::Slower, true) => format!("{percent} slower"),
            (Verdict::Faster, _) => format!("{percent} faster"),
            (Verdict::NotConfirmed, false) => format!("{percent}?"),
            (Verdict::NotConfirmed, true) => format!("{percent} not confirmed"),
            (Verdict::NoneLarger, false) => format!("≤ {}", at_most(tax)),
            (Verdict::NoneLarger, true) => format!("costs at most {}", at_most(tax)),
            (Verdict::TooNoisy, _) => {
                return format!("too noisy {}", self.notes.mark(why_noisy(self.document, record)));
            }
            (Verdict::NoneShown, _) => format!("{percent} not shown"),
        };
        match (tax.within_floor, self.words) {
            (false, _) => text,
            (true, false) => format!("{text}~"),
            (true, true) => format!("{text}, within noise"),
        }
    }
}

fn spots<'a>(blocks: &[&'a BlockCells<'a>], test: TestKind) -> Vec<Spot<'a>> {
    let of_block = |block: &&'a BlockCells<'a>| {
        let block = *block;
        let has = move |mtu: &Mtu| block.rows().into_iter().any(|row| block.cell(row, *mtu, test).is_some());
        block.mtus().into_iter().filter(has).map(move |mtu| (block, mtu)).collect::<Vec<_>>()
    };
    blocks.iter().flat_map(of_block).collect()
}

/// The figure of a cell by a metric, in the unit of its table.
pub(crate) fn level(record: &CellRecord, of: Metric) -> Option<f64> {
    estimate(record, of).map(|estimate| estimate.mean)
}

fn level_text(of: Metric, value: f64) -> String {
    if of == Metric::Real { seconds(value) } else { three_digits(value) }
}

fn level_head(test: TestKind, of: Metric) -> &'static str {
    match of {
        Metric::Rtt => names(test)[0],
        Metric::Cpu => "CPU",
        Metric::Goodput | Metric::Real => blocks::unit(of),
    }
}

/// How a cost and the ends of its interval are written.
type CostText = fn(f64, f64, f64) -> [String; 2];

/// Cost and interval as times; of old documents, which have none, as shares.
fn of_ratio([ratio, low, high]: [f64; 3], delta: Option<&Delta>, cost: CostText) -> [String; 2] {
    match delta {
        Some(Delta { delta, delta_low, delta_high, .. }) => cost(*delta, *delta_low, *delta_high),
        None => [change(ratio), interval(low, high)],
    }
}

/// By how much it is worse at most.
pub(crate) fn at_most(tax: &TaxRecord) -> String {
    bound(most(tax))
}

/// The same as a share. Old documents don't say.
pub(crate) fn most(tax: &TaxRecord) -> f64 {
    let costly = || tax.of.cost_ratio(tax.low).max(tax.of.cost_ratio(tax.high)) - 1.0;
    tax.at_most.unwrap_or_else(|| costly().max(0.0))
}

/// What the baseline against itself showed in these cells.
pub(crate) fn floor<'a>(document: &'a ResultDocument, block: &cell::Block, of: Metric) -> Option<&'a FloorRecord> {
    document.noise_floor.iter().find(|floor| floor.block == *block && floor.of == of)
}

pub(crate) fn again(floor: &FloorRecord) -> Figure {
    if is_wide(floor) {
        return noise(floor).into();
    }
    let [change, interval] = of_ratio([floor.ratio, floor.low, floor.high], floor.delta.as_ref(), cost);
    Figure::Change([change, interval, noise(floor)])
}

/// `± 1.2 %`
fn noise(floor: &FloorRecord) -> String {
    if is_wide(floor) { "too noisy".into() } else { format!("± {}", bound(floor.floor)) }
}

/// A factor of two: a rate half as high, a time twice as long.
fn is_wide(floor: &FloorRecord) -> bool {
    floor.low < 0.5 || floor.high > 2.0
}

/// Why nothing can be told of a cell, and what would help.
pub(crate) fn why_noisy(document: &ResultDocument, record: &CellRecord) -> String {
    let causes = noise::causes(document, record);
    let told: Vec<String> = causes.iter().map(|cause| format!("{} ({})", cause.why(), cause.remedy())).collect();
    match told.is_empty() {
        true => "too noisy to tell, a factor of two would not have been noticed. No cause was found; more rounds \
                 (--samples) narrow it"
            .into(),
        false => format!("too noisy to tell, a factor of two would not have been noticed: {}", told.join("; ")),
    }
}

pub(crate) fn unit(unit: CostUnit) -> &'static str {
    match unit {
        CostUnit::Microseconds => "µs",
        CostUnit::NanosecondsPerKb => "ns/KB",
        CostUnit::Seconds => "s",
    }
}
