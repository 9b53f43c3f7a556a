//! CPU time of the measuring threads, in short: what each row takes more than the baseline.

use vtax_model::{
    cell::Instrument,
    result::{CellRecord, Metric},
    study::Row,
    units::Mtu,
    workload::TestKind,
};

use super::{
    blocks::{BlockCells, distinct, rows_head},
    layout::{Figure, Group, Table, TableRow},
    number::or_dash,
    tax::{self, Costs},
};

/// The columns under one title.
struct Titled<'a> {
    block: &'a BlockCells<'a>,
    test: TestKind,
    mtus: Vec<Mtu>,
}

/// None if both ends share a CPU, whose time the tables of speed have, if no end told of its threads, or if nothing was
/// compared. Blocks that differ in more than their transport have such tables with --detail.
pub(crate) fn table(costs: &mut Costs<'_>, blocks: &[&BlockCells<'_>]) -> Option<Table> {
    let shared = costs.document.placement.path.is_some();
    if shared && blocks.iter().all(|block| block.instrument == Instrument::Path) {
        return None;
    }
    let plain: Vec<&BlockCells<'_>> = blocks.iter().copied().filter(|block| block.is_plain()).collect();
    if plain.is_empty() && blocks.len() == 1 { of_blocks(costs, blocks) } else { of_blocks(costs, &plain) }
}

fn of_blocks(costs: &mut Costs<'_>, blocks: &[&BlockCells<'_>]) -> Option<Table> {
    let tests = distinct(blocks.iter().flat_map(|block| block.tests()));
    let of_block = |test: TestKind| blocks.iter().filter_map(move |block| titled(block, test));
    let groups: Vec<Titled<'_>> = tests.into_iter().flat_map(of_block).collect();
    let rows: Vec<Row> = distinct(blocks.iter().flat_map(|block| block.rows()));
    let mut lines = Vec::new();
    for row in &rows {
        let records: Vec<Option<&CellRecord>> = groups.iter().flat_map(|group| group.records(*row)).collect();
        if records.iter().flatten().any(|record| tax::level(record, Metric::Cpu).is_some()) {
            let figures: Vec<Figure> = records.into_iter().map(|record| figure(costs, record)).collect();
            lines.push(TableRow::new(vec![row.to_string()], figures));
        }
    }
    let baseline = costs.document.baseline;
    let title = |Titled { block, test, mtus }: &Titled<'_>| {
        Group::right(format!("{} {test}", block.transport), mtus.iter().map(ToString::to_string))
    };
    (!groups.is_empty() && !lines.is_empty()).then(|| Table {
        caption: format!(
            "CPU of both ends' threads by MTU: {baseline}'s in {}, and what the others cost more",
            units(&groups)
        ),
        labels: vec![rows_head(&rows).into()],
        groups: groups.iter().map(title).collect(),
        rows: lines,
        ..Table::default()
    })
}

fn titled<'a>(block: &'a BlockCells<'a>, test: TestKind) -> Option<Titled<'a>> {
    let compared = |record: &&CellRecord| record.cell.workload.kind() == test && record.tax_of(Metric::Cpu).is_some();
    let mtus = distinct(block.records().filter(compared).map(|record| record.cell.mtu));
    (!mtus.is_empty()).then_some(Titled { block, test, mtus })
}

fn units(groups: &[Titled<'_>]) -> &'static str {
    let transactions = |group: &Titled<'_>| group.test.is_transactions();
    match (groups.iter().any(transactions), groups.iter().all(transactions)) {
        (_, true) => "µs",
        (true, false) => "µs (streams: ns/KB)",
        (false, false) => "ns/KB",
    }
}

impl Titled<'_> {
    fn records(&self, row: Row) -> Vec<Option<&CellRecord>> {
        self.mtus.iter().map(|mtu| self.block.cell(row, *mtu, self.test)).collect()
    }
}

fn figure(costs: &mut Costs<'_>, record: Option<&CellRecord>) -> Figure {
    let Some(record) = record else { return Figure::absent() };
    match record.tax_of(Metric::Cpu) {
        Some(tax) => costs.word(record, tax).into(),
        None => or_dash(tax::level(record, Metric::Cpu)).into(),
    }
}
