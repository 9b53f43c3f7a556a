//! Scaling over a number: of a disk over threads (IOPS, response time and their cost), of a migration over the dirty rate. A
//! line for each row.

use vtax_model::{
    cell::{ColumnKey, Medium},
    metric::{Metric, SampleFigure},
    result::{CellRecord, Estimate},
    study::Row,
    workload::TestKind,
};
use vtax_plot::{ChartLine, ChartPoint, Heading, Measured, Quantity, Reach, Scaling};

use super::{Drawn, measured, of_block, percent};
use crate::{blocks::BlockCells, finding, record::primary, tax};

/// Quantity by which the tests of a block differ.
fn axis(block: &BlockCells<'_>) -> Quantity {
    match block.medium {
        Medium::Memory => Quantity::new("Dirty rate", "MB/s"),
        Medium::Disk | Medium::Net(_) => Quantity::new("Threads", ""),
    }
}

impl Drawn<'_> {
    /// Charts of a block whose tests differ by a number.
    pub(super) fn by_threads(&self, block: &BlockCells<'_>, test: TestKind) -> Vec<Scaling> {
        let level = self.level(block, test);
        let tax = self.tax(block, test, &level);
        let charts = self.beside(block, test).into_iter().chain([level, tax]);
        charts.filter(|chart| chart.lines.iter().any(|line| line.points.len() > 1)).collect()
    }

    /// IOPS next to response times.
    fn beside(&self, block: &BlockCells<'_>, test: TestKind) -> Option<Scaling> {
        let (figure, head) = Metric::of(test).beside().filter(|_| block.medium == Medium::Disk)?;
        let title = |records: &[&CellRecord]| finding::reached(self.document, records, test, (figure, head));
        let heading =
            self.heading_at_last(block, test, title, head, "I/Os completed per second by all threads together");
        Some(self.scaling(block, test, heading, [head, ""], |record| beside(record, figure)))
    }

    fn level(&self, block: &BlockCells<'_>, test: TestKind) -> Scaling {
        let unit = self.unit(test);
        let name = test.quantity().full;
        let title = |records: &[&CellRecord]| finding::levels(self.document, records, test);
        let heading = self.heading_at_last(block, test, title, name, "mean of each row");
        let value = |record: &CellRecord| Some(measured(&unit.converted(primary(record)?)));
        self.scaling(block, test, heading, [name, unit.text()], value)
    }

    fn tax(&self, block: &BlockCells<'_>, test: TestKind, level: &Scaling) -> Scaling {
        let (of, baseline) = (Metric::of(test), self.document.baseline);
        let against = format!("{} compared with {baseline}", test.quantity().short);
        let summary =
            format!("Cost of each row compared with {baseline} at the same {}.", axis(block).name.to_lowercase());
        let records: Vec<&CellRecord> = block.records().filter(|record| record.cell.kind() == test).collect();
        let title = self.finding(&records, of).unwrap_or_default();
        let heading = Heading::new(self.titled(&title, block, None), summary);
        let tax = self.scaling(block, test, heading, [&against, "%"], |record| Some(percent(record.tax_of(of)?)));
        let mut tax = Scaling { noise: self.noise(block, test, of), ..tax };
        if tax.lines.is_empty() {
            tax.noise = None;
        } else {
            tax.lines.insert(0, of_baseline(baseline, level));
        }
        tax
    }

    /// Heading whose title is of the cells with the largest number.
    fn heading_at_last(
        &self,
        block: &BlockCells<'_>,
        test: TestKind,
        title: impl Fn(&[&CellRecord]) -> Option<String>,
        name: &str,
        what: &str,
    ) -> Heading {
        let last = tax::threads::columns(block, test).pop();
        let records = last.map(|column| of_block(block, test, column)).unwrap_or_default();
        let title = title(&records).unwrap_or_else(|| name.to_owned());
        Heading::new(
            self.titled(&title, block, last),
            format!("{name} by {}: {what}.", axis(block).name.to_lowercase()),
        )
    }

    fn scaling(
        &self,
        block: &BlockCells<'_>,
        test: TestKind,
        heading: Heading,
        [name, unit]: [&str; 2],
        value: impl Fn(&CellRecord) -> Option<Measured>,
    ) -> Scaling {
        let columns = tax::threads::columns(block, test);
        let line = |row| {
            let point = |column: &ColumnKey| {
                let (ColumnKey::Threads(number) | ColumnKey::DirtyRate(Some(number))) = column else { return None };
                let measured = value(block.cell(row, *column, test)?)?;
                Some(ChartPoint { at: f64::from(*number), measured })
            };
            ChartLine { name: row.to_string(), points: columns.iter().filter_map(point).collect() }
        };
        let lines = block.rows().into_iter().map(line).filter(|line| !line.points.is_empty());
        Scaling {
            heading,
            count: axis(block),
            quantity: Quantity::new(name, unit),
            lines: lines.collect(),
            slots: self.slots.clone(),
            noise: None,
        }
    }

    /// Widest noise floor over all numbers.
    fn noise(&self, block: &BlockCells<'_>, test: TestKind, of: Metric) -> Option<Reach> {
        let floors = tax::threads::columns(block, test).into_iter().filter_map(|column| {
            let record = block.cell(self.document.baseline, column, test)?;
            Some(tax::floor(self.document, &record.cell.block(), of)?.floor * 100.0)
        });
        // A noise floor beyond a factor of two would leave no room for the lines.
        let widest = floors.fold(0.0, f64::max);
        (widest > 0.0 && widest < 100.0).then_some(Reach { low: -widest, high: widest })
    }
}

/// Line of the baseline: zero cost compared with itself.
fn of_baseline(baseline: Row, level: &Scaling) -> ChartLine {
    let name = baseline.to_string();
    let own = level.lines.iter().find(|line| line.name == name);
    let zero = |point: &ChartPoint| ChartPoint { measured: Measured::plain(0.0), ..*point };
    ChartLine { name, points: own.map(|line| line.points.iter().map(zero).collect()).unwrap_or_default() }
}

fn beside(record: &CellRecord, figure: SampleFigure) -> Option<Measured> {
    let estimate: Estimate = record.summary.as_ref()?.estimate(figure)?;
    Some(measured(&estimate))
}
