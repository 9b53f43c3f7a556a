//! Experience from the rounds of one run for another: their variation, and their duration.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Difference, Goal, RunHeader, RunReadings, SamplingPlan, pairs};
use crate::{
    cell::{Arm, Block, Cell, Instrument, Medium, Turn, round_order},
    metric::Metric,
    study::{Study, StudySubject},
    units::Span,
    workload::{TestKind, Warmup},
};
use vtax_stats::planning::{MOST_ROUNDS, RoundNoise, least_rounds, rounds_to_show, smallest_shown};

/// Timestamps have a resolution of milliseconds.
const SHORTEST: f64 = 1e-3;

/// Experience from a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Experience {
    /// The run's id.
    pub run: String,
    /// Variation over all comparisons of a block.
    noise: BTreeMap<Block, RoundNoise>,
    /// Seconds from the beginning of a sample to that of the next one.
    turn: BTreeMap<Block, f64>,
    /// Seconds before the first sample and after the last one.
    around: f64,
}

/// Detectable differences and duration of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// Seconds of the whole run; none if unknown.
    pub seconds: Option<f64>,
    /// The smallest detectable difference of each test in four of five such runs, for the test's noisiest block.
    pub shown: Vec<Resolution>,
}

/// The smallest detectable difference of a test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Resolution {
    /// Medium of the test.
    #[serde(rename = "transport")]
    pub medium: Medium,
    /// Kind of the test without its sizes, e.g. request and response.
    pub test: TestKind,
    /// A fraction: 0.02 is 2 %. None if differences of less than a factor of two can't be shown.
    pub smallest: Option<f64>,
}

/// Reason why no number of rounds meets the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum Unreachable {
    #[error("{0}: only the baseline is measured, so nothing is compared; omit it")]
    #[diagnostic(code("nothing-compared"))]
    NothingCompared(Goal),
    #[error(
        "--show {asked}: too noisy, according to the run {run}: {MOST_ROUNDS} rounds, the maximum of a run, detect {}; use a larger difference, or longer samples (--duration)",
        told(*.shown)
    )]
    #[diagnostic(code("too-noisy"))]
    TooNoisy { asked: Difference, run: String, shown: Option<f64> },
    #[error(
        "--budget {asked}: too short for one round, according to the run {run}; {least} rounds, the minimum to detect a difference, take about {needed}"
    )]
    #[diagnostic(code("budget-too-short"))]
    TooShort { asked: Span, run: String, least: u32, needed: Span },
}

fn told(smallest: Option<f64>) -> String {
    smallest.map_or("none below a factor of two".to_owned(), |smallest| format!("{:.2} %", smallest * 100.0))
}

impl RunHeader {
    /// Returns the cells that are compared, each with its baseline's, without those of rows that can't run here.
    pub fn comparisons(&self) -> Vec<(usize, usize)> {
        let cells = &self.study.cells;
        let against = |index: usize| {
            let cell = &cells[index];
            let reference = self.study.compared_with(cell.row);
            let of_block = |other: &usize| cells[*other].row == reference && cells[*other].block() == cell.block();
            let other = (0..cells.len()).find(of_block)?;
            (cell.row != reference && self.runs_here(cell.row)).then_some((index, other))
        };
        (0..cells.len()).filter_map(against).collect()
    }

    /// Returns the number of comparisons of a measurement mode that are judged together: by the metric that the goal
    /// refers to, and others of its family.
    pub fn family(&self, instrument: Instrument) -> usize {
        let cells = self.comparisons().into_iter().map(|(cell, _)| &self.study.cells[cell]);
        let metrics = |cell: &Cell| Metric::of_family(cell.kind(), self.metric_of(cell.kind()).family()).count();
        cells.filter(|cell| cell.instrument == instrument).map(metrics).sum()
    }

    /// Returns the maximum number of p-values that share the level of a measurement mode: one per comparison and planned look.
    fn tests(&self, instrument: Instrument) -> usize {
        self.family(instrument) * self.study.most_looks()
    }

    /// Returns the minimum number of rounds in which the answering mode can show a difference; none if it compares
    /// nothing.
    pub fn least_rounds(&self) -> Option<u32> {
        let family = self.family(self.study.answering());
        (family > 0).then(|| least_rounds(family))
    }

    /// Returns true if a run of `earlier` is comparable with one of this plan: the same cells, sampling and machine.
    pub fn resembles(&self, earlier: &RunHeader) -> bool {
        let of_machine = |header: &RunHeader| {
            let environment = &header.environment;
            let (hostname, kernel) = (environment.hostname.clone(), environment.kernel.clone());
            (hostname, kernel, environment.cpus, environment.congestion_control.clone())
        };
        let ends_alike = match (&self.study.subject, &earlier.study.subject) {
            (StudySubject::Network(one), StudySubject::Network(other)) => one.has_ends_of(other),
            (StudySubject::Disks(one), StudySubject::Disks(other)) => one.has_disks_of(other),
            (StudySubject::Migrations(one), StudySubject::Migrations(other)) => one == other,
            _ => false,
        };
        let all_here = || self.study.cells.iter().filter(|cell| self.runs_here(cell.row));
        let sampled_alike = |instrument| {
            let [one, other] =
                [self, earlier].map(|header| SamplingPlan { samples: 1, limit: None, ..*header.plan_of(instrument) });
            one == other || !self.study.cells.iter().any(|cell| cell.instrument == instrument)
        };
        self.study.id == earlier.study.id
            && self.study.baseline == earlier.study.baseline
            && self.study.steps == earlier.study.steps
            && self.steps == earlier.steps
            && of_machine(self) == of_machine(earlier)
            && self.study.guest == earlier.study.guest
            && ends_alike
            && all_here().all(|cell| earlier.study.cells.contains(cell) && earlier.runs_here(cell.row))
            && Instrument::ALL.into_iter().all(sampled_alike)
    }

    /// Returns the duration of the plan's samples plus a tenth for the time between them; none for untimed tests.
    pub fn nominal_seconds(&self) -> Option<f64> {
        let of_turn = |turn: &Turn| {
            let cell = &self.study.cells[turn.cell];
            nominal_seconds(cell, self.plan_of(cell.instrument))
        };
        let turns = (1..=self.rounds()).flat_map(|round| self.turns(round));
        turns.map(|turn| of_turn(&turn)).sum::<Option<f64>>().map(|seconds| seconds * BETWEEN_SAMPLES)
    }
}

/// Time between samples, relative to theirs.
const BETWEEN_SAMPLES: f64 = 1.1;

/// Each disk sample is a run of a program, which starts, ends its last I/Os and prints, in a guest or here.
const PROGRAM_START: f64 = 1.0;

/// Seconds of a sample and its warm-up; `None` for a test without a fixed length.
fn nominal_seconds(cell: &Cell, plan: &SamplingPlan) -> Option<f64> {
    let Warmup::For(warmup) = plan.warmup else { return None };
    let passes = plan.slices.map_or(1, |slices| slices.passes);
    let measured = plan.duration_of(cell.kind()).0.as_secs_f64() * f64::from(passes);
    let starts = if cell.kind().is_of_disk() { PROGRAM_START } else { 0.0 };
    (!cell.kind().is_unbounded()).then_some(warmup.0.as_secs_f64() + measured + starts)
}

impl Study {
    /// As [`RunHeader::nominal_seconds`], for the study's own plan or that of `--quick`, if every row can run.
    pub fn nominal_seconds(&self, quick: bool) -> Option<f64> {
        let cells = match (&self.quick_matrix, quick) {
            (Some(_), true) => {
                let mut short = self.clone();
                short.shorten(false);
                short.cells
            }
            _ => self.cells.clone(),
        };
        let of_turn = |turn: &Turn| match self.plan_of(cells[turn.cell].instrument, quick) {
            Some(plan) => Some(f64::from(plan.samples) * nominal_seconds(&cells[turn.cell], &plan)?),
            None => Some(0.0),
        };
        let turns = round_order(&cells, self.baseline, 0, 1);
        turns.iter().map(of_turn).sum::<Option<f64>>().map(|seconds| seconds * BETWEEN_SAMPLES)
    }
}

impl Experience {
    /// Returns the experience from a run for one whose goal refers to this metric; none if it has too few rounds. `time`
    /// converts a timestamp to seconds.
    pub fn of(run: &RunReadings, metric: Option<Metric>, time: impl Fn(&str) -> Option<f64>) -> Option<Experience> {
        let noise = noises(run, metric);
        let compared = run.header.comparisons().into_iter().map(|(cell, _)| run.header.study.cells[cell].block());
        if { compared }.any(|block| !noise.contains_key(&block)) {
            return None;
        }
        let at = run.samples.iter().map(|sample| time(&sample.at)).collect::<Option<Vec<f64>>>()?;
        let begun = time(&run.header.started).zip(at.first().copied());
        let before = begun.map_or(0.0, |(started, first)| (first - started).max(0.0));
        let known = Experience { run: run.header.id.clone(), noise, turn: turns(run, &at), around: before };
        let rounds = known.rounds(&run.header);
        Some(Experience { around: known.around.max(run.wall_seconds - rounds), ..known })
    }

    /// Returns the same for a run whose samples begin this many seconds later, and take this much
    /// longer each.
    pub fn delayed(mut self, begin: f64, each: f64) -> Experience {
        self.around += begin;
        self.turn.values_mut().for_each(|seconds| *seconds += each);
        self
    }

    /// Returns the seconds of all rounds of a plan.
    fn rounds(&self, header: &RunHeader) -> f64 {
        let of = |instrument| self.round(header, instrument) * f64::from(header.rounds_of(instrument));
        Instrument::ALL.into_iter().map(of).sum()
    }

    /// Returns the detectable differences of a plan like this.
    pub fn forecast(&self, header: &RunHeader) -> Forecast {
        let rounds = header.rounds_of(header.study.answering());
        let all = self.rounds(header);
        Forecast { seconds: (all > 0.0).then_some(self.around + all), shown: self.shown(header, rounds) }
    }

    /// Returns the number of rounds that reach the goal.
    pub fn rounds_for(&self, header: &RunHeader, goal: Goal) -> Result<u32, Unreachable> {
        let least = header.least_rounds().ok_or(Unreachable::NothingCompared(goal))?;
        match goal {
            Goal::Show(difference) => self.rounds_that_show(header, difference),
            Goal::Budget(time) => self.rounds_within(header, time, least),
            Goal::Within { show, budget } => {
                let enough = self.rounds_that_show(header, show).unwrap_or(MOST_ROUNDS);
                self.rounds_within(header, budget, least).map(|room| room.min(enough))
            }
        }
    }

    fn rounds_that_show(&self, header: &RunHeader, asked: Difference) -> Result<u32, Unreachable> {
        let comparisons = header.tests(header.study.answering());
        let needed = |noise: RoundNoise| rounds_to_show(asked.log(), noise, comparisons);
        let all: Option<Vec<u32>> = self.noises_of(header).into_values().map(needed).collect();
        all.and_then(|all| all.into_iter().max()).ok_or_else(|| {
            let smallest = |shown: &Resolution| shown.smallest.unwrap_or(f64::INFINITY);
            let worst = self.shown(header, MOST_ROUNDS).iter().map(smallest).fold(0.0, f64::max);
            Unreachable::TooNoisy { asked, run: self.run.clone(), shown: worst.is_finite().then_some(worst) }
        })
    }

    fn rounds_within(&self, header: &RunHeader, asked: Span, least: u32) -> Result<u32, Unreachable> {
        let answering = header.study.answering();
        let other = Instrument::ALL.into_iter().filter(|instrument| *instrument != answering);
        let others = other.map(|other| self.round(header, other) * f64::from(header.rounds_of(other)));
        let (fixed, round) = (self.around + others.sum::<f64>(), self.round(header, answering));
        let rounds = ((asked.0.as_secs_f64() - fixed) / round).floor();
        if rounds >= 1.0 {
            return Ok(rounds.min(f64::from(MOST_ROUNDS)) as u32);
        }
        let seconds = (fixed + round * f64::from(least)).ceil().clamp(1.0, 1e9);
        let needed = Span(std::time::Duration::from_secs(seconds as u64));
        Err(Unreachable::TooShort { asked, run: self.run.clone(), least, needed })
    }

    /// Returns the seconds of a round's samples in a mode.
    fn round(&self, header: &RunHeader, instrument: Instrument) -> f64 {
        let cells = &header.study.cells;
        let of_instrument = |turn: &Turn| cells[turn.cell].instrument == instrument;
        let seconds = |turn: Turn| self.turn.get(&cells[turn.cell].block()).copied().unwrap_or(0.0);
        header.turns(1).into_iter().filter(of_instrument).map(seconds).sum()
    }

    /// Returns the noise of the blocks that are compared in the mode that answers the study.
    fn noises_of(&self, header: &RunHeader) -> BTreeMap<Block, RoundNoise> {
        let compared = header.comparisons().into_iter().map(|(cell, _)| header.study.cells[cell].block());
        let answering = compared.filter(|block| block.instrument == header.study.answering());
        answering.filter_map(|block| Some((block, *self.noise.get(&block)?))).collect()
    }

    fn shown(&self, header: &RunHeader, rounds: u32) -> Vec<Resolution> {
        let comparisons = header.tests(header.study.answering());
        let mut worst: BTreeMap<(Medium, TestKind), f64> = BTreeMap::new();
        for (block, noise) in self.noises_of(header) {
            let smallest = smallest_shown(rounds, noise, comparisons).unwrap_or(f64::INFINITY);
            let known = worst.entry((block.test.medium(), block.kind())).or_insert(0.0);
            *known = known.max(smallest);
        }
        let shown = |((medium, test), log): ((Medium, TestKind), f64)| Resolution {
            medium,
            test,
            smallest: (log < 2f64.ln()).then(|| header.metric_of(test).worse(log)),
        };
        worst.into_iter().map(shown).collect()
    }
}

/// Returns the noise of each block, over its rows and the baseline's second arm.
fn noises(run: &RunReadings, metric: Option<Metric>) -> BTreeMap<Block, RoundNoise> {
    let cells = &run.header.study.cells;
    let mut noises: BTreeMap<Block, Vec<RoundNoise>> = BTreeMap::new();
    let compared = run.header.comparisons().into_iter().map(|(cell, baseline)| (baseline, (cell, Arm::A)));
    let baselines = cells.iter().enumerate().filter(|(_, cell)| cell.row == run.header.study.baseline);
    for (baseline, cell) in compared.chain(baselines.map(|(index, _)| (index, (index, Arm::APrime)))) {
        let test = cells[baseline].kind();
        let metric = Metric::chosen(metric, test).unwrap_or(Metric::of(test));
        let pairs = pairs(metric, test, run.arm(baseline, Arm::A), run.arm(cell.0, cell.1));
        noises.entry(cells[baseline].block()).or_default().extend(RoundNoise::of(&pairs));
    }
    let pooled =
        |(block, noises): (Block, Vec<RoundNoise>)| Some((block, RoundNoise::pooled(&noises)?.of_another_run()));
    noises.into_iter().filter_map(pooled).collect()
}

/// Returns the median seconds of a sample of each block: a pause between two sessions of a run doesn't count.
fn turns(run: &RunReadings, at: &[f64]) -> BTreeMap<Block, f64> {
    let mut rounds: BTreeMap<(Block, u32), (f64, u32)> = BTreeMap::new();
    for (sample, time) in run.samples.iter().zip(at.windows(2)) {
        let block = run.header.study.cells[sample.cell].block();
        let (seconds, samples) = rounds.entry((block, sample.round)).or_default();
        *seconds += (time[1] - time[0]).max(0.0);
        *samples += 1;
    }
    let mut of_block: BTreeMap<Block, Vec<f64>> = BTreeMap::new();
    for ((block, _), (seconds, samples)) in rounds {
        of_block.entry(block).or_default().push(seconds / f64::from(samples));
    }
    of_block.into_iter().map(|(block, seconds)| (block, median(seconds).max(SHORTEST))).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests;
