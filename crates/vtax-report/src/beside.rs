//! A source's figures beside ours, as the table that it prints: for each test a row for each method and, MTU
//! by MTU, our figure with its interval and its tax, and the published figure with the tax that is in it.

use vtax_model::{
    result::{CellRecord, Estimate, ResultDocument, TaxRecord},
    study::Row,
    units::Mtu,
    workload::TestKind,
};

use super::{
    blocks::{BlockCells, blocks, quantity, rows_head},
    layout::{Figure, Group, Table, TableRow},
    notes::Notes,
    number::{change, give_or_take, whole_change},
    record::{absence, primary, unavailable},
};

/// Whether a row that is compared with the baseline was measured and has published figures.
pub(crate) fn is_worth_it(document: &ResultDocument) -> bool {
    let others = document.cells.iter().filter(|record| record.cell.row != document.baseline);
    others.filter(|record| record.summary.is_some()).any(has_published)
}

fn has_published(record: &CellRecord) -> bool {
    record.published.is_some() || !record.published_on.is_empty()
}

/// Whether a test has such a table: the figures of several machines would make it too wide.
pub(crate) fn is_of(block: &BlockCells<'_>, test: TestKind) -> bool {
    block.records().any(|record| record.cell.workload.kind() == test && record.published.is_some())
}

/// What the columns mean, if a block of the document has such a table.
pub(crate) fn reading(document: &ResultDocument) -> Option<String> {
    let any = blocks(document).iter().any(|block| block.figured().into_iter().any(|test| is_of(block, test)));
    any.then(|| {
        let baseline = document.baseline;
        format!(
            "Beside the published figures: ± is half the 95 % interval of the mean; the tax is the change against \
             {baseline}, in brackets where it is not shown to be one; \"its tax\" is that of the published figures."
        )
    })
}

pub(crate) fn table(document: &ResultDocument, block: &BlockCells<'_>, test: TestKind, notes: &mut Notes) -> Table {
    let rows = block.rows();
    let baseline = document.baseline;
    let heads = ["here", "tax", "published", "its tax"];
    let groups = block.mtus().into_iter().map(|mtu| Group::right(format!("MTU {mtu}"), heads));
    Table {
        caption: quantity(test),
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
        let published = records.iter().any(|record| record.published.is_some());
        let labels = vec![row.to_string()];
        match (!published).then(|| unavailable(&records, notes)).flatten() {
            Some(text) => TableRow::without_figures(labels, text),
            None => TableRow::new(labels, mtus.iter().flat_map(|mtu| self.figures(row, *mtu, notes))),
        }
    }

    fn cell(&self, row: Row, mtu: Mtu) -> Option<&CellRecord> {
        self.block.cell(row, mtu, self.test)
    }

    fn figures(&self, row: Row, mtu: Mtu, notes: &mut Notes) -> [Figure; 4] {
        let record = self.cell(row, mtu);
        let ours = record.and_then(primary).map(|estimate| with_half_width(&estimate).into());
        let theirs = record.and_then(|record| record.published);
        let of_baseline = self.cell(self.baseline, mtu).and_then(|record| record.published);
        let ratio = theirs.zip(of_baseline).map(|(theirs, baseline)| theirs / baseline);
        let taxes = [record.and_then(|record| record.tax.as_ref()).map(tax), ratio.map(whole_change)];
        let [tax, its_tax] =
            if row == self.baseline { ["", ""].map(Figure::from) } else { taxes.map(Figure::or_absent) };
        let theirs = Figure::or_absent(theirs.map(|theirs| theirs.to_string()));
        [ours.unwrap_or_else(|| absence(record, notes)), tax, theirs, its_tax]
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
