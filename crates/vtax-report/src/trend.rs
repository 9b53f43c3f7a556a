//! Trend of a study's results: level shifts of its cells, and what changed with them.
//!
//! The unit is the run: one figure per run, the median over its rounds.

mod chart;
mod csv;
mod draw;
mod environment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use vtax_model::{
    cell::Cell,
    evidence::series_apart,
    metric::Metric,
    result::{CellRecord, ResultDocument},
};
use vtax_stats::{
    IndependentRatio, LevelChange, Significance, Verdict, fewest_figures, level_changes, median, resemblance,
};

use super::{
    blocks::distinct,
    compare::{is_same, rounds_of},
    labels, words,
};
use environment::MachineChange;

/// Schema of [`RunTrend`] as JSON.
const SCHEMA: &str = "vtax.trend/v1";

/// Correlation of neighbouring results above which false alarms at least double.
const RESEMBLING: f64 = 0.25;

/// Results of a study, cell by cell, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTrend {
    schema: &'static str,
    study: String,
    title: String,
    machines: Vec<String>,
    /// Caveat that applies to every figure, if the results are of an emulated server.
    #[serde(skip_serializing_if = "Option::is_none")]
    caveat: Option<String>,
    results: Vec<TrendResult>,
    /// Changes of the machine, of vtax or of the plan between two results.
    machine_changes: Vec<MachineChange>,
    cells: Vec<CellTrend>,
    /// Cells with too few results to detect a level shift, and how many they have.
    too_few: Vec<(String, usize)>,
    /// Number of results that a cell needs.
    fewest: usize,
}

/// Run of the study.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct TrendResult {
    id: String,
    started: String,
}

/// Cell in all results that have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CellTrend {
    #[serde(flatten)]
    cell: Cell,
    of: Metric,
    #[serde(skip)]
    name: String,
    figures: Vec<TrendFigure>,
    changes: Vec<TrendStep>,
    /// Correlation of neighbouring results, from -1 to 1; absent for too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    resemblance: Option<f64>,
}

/// Figure of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct TrendFigure {
    /// Index into the results.
    result: usize,
    /// Median over rounds: µs, Mb/s or seconds.
    value: f64,
}

/// Shift from one level to the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct TrendStep {
    /// Last result of the old level.
    last_before: usize,
    /// First result of the new level.
    first_after: usize,
    /// Median over the results of the old level.
    from: f64,
    /// Median over the results of the new level.
    to: f64,
    /// New level over old level: the Hodges-Lehmann estimate.
    ratio: f64,
    /// Bounds of its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<f64>,
    p_adjusted: f64,
    /// Verdict on the new level.
    verdict: Verdict,
}

/// Selection of the results to follow.
#[derive(Debug, Clone, Default)]
pub struct TrendOptions {
    /// Only cells whose names contain all of these words.
    pub cell: Option<String>,
    /// Metric to follow in tests that have it; `None` stands for each test's own.
    pub metric: Option<Metric>,
}

/// Reason why there is no trend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTrend {
    /// No cell has figures, or none matches the name. Holds the available names.
    NoCell(Vec<String>),
    /// Even the cell with the most results has fewer than the minimum.
    TooFew {
        /// Number of available results.
        given: usize,
        /// Number of required results.
        needed: usize,
    },
}

/// Result reduced to what a trend needs: one figure of each cell in place of all its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendInput {
    /// One sample of each cell that has some.
    document: ResultDocument,
    /// Figures, by the cells of the document.
    figures: Vec<Option<f64>>,
}

impl TrendInput {
    /// Takes the median over rounds of each cell, of this metric or of each test's own.
    pub fn of(mut document: ResultDocument, metric: Option<Metric>) -> TrendInput {
        let figure = |record: &CellRecord| {
            let rounds = rounds_of(record, Metric::chosen(metric, record.cell.kind())?);
            (!rounds.is_empty()).then(|| median(&rounds))
        };
        let figures = document.cells.iter().map(figure).collect();
        for record in &mut document.cells {
            record.samples.truncate(1);
            record.samples.shrink_to_fit();
        }
        TrendInput { document, figures }
    }

    /// Returns the machine's host name.
    pub fn machine(&self) -> String {
        self.document.environment.hostname.to_string()
    }

    /// Splits results into those that continue the series of `newest`, and the reasons for which the others do not, each
    /// with the number of results.
    pub fn continuing(runs: Vec<TrendInput>, newest: &TrendInput) -> (Vec<TrendInput>, BTreeMap<String, usize>) {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut kept = Vec::new();
        for run in runs {
            match series_apart(&run.document, &newest.document).first() {
                None => kept.push(run),
                Some(reason) => *reasons.entry(reason.to_string()).or_default() += 1,
            }
        }
        (kept, reasons)
    }

    fn figure(&self, cell: Cell) -> Option<f64> {
        let place = self.document.cells.iter().position(|record| is_same(record.cell, cell))?;
        self.figures[place]
    }
}

/// Follows the cells of a study through these results, oldest first.
pub fn trend(runs: &[TrendInput], options: &TrendOptions) -> Result<RunTrend, NoTrend> {
    let documents: &[&ResultDocument] = &runs.iter().map(|run| &run.document).collect::<Vec<_>>();
    let all = cells(documents);
    let named = all.iter().map(|cell| (*cell, name(cell, &all)));
    let followed: Vec<CellTrend> = named
        .filter(|(_, name)| options.cell.as_ref().is_none_or(|wanted| matches(name, wanted)))
        .filter_map(|(cell, name)| follow(runs, cell, name, options.metric))
        .filter(|cell| !cell.figures.is_empty())
        .collect();
    let most = followed.iter().map(|cell| cell.figures.len()).max();
    let most = most.ok_or_else(|| NoTrend::NoCell(all.iter().map(|cell| name(cell, &all)).collect()))?;
    let alone = fewest_figures(1, Significance::FIVE_PERCENT);
    let family = followed.iter().filter(|cell| cell.figures.len() >= alone).count();
    let fewest = fewest_figures(family, Significance::FIVE_PERCENT);
    if most < fewest {
        return Err(NoTrend::TooFew {
            given: most,
            needed: fewest_figures(followed.len(), Significance::FIVE_PERCENT),
        });
    }
    let (mut cells, short): (Vec<CellTrend>, Vec<CellTrend>) =
        followed.into_iter().partition(|cell| cell.figures.len() >= fewest);
    cells.iter_mut().for_each(|cell| cell.find_changes(family));
    let newest = documents.last();
    Ok(RunTrend {
        schema: SCHEMA,
        study: newest.map_or(String::new(), |run| run.study.clone()),
        title: newest.map_or(String::new(), |run| run.title.to_string()),
        machines: distinct(documents.iter().map(|run| run.environment.hostname.to_string())),
        caveat: documents.iter().find_map(|run| run.caveat.as_ref()).map(ToString::to_string),
        results: documents.iter().map(|run| TrendResult { id: run.id.clone(), started: run.started.clone() }).collect(),
        machine_changes: environment::changes(documents),
        cells,
        too_few: short.into_iter().map(|cell| (cell.name, cell.figures.len())).collect(),
        fewest,
    })
}

/// Cells with figures in any result, those of the newest result first.
fn cells(documents: &[&ResultDocument]) -> Vec<Cell> {
    let measured = |record: &&CellRecord| !record.samples.is_empty();
    let records = documents.iter().rev().flat_map(|run| run.cells.iter().filter(measured));
    // The index of a swept value depends on the other values that were swept.
    distinct(records.map(|record| Cell { variant: 0, ..record.cell }))
}

/// Name that distinguishes the cell from the others, e.g. `bridge, TCP RR, MTU 1500`.
fn name(cell: &Cell, all: &[Cell]) -> String {
    let same = |other: &&Cell| (other.medium(), other.kind()) == (cell.medium(), cell.kind());
    let alike: Vec<&Cell> = all.iter().filter(same).collect();
    let varies = |differs: fn(&Cell, &Cell) -> bool| alike.iter().any(|other| differs(other, cell));
    let varying = words::varying(alike.iter().copied());
    let parts = [
        Some(cell.row.to_string()),
        Some(labels::test(cell)),
        varies(|one, other| one.work() != other.work()).then(|| labels::size(cell)),
        varies(|one, other| one.parallel() != other.parallel()).then(|| cell.medium().counted(cell.parallel())),
        varies(|one, other| one.column() != other.column()).then(|| cell.column().label()),
        all.iter()
            .any(|other| other.instrument != cell.instrument)
            .then(|| words::of_instrument(cell.instrument).to_owned()),
    ];
    words::joined(parts.into_iter().flatten().chain(words::of_keys(&cell.options(), &varying)), ", ")
}

/// Returns `true` if the name contains all words, ignoring case.
fn matches(name: &str, wanted: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        lower.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let known = words(name);
    words(wanted).iter().all(|word| known.contains(word))
}

/// Figures of all results that have the cell.
fn follow(runs: &[TrendInput], cell: Cell, name: String, metric: Option<Metric>) -> Option<CellTrend> {
    let of = Metric::chosen(metric, cell.kind())?;
    let figure = |(result, run): (usize, &TrendInput)| Some(TrendFigure { result, value: run.figure(cell)? });
    let figures = runs.iter().enumerate().filter_map(figure).collect();
    Some(CellTrend { cell, of, name, figures, changes: Vec::new(), resemblance: None })
}

impl CellTrend {
    fn values(&self) -> Vec<f64> {
        self.figures.iter().map(|figure| figure.value).collect()
    }

    /// Finds level shifts, as one of a family of cells that are read together.
    fn find_changes(&mut self, family: usize) {
        let values = self.values();
        let found = level_changes(&values, family, Significance::FIVE_PERCENT).unwrap_or_default();
        self.resemblance = resemblance(&values, &found);
        let ends: Vec<usize> = found.iter().map(|change| change.at).chain([values.len()]).collect();
        let starts: Vec<usize> = [0].into_iter().chain(ends.iter().copied()).collect();
        let steps = found.iter().enumerate().filter_map(|(index, change)| {
            self.step(change, &values[starts[index]..change.at], &values[change.at..ends[index + 1]])
        });
        self.changes = steps.collect();
    }

    fn step(&self, change: &LevelChange, before: &[f64], after: &[f64]) -> Option<TrendStep> {
        let found = IndependentRatio::of(before, after)?;
        let (low, high) = found.interval.unzip();
        let worse = self.of.cost_ratio(found.ratio) > 1.0;
        Some(TrendStep {
            last_before: self.figures[change.at - 1].result,
            first_after: self.figures[change.at].result,
            from: median(before),
            to: median(after),
            ratio: found.ratio,
            low,
            high,
            p_adjusted: change.p.get(),
            verdict: if worse { Verdict::Slower } else { Verdict::Faster },
        })
    }

    /// Returns `true` if its results are autocorrelated enough to cause false level shifts.
    fn is_doubtful(&self) -> bool {
        let chance = 1.645 / (self.figures.len() as f64).sqrt();
        self.resemblance.is_some_and(|share| share > RESEMBLING.max(chance))
    }
}
