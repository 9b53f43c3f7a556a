//! Tables of tests that differ only by a number, of threads or of MB that a guest changes per second: one for each figure, with a column for each number.

use vtax_model::{
    cell::{ColumnKey, Medium},
    metric::{Metric, SampleFigure},
    result::{CellRecord, TaxRecord},
    study::Row,
    workload::TestKind,
};
use vtax_stats::Verdict;

use super::{Costs, beside, finding, in_unit, level};
use crate::{
    answer::said,
    blocks::{BlockCells, rows_head},
    column_unit::ColumnUnit,
    disks,
    record::unavailable,
    view::{Group, JudgedChange, Table, TableRow, Value},
    words,
};

/// Number of columns that remain readable side by side with figure, tax and interval in each.
const FEW: usize = 2;

/// Content of a table.
#[derive(Clone, Copy)]
enum Figure {
    Beside(SampleFigure, &'static str),
    Level(ColumnUnit),
    Tax,
    Cost(ColumnUnit),
}

/// Returns `true` if a block has more numbers in this test than a table can show with all figures of each.
pub(crate) fn has_many(block: &BlockCells<'_>, test: TestKind) -> bool {
    is_numbered(block) && columns(block, test).len() > FEW
}

/// Returns `true` if a block has more than one number in this test, so that a chart can use them as an axis.
pub(crate) fn has_several(block: &BlockCells<'_>, test: TestKind) -> bool {
    is_numbered(block) && columns(block, test).len() > 1
}

/// Links have a few MTUs, which are no axis.
fn is_numbered(block: &BlockCells<'_>) -> bool {
    matches!(block.medium, Medium::Disk | Medium::Memory)
}

/// Numbers of a test.
pub(crate) fn columns(block: &BlockCells<'_>, test: TestKind) -> Vec<ColumnKey> {
    let has = |column: &ColumnKey| block.rows().into_iter().any(|row| block.cell(row, *column, test).is_some());
    block.columns().into_iter().filter(has).collect()
}

impl Costs<'_> {
    pub(super) fn by_threads(&mut self, block: &BlockCells<'_>, test: TestKind, of: Metric) -> Vec<Table> {
        let records: Vec<&CellRecord> = block.records().filter(|record| record.cell.kind() == test).collect();
        if of != Metric::of(test) && !records.iter().any(|record| level(record, of).is_some()) {
            return Vec::new();
        }
        let told = self.told(&records, of);
        let figures = [
            of.beside().map(|(figure, head)| Figure::Beside(figure, head)),
            Some(Figure::Level(told.unit)),
            told.tax.then_some(Figure::Tax),
            told.cost.then_some(Figure::Cost(told.cost_unit)),
        ];
        let tables: Vec<Table> =
            figures.into_iter().flatten().map(|figure| self.of_figure(block, (test, of), figure)).collect();
        self.told.extend(block.rows().into_iter().filter(|row| is_unavailable(block, *row, test)));
        tables
    }

    fn of_figure(&mut self, block: &BlockCells<'_>, (test, of): (TestKind, Metric), figure: Figure) -> Table {
        let (rows, columns) = (block.rows(), columns(block, test));
        let head = columns.first().map_or("", |column| column.head());
        let lines = rows.iter().filter_map(|row| self.figure_line(block, *row, (test, of), figure)).collect();
        Table {
            caption: format!("{}: {}", words::capital(&block.title()), self.caption_of(test, of, figure)),
            labels: vec![rows_head(&rows).into()],
            groups: columns
                .iter()
                .map(|column| Group::right(if *column == columns[0] { head } else { "" }, [column.to_string()]))
                .collect(),
            rows: lines,
            ..Table::default()
        }
    }

    fn caption_of(&self, test: TestKind, of: Metric, figure: Figure) -> String {
        let against = || format!("{} compared with {}, with 95 % intervals", of.noun(), self.reference());
        match figure {
            Figure::Beside(_, head) => head.to_owned(),
            Figure::Level(unit) => of.caption(test, unit.text()),
            Figure::Tax => format!("tax on {}", against()),
            Figure::Cost(unit) => format!("cost in {} of {}", unit.text(), against()),
        }
    }

    /// Returns `None` for an unavailable row that a table above lists already.
    fn figure_line(
        &mut self,
        block: &BlockCells<'_>,
        row: Row,
        (test, of): (TestKind, Metric),
        figure: Figure,
    ) -> Option<TableRow> {
        if is_unavailable(block, row, test) {
            let records: Vec<&CellRecord> = of_row(block, row, test);
            let first =
                matches!(figure, Figure::Beside(..)) || of.beside().is_none() && matches!(figure, Figure::Level(_));
            let text = unavailable(&records, self.notes).filter(|_| first && !self.told.contains(&row))?;
            return Some(TableRow::without_values(vec![row.to_string()], text));
        }
        let records: Vec<_> = columns(block, test).into_iter().map(|column| block.cell(row, column, test)).collect();
        let values: Vec<Value> = records.into_iter().map(|record| self.figure_value(record, of, figure)).collect();
        Some(TableRow::new(vec![disks::label(self.document, row, self.notes)], values))
    }

    fn figure_value(&mut self, record: Option<&CellRecord>, of: Metric, figure: Figure) -> Value {
        let tax = record.and_then(|record| record.tax_of(of));
        match (figure, tax) {
            (Figure::Beside(figure, _), _) => beside(record, figure),
            (Figure::Level(unit), _) => self.level(record, of, unit),
            (Figure::Cost(unit), tax) => {
                tax.and_then(|tax| tax.delta.as_ref()).map_or("".into(), |delta| in_unit(delta, unit).into())
            }
            // The colour carries the verdict, for whose words there is no room here.
            (Figure::Tax, Some(tax)) if tax.verdict.is_shown() || tax.verdict == Verdict::NotConfirmed => {
                Value::Judged(JudgedChange { words: self.remark(tax), ..finding(tax) })
            }
            (Figure::Tax, Some(tax)) => said(tax).into(),
            (Figure::Tax, None) => record.map_or(Value::Absent, |record| self.tax(record, of)),
        }
    }

    /// Returns the mark of a note if the tax needs a remark.
    fn remark(&mut self, tax: &TaxRecord) -> String {
        match tax.verdict {
            Verdict::NotConfirmed => self.notes.mark("not significant after Holm".into()),
            _ if tax.within_floor => {
                self.notes.mark(format!("within noise: {} differs from itself by as much", self.document.baseline))
            }
            _ => String::new(),
        }
    }
}

fn of_row<'a>(block: &BlockCells<'a>, row: Row, test: TestKind) -> Vec<&'a CellRecord> {
    columns(block, test).into_iter().filter_map(|column| block.cell(row, column, test)).collect()
}

fn is_unavailable(block: &BlockCells<'_>, row: Row, test: TestKind) -> bool {
    let records = of_row(block, row, test);
    !records.is_empty() && records.iter().all(|record| record.is_unavailable())
}
