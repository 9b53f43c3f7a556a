//! Results of a stopping rule.

use std::collections::BTreeMap;

use super::{RunReadings, SampleReading};
use crate::cell::Arm;
use vtax_stats::Decision;

/// Returns the results of a run's stopping rule for each cell of the measurement mode that answers the study, by the
/// cell's index; nothing if the run has no rule. Cells of rows that can't run here are omitted. The result is
/// [`Decision::Continue`] for a cell that has fewer samples than the rule allows and isn't known precisely enough yet.
pub fn stopping_outcome(run: &RunReadings) -> Vec<(usize, Decision)> {
    let Some(rule) = &run.header.stopping else { return Vec::new() };
    let mut figures = stopping_figures(run);
    let answering = run.header.study.answering();
    let cells = run.header.study.cells.iter().enumerate().filter(|(_, cell)| cell.instrument == answering);
    let runs_here = cells.filter(|(_, cell)| run.header.runs_here(cell.row));
    let decide = |(index, _)| {
        let figures = figures.remove(&index).unwrap_or_default();
        // NaN has no precision.
        (index, rule.decide(&figures).unwrap_or(Decision::Exhausted { achieved: None }))
    };
    runs_here.map(decide).collect()
}

/// Returns the figures that the stopping rule refers to, sample by sample, without the baseline's second arm.
pub fn stopping_figures(run: &RunReadings) -> BTreeMap<usize, Vec<f64>> {
    let mut figures: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let first_arm = |sample: &&SampleReading| sample.arm == Arm::A;
    for sample in run.samples.iter().filter(first_arm) {
        let kind = run.header.study.cells[sample.cell].kind();
        figures.entry(sample.cell).or_default().push(sample.metric(run.header.metric_of(kind), kind));
    }
    figures
}
