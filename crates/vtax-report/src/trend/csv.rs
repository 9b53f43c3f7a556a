//! Trends as CSV: one line for each result of each cell.

use serde::Serialize;
use serde_json::Value;

use super::{CellTrend, RunTrend, TrendFigure};
use crate::{csv::table, words};

const HEAD: [&str; 18] = [
    "study",
    "run",
    "started",
    "method",
    "transport",
    "test",
    "mtu",
    "streams",
    "options",
    "instrument",
    "of",
    "value",
    "changed",
    "ratio",
    "low",
    "high",
    "p_adjusted",
    "verdict",
];

impl RunTrend {
    pub(super) fn csv(&self) -> String {
        let lines = self.cells.iter().flat_map(|cell| cell.figures.iter().map(move |figure| self.fields(cell, figure)));
        table(HEAD.map(str::to_owned).to_vec(), lines)
    }

    /// The figures of a level shift appear at the first result of the new level.
    fn fields(&self, trend: &CellTrend, figure: &TrendFigure) -> Vec<String> {
        let (cell, run) = (&trend.cell, &self.results[figure.result]);
        let step = trend.changes.iter().find(|step| step.first_after == figure.result);
        let of_step = |value: fn(&super::TrendStep) -> Option<f64>| {
            step.and_then(value).map_or(String::new(), |value| value.to_string())
        };
        vec![
            self.study.clone(),
            run.id.clone(),
            run.started.clone(),
            cell.row.to_string(),
            cell.medium().to_string().to_lowercase(),
            name(&cell.kind()),
            cell.mtu().map_or(String::new(), |mtu| mtu.to_string()),
            cell.parallel().to_string(),
            words::key_values(&cell.options()),
            name(&cell.instrument),
            name(&trend.of),
            figure.value.to_string(),
            step.is_some().to_string(),
            of_step(|step| Some(step.ratio)),
            of_step(|step| step.low),
            of_step(|step| step.high),
            of_step(|step| Some(step.p_adjusted)),
            step.map_or(String::new(), |step| name(&step.verdict)),
        ]
    }
}

/// Returns the name of an enum variant as in JSON.
fn name(variant: &impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
