//! Trends as CSV: one line for each result of each cell.

use super::{CellTrend, RunTrend, TrendFigure, TrendResult, TrendStep};
use crate::{
    csv::{name, table, text},
    words,
};

/// Figure of a cell. A level shift is reported at the first result of the new level.
struct TrendPoint<'a> {
    trend: &'a RunTrend,
    cell: &'a CellTrend,
    run: &'a TrendResult,
    figure: &'a TrendFigure,
    step: Option<&'a TrendStep>,
}

type Column = (&'static str, for<'a> fn(&TrendPoint<'a>) -> Option<String>);

const COLUMNS: [Column; 18] = [
    ("study", |p| text(&p.trend.study)),
    ("run", |p| text(&p.run.id)),
    ("started", |p| text(&p.run.started)),
    ("method", |p| text(p.cell.cell.row)),
    ("transport", |p| text(p.cell.cell.medium().to_string().to_lowercase())),
    ("test", |p| name(&p.cell.cell.kind())),
    ("mtu", |p| p.cell.cell.mtu().and_then(text)),
    ("streams", |p| text(p.cell.cell.parallel())),
    ("options", |p| Some(words::key_values(&p.cell.cell.options()))),
    ("instrument", |p| name(&p.cell.cell.instrument)),
    ("of", |p| name(&p.cell.of)),
    ("value", |p| text(p.figure.value)),
    ("changed", |p| text(p.step.is_some())),
    ("ratio", |p| text(p.step?.ratio)),
    ("low", |p| text(p.step?.low?)),
    ("high", |p| text(p.step?.high?)),
    ("p_adjusted", |p| text(p.step?.p_adjusted)),
    ("verdict", |p| name(&p.step?.verdict)),
];

impl RunTrend {
    pub(super) fn csv(&self) -> String {
        let points = self.cells.iter().flat_map(|cell| cell.figures.iter().map(move |figure| self.point(cell, figure)));
        let fields = |point| COLUMNS.iter().map(|(_, field)| field(&point).unwrap_or_default()).collect();
        table(COLUMNS.map(|(name, _)| name.to_owned()).into(), points.map(fields))
    }

    fn point<'a>(&'a self, cell: &'a CellTrend, figure: &'a TrendFigure) -> TrendPoint<'a> {
        let step = cell.changes.iter().find(|step| step.first_after == figure.result);
        TrendPoint { trend: self, cell, run: &self.results[figure.result], figure, step }
    }
}
