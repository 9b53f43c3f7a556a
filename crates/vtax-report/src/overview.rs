//! The figure at the top of a page: what each row costs in each test, in the measurement mode that answers the question.

use vtax_model::{
    cell::{Cell, ColumnKey},
    metric::Metric,
    result::{CellRecord, ResultDocument, TaxRecord},
    study::Row,
    workload::TestKind,
};
use vtax_plot::{Heading, Measured, Overview, OverviewCell, OverviewLayout, OverviewRow, OverviewTest, Reach};

use super::{
    answer::{column_that_tells_all, rank},
    blocks::{BlockCells, Reported, distinct},
    charts::{DRAWN, judgement},
    column_unit::{ColumnUnit, sized},
    finding,
    number::{brief_change, brief_interval, counted},
    record::primary,
    tax, words,
};

/// Maximum number of tests: with more, the strips are too narrow for their words.
const MOST_TESTS: usize = 4;
/// Maximum number of rows that a reader can take in; those that cost most are shown.
const MOST_ROWS: usize = 24;

/// Returns `None` if nothing was compared.
pub(crate) fn overview(report: &Reported<'_>) -> Option<Overview> {
    let (mode, blocks) = report.modes().into_iter().next()?;
    let document = report.document;
    let all = spots(document, &blocks);
    let spots = few(&all);
    let mut rows = rows(&spots);
    rows.sort_by(|(_, one), (_, other)| rank(taxes(other)).total_cmp(&rank(taxes(one))));
    let compared: Vec<(&CellRecord, &TaxRecord)> =
        rows.iter().flat_map(|(_, cells)| cells.iter().copied().flatten()).collect();
    let several = report.modes().len() > 1;
    let mode = several.then(|| words::of_instrument(mode).to_owned());
    let columns = distinct(spots.iter().map(|spot| spot.column)).len() > 1;
    let names: Vec<Row> = rows.iter().map(|(row, _)| *row).collect();
    (!compared.is_empty()).then(|| Overview {
        heading: Heading::new(
            finding::of_run(document, &compared),
            summary(document, &spots, &names, all.len() - spots.len(), mode),
        ),
        baseline: document.baseline.to_string(),
        tests: spots.iter().map(|spot| spot.test(document, columns)).collect(),
        rows: rows.iter().take(MOST_ROWS).map(|(row, cells)| of_row(*row, cells)).collect(),
        layout: OverviewLayout::Wide,
    })
}

/// Returns the cells of the rows that [`overview`] draws.
pub(crate) fn cells(report: &Reported<'_>) -> Vec<Cell> {
    let Some((_, blocks)) = report.modes().into_iter().next() else { return Vec::new() };
    let all = spots(report.document, &blocks);
    let rows = rows(&few(&all));
    let drawn = if rows.len() > MOST_ROWS { &[] } else { rows.as_slice() };
    drawn.iter().flat_map(|(_, cells)| cells.iter().flatten()).map(|(record, _)| record.cell).collect()
}

/// Test of a block in one of its columns.
struct Spot<'a> {
    block: &'a BlockCells<'a>,
    test: TestKind,
    column: ColumnKey,
    /// Set if the block has this test in no column before.
    first: bool,
}

type Cells<'a> = Vec<Option<(&'a CellRecord, &'a TaxRecord)>>;

impl<'a> Spot<'a> {
    fn cell(&self, row: Row) -> Option<(&'a CellRecord, &'a TaxRecord)> {
        let record = self.block.cell(row, self.column, self.test)?;
        Some((record, record.tax_of(Metric::of(self.test))?))
    }

    fn test(&self, document: &ResultDocument, columns: bool) -> OverviewTest {
        let baseline = self.block.cell(document.baseline, self.column, self.test);
        let of = Metric::of(self.test);
        let floor = baseline.and_then(|record| tax::floor(document, &record.cell.block(), of));
        let level = baseline.and_then(primary);
        let at = if columns { self.column.label() } else { String::new() };
        let level =
            level.map(|level| format!("{} {}", document.baseline, sized(level.mean, of.figure(self.test).unit())));
        OverviewTest {
            quantity: self.test.quantity().short.to_owned(),
            conditions: words::joined([self.block.title(), at], ", "),
            level: level.unwrap_or_default(),
            noise: floor.map(|floor| floor.floor),
        }
    }
}

/// All tests with a comparison, each in all columns that add something.
fn spots<'a>(document: &ResultDocument, blocks: &[&'a BlockCells<'a>]) -> Vec<Spot<'a>> {
    let only = column_that_tells_all(document, blocks);
    let mut spots: Vec<Spot<'_>> = Vec::new();
    for test in distinct(blocks.iter().flat_map(|block| block.tests())) {
        for block in blocks {
            let wanted = |column: &ColumnKey| only.is_none_or(|only| only == *column);
            let of_column = |column| Spot { block, test, column, first: false };
            let columns = block.columns().into_iter().filter(wanted).map(of_column);
            let compared = columns.filter(|spot| block.rows().into_iter().any(|row| spot.cell(row).is_some()));
            spots.extend(compared.enumerate().map(|(index, spot)| Spot { first: index == 0, ..spot }));
        }
    }
    spots
}

/// If there are too many, the first column of each block.
fn few<'a, 'b>(all: &'b [Spot<'a>]) -> Vec<&'b Spot<'a>> {
    let many = all.len() > MOST_TESTS;
    all.iter().filter(|spot| spot.first || !many).take(MOST_TESTS).collect()
}

fn rows<'a>(spots: &[&Spot<'a>]) -> Vec<(Row, Cells<'a>)> {
    let rows = distinct(spots.iter().flat_map(|spot| spot.block.rows()));
    let cells = |row: Row| spots.iter().map(|spot| spot.cell(row)).collect();
    let rows = rows.into_iter().map(|row| (row, cells(row)));
    rows.filter(|(_, cells): &(Row, Cells<'_>)| cells.iter().any(Option::is_some)).collect()
}

fn taxes<'a>(cells: &'a Cells<'_>) -> impl Iterator<Item = &'a TaxRecord> {
    cells.iter().flatten().map(|(_, tax)| *tax)
}

fn of_row(row: Row, cells: &Cells<'_>) -> OverviewRow {
    OverviewRow { name: row.to_string(), cells: cells.iter().map(|cell| cell.map(of_cell)).collect() }
}

fn of_cell((record, tax): (&CellRecord, &TaxRecord)) -> OverviewCell {
    let interval = brief_interval(tax.low, tax.high);
    let change = brief_change(tax.ratio);
    let cost = |ratio: f64| tax.of.cost_ratio(ratio);
    let (low, high) = (cost(tax.low), cost(tax.high));
    let value = cost(tax.ratio);
    let limit = Reach { low: value / DRAWN, high: value * DRAWN };
    let in_unit = tax.delta.map(|delta| {
        let figures = [delta.delta, delta.delta_low, delta.delta_high];
        let unit = ColumnUnit::of_costs(tax.of, record.cell.kind(), figures);
        let [value, interval] = unit.split_cost(figures);
        format!("{value} {} {interval}", unit.text())
    });
    OverviewCell {
        cost: Measured::between(value, low.min(high), low.max(high)).drawn_within(limit),
        judgement: judgement(tax.verdict),
        details: words::joined([format!("{change} {interval}"), in_unit.unwrap_or_default()], "; "),
        words: change,
        interval,
    }
}

/// Returns e.g. `5 methods compared with native at MTU 1500 (controlled conditions), ordered by cost.`
fn summary(
    document: &ResultDocument,
    spots: &[&Spot<'_>],
    names: &[Row],
    further: usize,
    mode: Option<String>,
) -> String {
    let several = distinct(document.cells.iter().map(|record| record.cell.column())).len() > 1;
    let column = match distinct(spots.iter().map(|spot| spot.column)).as_slice() {
        [column] if several => format!(" {}", ColumnKey::among(&[*column])),
        _ => String::new(),
    };
    let mode = mode.map_or_else(String::new, |mode| format!(" ({mode})"));
    let own = |row: &Row| row.reference(document.baseline) == document.baseline;
    let steps = if names.iter().all(own) { "" } else { " Each step is compared with the same path without it." };
    let all = finding::rows_counted(names);
    let all = format!("{all} compared with {}{column}{mode}, ordered by cost.{steps}", document.baseline);
    let left = [
        (further > 0).then(|| counted(further as u32, "further test")),
        names.get(MOST_ROWS..).filter(|left| !left.is_empty()).map(finding::rows_counted),
    ];
    match words::list(left.into_iter().flatten(), " and ") {
        Some(left) => format!("{all} Only in the tables: {left}."),
        None => all,
    }
}
