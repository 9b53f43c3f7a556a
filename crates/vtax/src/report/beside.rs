//! A source's figures beside ours, as the table that it prints: for each test a row for each method and, MTU
//! by MTU, our figure with its interval and its tax, and the published figure with the tax that is in it.

use vtax_model::{
    result::{CellRecord, CellStatus, Estimate, ResultDocument, TaxRecord},
    study::Row,
    units::Mtu,
    workload::TestKind,
};

use super::{
    blocks::{BlockCells, blocks, quantity, rows_head},
    layout::{Column, Figure, Group, RowValues, Table, TableRow},
    notes::Notes,
    number::{change, give_or_take, whole_change},
    record::{absence, primary},
};

/// Whether a reader would look for the published figures: a row that is held against the baseline has some,
/// and was measured.
pub(super) fn is_worth_it(document: &ResultDocument) -> bool {
    let others = document.cells.iter().filter(|record| record.cell.row != document.baseline);
    others.filter(|record| record.summary.is_some()).any(has_published)
}

fn has_published(record: &CellRecord) -> bool {
    record.published.is_some() || !record.published_on.is_empty()
}

/// Whether a test has such a table: the figures of several machines would make it too wide.
pub(super) fn is_of(block: &BlockCells<'_>, test: TestKind) -> bool {
    block.records().any(|record| record.cell.workload.kind() == test && record.published.is_some())
}

/// What the columns mean, if a block of the document has such a table.
pub(super) fn reading(document: &ResultDocument) -> Option<String> {
    let any = blocks(document).iter().any(|block| block.figured().into_iter().any(|test| is_of(block, test)));
    any.then(|| {
        let baseline = document.baseline;
        format!(
            "Beside the published figures: ± is half the 95 % interval of the mean; the tax is the change against \
             {baseline}, in brackets where it is not shown to be one; \"its tax\" is that of the published figures."
        )
    })
}

/// The table of one test.
pub(super) fn table(document: &ResultDocument, block: &BlockCells<'_>, test: TestKind, notes: &mut Notes) -> Table {
    let rows = block.rows();
    let baseline = document.baseline;
    let columns = || ["here", "tax", "published", "its tax"].map(Column::right).into();
    let groups = block.mtus().into_iter().map(|mtu| Group { title: format!("MTU {mtu}"), columns: columns() });
    Table {
        caption: quantity(test).into(),
        labels: vec![rows_head(&rows).into()],
        groups: groups.collect(),
        rows: rows.iter().map(|row| Beside { block, baseline, test }.line(*row, notes)).collect(),
        ..Table::default()
    }
}

struct Beside<'a> {
    block: &'a BlockCells<'a>,
    baseline: Row,
    test: TestKind,
}

impl Beside<'_> {
    /// One text instead of the figures if the row can't run here and nobody published any.
    fn line(&self, row: Row, notes: &mut Notes) -> TableRow {
        let mtus = self.block.mtus();
        let records: Vec<&CellRecord> = mtus.iter().filter_map(|mtu| self.cell(row, *mtu)).collect();
        let nothing = |record: &&CellRecord| {
            matches!(record.status, CellStatus::Unavailable { .. }) && record.published.is_none()
        };
        match records.first() {
            Some(first) if records.iter().all(nothing) => {
                let text = format!("not available here {}", notes.of_record(first));
                TableRow { labels: vec![row.to_string()], figures: RowValues::None(text) }
            }
            _ => TableRow::new(row.to_string(), mtus.iter().flat_map(|mtu| self.figures(row, *mtu, notes)).collect()),
        }
    }

    fn cell(&self, row: Row, mtu: Mtu) -> Option<&CellRecord> {
        self.block.cell(row, mtu, self.test)
    }

    fn figures(&self, row: Row, mtu: Mtu, notes: &mut Notes) -> [Figure; 4] {
        let record = self.cell(row, mtu);
        let ours = record.and_then(primary).map(|estimate| Figure::text(with_half_width(&estimate)));
        let theirs = record.and_then(|record| record.published);
        let of_baseline = self.cell(self.baseline, mtu).and_then(|record| record.published);
        let ratio = theirs.zip(of_baseline).map(|(theirs, baseline)| theirs / baseline);
        let text = |text: Option<String>| text.map_or(Figure::absent(), Figure::Text);
        let [tax, its_tax] = match row == self.baseline {
            true => [Figure::text(""), Figure::text("")],
            false => [text(record.and_then(|record| record.tax.as_ref()).map(tax)), text(ratio.map(whole_change))],
        };
        [ours.unwrap_or_else(|| absence(record, notes)), tax, text(theirs.map(|theirs| theirs.to_string())), its_tax]
    }
}

fn tax(tax: &TaxRecord) -> String {
    if tax.verdict.is_shown() { change(tax.ratio) } else { format!("({})", change(tax.ratio)) }
}

/// The mean's interval is Student's, as wide below as above.
fn with_half_width(estimate: &Estimate) -> String {
    let half = estimate.low.zip(estimate.high).map(|(low, high)| (high - low) / 2.0);
    give_or_take(estimate.mean, half)
}
