//! Scaling of a disk over threads: IOPS, response time and their cost, a line for each row.

use vtax_model::{
    cell::ColumnKey,
    metric::{Metric, SampleFigure},
    result::{CellRecord, Estimate},
    study::Row,
    workload::TestKind,
};
use vtax_plot::{ChartLine, ChartPoint, Heading, Measured, Quantity, Reach, Scaling};

use super::{Drawn, measured, percent};
use crate::{blocks::BlockCells, record::primary, tax};

impl Drawn<'_> {
    /// Charts of a block whose tests differ by threads.
    pub(super) fn by_threads(&self, block: &BlockCells<'_>, test: TestKind) -> Vec<Scaling> {
        let of = Metric::of(test);
        let baseline = self.document.baseline;
        let name = test.quantity().full;
        let beside = of.beside().map(|(_, head)| {
            let summary = "I/Os completed per second by all threads together.";
            self.scaling(block, test, [head, head, ""], summary, |record, of| beside(record, of.beside()?.0))
        });
        let unit = self.unit(test);
        let level = self.scaling(block, test, [name, name, unit.text()], "Mean of each row.", |record, _| {
            Some(measured(&unit.converted(primary(record)?)))
        });
        let against = format!("{} compared with {baseline}", test.quantity().short);
        let summary = format!("Cost of each row compared with {baseline} at the same number of threads.");
        let title = format!("Tax on {}", of.noun());
        let tax = self
            .scaling(block, test, [&title, &against, "%"], &summary, |record, of| Some(percent(record.tax_of(of)?)));
        let mut tax = Scaling { noise: self.noise(block, test, of), ..tax };
        if tax.lines.is_empty() {
            tax.noise = None;
        } else {
            tax.lines.insert(0, of_baseline(baseline, &level));
        }
        let charts = beside.into_iter().chain([level, tax]);
        charts.filter(|chart| chart.lines.iter().any(|line| line.points.len() > 1)).collect()
    }

    fn scaling(
        &self,
        block: &BlockCells<'_>,
        test: TestKind,
        [title, name, unit]: [&str; 3],
        summary: &str,
        value: impl Fn(&CellRecord, Metric) -> Option<Measured>,
    ) -> Scaling {
        let columns = tax::threads::columns(block, test);
        let line = |row| {
            let point = |column: &ColumnKey| {
                let ColumnKey::Threads(threads) = column else { return None };
                let measured = value(block.cell(row, *column, test)?, Metric::of(test))?;
                Some(ChartPoint { at: f64::from(*threads), measured })
            };
            ChartLine { name: row.to_string(), points: columns.iter().filter_map(point).collect() }
        };
        let lines = block.rows().into_iter().map(line).filter(|line| !line.points.is_empty());
        Scaling {
            heading: Heading::new(self.title(&[&format!("{title} by threads"), &block.title()]), summary),
            count: Quantity::new("Threads", ""),
            quantity: Quantity::new(name, unit),
            lines: lines.collect(),
            noise: None,
        }
    }

    /// Widest noise floor over all numbers of threads.
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

/// Line of the baseline: zero cost compared with itself. With it, each row has the same colour as in the other charts.
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
