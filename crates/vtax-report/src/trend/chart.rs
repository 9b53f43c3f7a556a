//! Trends as charts: one for each test and MTU, a line for each row.

use vtax_plot::{Chart, Heading, Measured, PlotError, Quantity, Trend, TrendChange, TrendLine, TrendRun};

use super::{CellTrend, RunTrend, draw::unit};
use crate::{
    blocks::grouped,
    colours,
    column_unit::ColumnUnit,
    html::{self, Article},
    labels,
    topic::ChartGroup,
    words,
};
use vtax_model::{method::IoMethod, study::Row};

/// Maximum number of charts that a reader can take in.
const MOST: usize = 8;

impl RunTrend {
    /// Returns one HTML file with the trend and its charts.
    pub fn page(&self) -> Result<String, PlotError> {
        let charts = vec![ChartGroup { title: "", charts: self.charts() }];
        let article = Article { id: self.study.clone(), view: self.view(), overview: None, charts };
        html::page(&format!("{}: trend", self.title), &[], &[article])
    }

    /// Returns the charts, those with a level shift first.
    pub fn charts(&self) -> Vec<Chart> {
        let mut blocks = grouped(self.cells.iter().map(|cell| (cell.cell.block(), cell)));
        blocks.sort_by_key(|(_, cells)| cells.iter().all(|cell| cell.changes.is_empty()));
        blocks.iter().take(MOST).map(|(_, cells)| self.chart(cells).into()).collect()
    }

    fn chart(&self, cells: &[&CellTrend]) -> Trend {
        let (cell, of) = (&cells[0].cell, cells[0].of);
        let test = cell.kind();
        let unit = unit(cells);
        let title =
            format!("{}, {} ({})", labels::test(cell), cell.column().label(), words::of_instrument(cell.instrument));
        let summary = format!("{} results per row, oldest first.", self.results.len());
        Trend {
            heading: Heading::new(title, summary),
            quantity: Quantity::new(of.name_of(test), unit.text()),
            lines: cells.iter().map(|cell| self.line(cell, unit)).collect(),
            slots: colours::slots(self.cells.iter().map(|cell| cell.cell.row), Row::Method(IoMethod::Native)),
            changes: self.changes(cells),
        }
    }

    fn line(&self, cell: &CellTrend, unit: ColumnUnit) -> TrendLine {
        let run = |figure: &super::TrendFigure| {
            let at = self.results[figure.result].started.parse().ok()?;
            Some(TrendRun { at, measured: Measured::plain(unit.value(figure.value)) })
        };
        TrendLine { name: cell.cell.row.to_string(), runs: cell.figures.iter().filter_map(run).collect() }
    }

    /// Positions at which one of these cells shifted its level.
    fn changes(&self, cells: &[&CellTrend]) -> Vec<TrendChange> {
        let mut places: Vec<usize> =
            cells.iter().flat_map(|cell| cell.changes.iter().map(|step| step.first_after)).collect();
        places.sort_unstable();
        places.dedup();
        let change = |result: usize| {
            let at = self.results[result].started.parse().ok()?;
            let known = self.machine_changes.iter().find(|change| change.result == result);
            let label = known.map_or_else(|| "level shift".to_owned(), |change| change.label());
            Some(TrendChange { at, label })
        };
        places.into_iter().filter_map(change).collect()
    }
}
