//! What each method costs: its change against the baseline, and what the machine's noise makes of
//! a comparison of the baseline with itself.

use vtax_model::{
    cell,
    result::{CellRecord, FloorRecord, Metric, ResultDocument, TaxRecord},
    stats::verdict::Verdict,
    study::Row,
    units::Mtu,
    workload::TestKind,
};

use super::{
    blocks::{Block, quantity_of, rows_head},
    layout::{Column, Figure, Group, Row as Line, Table},
    number::{change, interval, percent},
};

/// One table a test: methods down, MTU across; none where there is nothing to compare.
pub(super) fn tables(document: &ResultDocument, block: &Block<'_>) -> Vec<Table> {
    block.tests().into_iter().filter_map(|test| table(document, block, test)).collect()
}

fn table(document: &ResultDocument, block: &Block<'_>, test: TestKind) -> Option<Table> {
    let (rows, mtus) = (block.rows(), block.mtus());
    let labels = vec![rows_head(&rows).into()];
    let lines: Vec<Line> = rows.iter().filter_map(|row| line(document, block, *row, test)).collect();
    if lines.is_empty() {
        return None;
    }
    let columns = mtus.iter().map(|mtu| Column::left(format!("MTU {mtu}"))).collect();
    let floors: Vec<_> = mtus.iter().map(|mtu| floor(document, &key(block, *mtu, test))).collect();
    Some(Table {
        caption: format!("{} against {}", quantity_of(test), document.baseline),
        labels,
        groups: vec![Group { title: String::new(), columns }],
        rows: lines,
        foot: foot(document.baseline, &floors),
    })
}

/// None for the baseline, and for a row of which nothing could be compared.
fn line(document: &ResultDocument, block: &Block<'_>, row: Row, test: TestKind) -> Option<Line> {
    let records: Vec<Option<&CellRecord>> = block.mtus().iter().map(|mtu| block.cell(row, *mtu, test)).collect();
    let compared = records.iter().flatten().any(|record| record.tax.is_some());
    let figures = records.into_iter().map(|record| record.map_or(Figure::absent(), figure)).collect();
    (compared && row != document.baseline).then(|| Line::new(row.to_string(), figures))
}

/// What a cell costs against the baseline's.
pub(super) fn figure(record: &CellRecord) -> Figure {
    match (&record.tax, &record.summary) {
        (Some(tax), _) => finding(tax),
        (None, Some(_)) => Figure::text("not compared: too few rounds"),
        (None, None) => Figure::absent(),
    }
}

fn finding(tax: &TaxRecord) -> Figure {
    match (tax.verdict, tax.could_show) {
        (Verdict::Slower, _) => shown(tax, "slower"),
        (Verdict::Faster, _) => shown(tax, "faster"),
        (_, Some(least)) => Figure::text(format!("no difference shown (could show ≥ {})", percent(least))),
        (_, None) => Figure::text("no difference shown (too few rounds)"),
    }
}

fn shown(tax: &TaxRecord, word: &str) -> Figure {
    Figure::Change([change(tax.ratio), interval(tax.low, tax.high), word.into()])
}

fn key(block: &Block<'_>, mtu: Mtu, test: TestKind) -> cell::Block {
    let Block { transport, streams, variant, instrument, .. } = *block;
    cell::Block { transport, test, streams, mtu, variant, instrument }
}

/// What the baseline against itself showed in these cells.
pub(super) fn floor<'a>(document: &'a ResultDocument, block: &cell::Block) -> Option<&'a FloorRecord> {
    let key = |floor: &FloorRecord| {
        let FloorRecord { transport, test, streams, mtu, variant, instrument, .. } = *floor;
        cell::Block { transport, test, streams, mtu, variant, instrument }
    };
    document.noise_floor.iter().find(|floor| key(floor) == *block && floor.of == Metric::of(block.test))
}

fn foot(baseline: Row, floors: &[Option<&FloorRecord>]) -> Vec<Line> {
    if floors.iter().all(Option::is_none) {
        return Vec::new();
    }
    let least = |floor: &FloorRecord| match floor.smallest_shown {
        Some(least) => Figure::text(format!("a single comparison could show ≥ {}", percent(least))),
        None => Figure::text("too few rounds to show any difference"),
    };
    let line = |label: String, figure: &dyn Fn(&FloorRecord) -> Figure| {
        Line::new(label, floors.iter().map(|floor| floor.map_or(Figure::absent(), figure)).collect())
    };
    vec![line(format!("{baseline} again"), &again), line(String::new(), &least)]
}

/// The baseline against itself.
pub(super) fn again(floor: &FloorRecord) -> Figure {
    let word = format!("noise floor {}", percent(floor.floor));
    Figure::Change([change(floor.ratio), interval(floor.low, floor.high), word])
}
