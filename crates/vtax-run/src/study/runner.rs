//! The rounds of a run: which sample is next, what to do when a sample fails, when to stop.
//!
//! This file knows nothing of labs, agents or databases, so that killed runs and failing cells can be tested without a
//! lab.

mod sampled_cells;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use miette::miette;
use vtax_model::{
    cell::{Arm, Cell, MigrationCell, Turn, pass_orders},
    disk::DiskTest,
    run::{Failure, Figures, PartialRecord, RunReadings, RunState, Sample, SampleReading, stopping_figures},
    study::{Row, SamplingPlan, StepName},
    units::{Mtu, Span},
    workload::{TestSpec, WorkloadSizes},
};
use vtax_stats::stopping::Decision;
use vtax_sys::process::Pid;

use super::{
    clock,
    others::{OtherProgramsTime, OtherProgramsWatch},
};
use crate::events::{RunEvent, RunEvents, SampleProgress};
pub(crate) use sampled_cells::Sampler;
use sampled_cells::{NetCells, SampledCells};

/// Settings of the path's machines while a sample is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settings {
    /// Original settings.
    AsIs,
    /// Original settings, but all steps have just been applied and reverted: this shows their after-effects.
    Rewritten,
    /// Settings of a step.
    Of(StepName),
}

/// Takes the samples of a network.
pub(crate) trait NetSampler {
    /// Brings settings into force. Not called in a run without tuning steps.
    fn use_settings(&mut self, settings: Settings) -> Result<(), SampleError>;
    /// Sets the MTU of every hop, and verifies it.
    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError>;
    /// Takes one sample between the endpoints of a row.
    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError>;
    /// Takes a sample of each row, cut into slices. The rows alternate, in the warm-up and in each pass, in the given
    /// `orders`.
    fn take_turns(&mut self, rows: &[(Row, TestSpec)], orders: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns>;
    /// Returns the processes of this machine that work for the run but need not descend from vtax, e.g. an agent that
    /// sshd started.
    fn processes(&self) -> Vec<Pid>;
    /// Returns the CPU time of other programs on each machine except this one.
    fn other_programs(&self) -> Vec<OtherProgramsTime>;
}

/// Takes the samples of disks.
pub(crate) trait DiskSampler {
    /// Takes one sample on the disks of a row.
    fn sample(&mut self, row: Row, test: DiskTest) -> Result<Figures, SampleError>;
}

/// Takes the samples of migrations.
pub(crate) trait MigrationSampler {
    /// Migrates a guest once, in the way of a row.
    fn sample(&mut self, row: Row, test: MigrationCell, plan: &SamplingPlan) -> Result<Figures, SampleError>;
}

/// No row has a sample, because one of them failed.
#[derive(Debug)]
pub(crate) struct BrokenTurns {
    pub(crate) index: usize,
    pub(crate) error: SampleError,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SampleError {
    #[error("{error}")]
    Cell { error: String, partial: Option<Box<PartialRecord>> },
    #[error("{error}")]
    Run { error: miette::Report, partial: Option<Box<PartialRecord>> },
}

impl SampleError {
    pub(crate) fn into_report(self) -> miette::Report {
        match self {
            SampleError::Cell { error, .. } => miette!(code = "sample-failed", "{error}"),
            SampleError::Run { error, .. } => error,
        }
    }

    /// Failure of one cell. Nothing was measured.
    pub(crate) fn cell(error: impl Into<String>) -> SampleError {
        SampleError::Cell { error: error.into(), partial: None }
    }

    /// Error that ends the run. Nothing was measured.
    pub(crate) fn run(error: impl Into<miette::Report>) -> SampleError {
        SampleError::Run { error: error.into(), partial: None }
    }
}

/// Environment of a run while its samples are taken.
pub(crate) struct RunSurroundings<'a> {
    pub(crate) events: &'a RunEvents,
    pub(crate) stop_asked: &'a dyn Fn() -> bool,
    pub(crate) pace: Pace,
    /// No round is started that would not end by then.
    pub(crate) until: Option<Instant>,
    /// The last round, if there was no time for another.
    pub(crate) out_of_time: Option<u32>,
    pub(crate) others: OtherProgramsWatch,
}

impl<'a> RunSurroundings<'a> {
    pub(crate) fn new(
        events: &'a RunEvents,
        stop_asked: &'a dyn Fn() -> bool,
        pace: Pace,
        others: OtherProgramsWatch,
    ) -> RunSurroundings<'a> {
        RunSurroundings { events, stop_asked, pace, until: None, out_of_time: None, others }
    }

    /// Returns the remaining time, by the pace so far. None before the first sample is done.
    fn left(&self) -> Option<Duration> {
        let by_pace = self.pace.left()?;
        let until = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        Some(until.map_or(by_pace, |until| until.min(by_pace)))
    }
}

/// Progress and speed of a session's samples.
#[derive(Debug)]
pub(crate) struct Pace {
    begun: Instant,
    done: usize,
    total: usize,
}

impl Pace {
    pub(crate) fn new(total: usize) -> Pace {
        Pace { begun: Instant::now(), done: 0, total }
    }

    /// Sets the number of samples left, whatever was planned before.
    pub(crate) fn set_left(&mut self, samples: usize) {
        self.total = self.done + samples;
    }

    /// Returns the time that the rest takes. None before the first sample is done.
    fn left(&self) -> Option<Duration> {
        let each = self.begun.elapsed().checked_div(u32::try_from(self.done).ok()?)?;
        each.checked_mul(u32::try_from(self.total.saturating_sub(self.done)).ok()?)
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) state: RunState,
    /// The error that ended the run early, if one did.
    pub(crate) error: Option<miette::Report>,
}

/// Number of failures of a cell after which it is no longer tried.
const GIVE_UP: usize = 3;

/// Number of consecutive failures of a row after which none of its cells is tried again. A hanging disk takes half a
/// minute for each of them.
const GIVE_UP_ROW: usize = 6;

/// Takes every sample that `run` still lacks.
pub(crate) fn run_rounds(run: &mut RunReadings, sampler: Sampler<'_>, around: &mut RunSurroundings<'_>) -> Ended {
    let cells = SampledCells::of(&run.header.study, sampler);
    let rounds = Rounds { run, around, failures: BTreeMap::new(), failed_rows: BTreeMap::new() };
    match cells.and_then(|cells| rounds.go(cells)) {
        Ok(state) => Ended { state, error: None },
        Err(error) => Ended { state: RunState::Stopped, error: Some(error) },
    }
}

/// Returns the number of planned samples that the run lacks.
pub(crate) fn samples_left(run: &RunReadings) -> usize {
    let done = taken(run);
    let left = |round| run.header.turns(round).iter().filter(|turn| !done.contains(&(round, **turn))).count();
    (1..=run.header.rounds()).map(left).sum()
}

/// Returns the samples that the run has. A failed sample is tried again when the run is resumed.
fn taken(run: &RunReadings) -> BTreeSet<(u32, Turn)> {
    run.samples.iter().map(SampleReading::turn).collect()
}

struct Rounds<'a, 'b> {
    run: &'a mut RunReadings,
    around: &'a mut RunSurroundings<'b>,
    failures: BTreeMap<usize, usize>,
    /// Failures of each row since its last sample.
    failed_rows: BTreeMap<Row, usize>,
}

impl Rounds<'_, '_> {
    fn go(mut self, mut cells: SampledCells<'_>) -> miette::Result<RunState> {
        self.around.others.look(cells.network());
        let done = taken(self.run);
        for round in 1..=self.run.header.rounds() {
            let begun = Instant::now();
            for mut group in self.groups(round) {
                if (self.around.stop_asked)() {
                    return Ok(RunState::Stopped);
                }
                group.retain(|turn| !done.contains(&(round, *turn)) && !self.given_up(turn.cell));
                self.group(&mut cells, round, group)?;
            }
            if self.precise_enough(round) || self.run.is_decided(round) {
                break;
            }
            if self.has_no_time_after(begun) {
                self.around.out_of_time = Some(round);
                break;
            }
        }
        Ok(if (self.around.stop_asked)() { RunState::Stopped } else { RunState::Complete })
    }

    /// The next round is assumed to take as long as the one that began then.
    fn has_no_time_after(&self, begun: Instant) -> bool {
        self.around.until.is_some_and(|until| until.saturating_duration_since(Instant::now()) < begun.elapsed())
    }

    /// Returns the samples of a round in groups: alternating rows are one group, every other sample is its own group.
    /// Settings can't be changed between two slices.
    fn groups(&self, round: u32) -> Vec<Vec<Turn>> {
        let header = &self.run.header;
        let block = |turn: &Turn| header.study.cells[turn.cell].block();
        let together = |one: &Turn, next: &Turn| {
            let of_one_block = block(one) == block(next) && self.settings(one) == self.settings(next);
            of_one_block && header.plan_of(block(one).instrument).slices.is_some()
        };
        header.turns(round).chunk_by(together).map(<[Turn]>::to_vec).collect()
    }

    /// None if the run changes no settings.
    fn settings(&self, turn: &Turn) -> Option<Settings> {
        let study = &self.run.header.study;
        (!study.steps.is_empty()).then(|| match (study.cells[turn.cell].row.step(), turn.arm) {
            (Some(step), _) => Settings::Of(step),
            (None, Arm::APrime) => Settings::Rewritten,
            (None, Arm::A) => Settings::AsIs,
        })
    }

    fn group(&mut self, cells: &mut SampledCells<'_>, round: u32, group: Vec<Turn>) -> miette::Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        let instrument = self.run.header.study.cells[first.cell].instrument;
        match (cells, self.run.header.plan_of(instrument).slices) {
            (SampledCells::Net(net), Some(slices)) => self.take_turns(net, round, group, slices.passes),
            (cells, _) => group.into_iter().try_for_each(|turn| self.turn(cells, round, turn)),
        }
    }

    /// If one row fails, all rows try again, because each is compared with the rows that it alternates with: a slice of
    /// a few milliseconds is too short for a machine that is busy just then. A row that fails twice is omitted.
    fn take_turns(
        &mut self,
        net: &mut NetCells<'_>,
        round: u32,
        mut group: Vec<Turn>,
        passes: u32,
    ) -> miette::Result<()> {
        let mut failed = BTreeSet::new();
        while let Some(first) = group.first() {
            let cell = self.run.header.study.cells[first.cell];
            let (test, column) = (test_label(&cell), cell.column().label());
            self.tell_progress(round, format!("{test} {column}, {} rows interleaved", group.len()))?;
            let at = clock::now();
            match self.measure_turns(net, round, &group, passes) {
                Ok(figures) => {
                    self.around.pace.done += group.len();
                    let sample = |(turn, figures): (Turn, Figures)| Sample {
                        cell: turn.cell,
                        arm: turn.arm,
                        round,
                        at: at.clone(),
                        figures,
                    };
                    return self.landed(Some(&*net.sampler), group.into_iter().zip(figures).map(sample).collect());
                }
                Err(_) if (self.around.stop_asked)() => return Ok(()),
                Err(BrokenTurns { index, error }) => {
                    let turn = group[index];
                    self.broke(round, turn, error)?;
                    if !failed.insert(turn) || self.given_up(turn.cell) {
                        group.remove(index);
                        self.around.pace.done += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn measure_turns(
        &self,
        net: &mut NetCells<'_>,
        round: u32,
        group: &[Turn],
        passes: u32,
    ) -> Result<Vec<Figures>, BrokenTurns> {
        let header = &self.run.header;
        let block = header.study.cells[group[0].cell].block();
        let orders = pass_orders(group.len(), passes, header.seed, round, block);
        let plan = header.plan_of(block.instrument);
        let row = |turn: &Turn| (header.study.cells[turn.cell].row, net.cells[turn.cell].spec(plan));
        let rows: Vec<(Row, TestSpec)> = group.iter().map(row).collect();
        let ready = net.prepare(&group[0], self.settings(&group[0]));
        ready.map_err(|error| BrokenTurns { index: 0, error })?;
        net.sampler.take_turns(&rows, &orders)
    }

    fn turn(&mut self, cells: &mut SampledCells<'_>, round: u32, turn: Turn) -> miette::Result<()> {
        let cell = self.run.header.study.cells[turn.cell];
        self.tell_progress(round, label(&cell))?;
        let at = clock::now();
        let figures = self.measure(cells, turn);
        self.around.pace.done += 1;
        match figures {
            Ok(figures) => {
                self.landed(cells.network(), vec![Sample { cell: turn.cell, arm: turn.arm, round, at, figures }])
            }
            // A sample interrupted by the user's Ctrl-C is not a failure of the cell.
            Err(_) if (self.around.stop_asked)() => Ok(()),
            Err(error) => self.broke(round, turn, error),
        }
    }

    fn tell_progress(&self, round: u32, what: String) -> miette::Result<()> {
        let Pace { done, total, .. } = self.around.pace;
        let left = self.around.left().map(Span);
        self.around.events.send(&RunEvent::Progress(SampleProgress { round, what, done, total, left }))
    }

    /// Stores why a sample could not be taken. Returns an error that ends the run.
    fn broke(&mut self, round: u32, turn: Turn, error: SampleError) -> miette::Result<()> {
        match error {
            SampleError::Cell { error, partial } => {
                let label = label(&self.run.header.study.cells[turn.cell]);
                self.around.events.tell(format_args!("warning: {label}: {error}"));
                self.failed(Failure { cell: turn.cell, arm: turn.arm, round, error: error.into(), partial })
            }
            SampleError::Run { error, partial: None } => Err(error),
            SampleError::Run { error, partial } => {
                self.failed(Failure {
                    cell: turn.cell,
                    arm: turn.arm,
                    round,
                    error: error.to_string().into(),
                    partial,
                })?;
                Err(error)
            }
        }
    }

    fn measure(&self, cells: &mut SampledCells<'_>, turn: Turn) -> Result<Figures, SampleError> {
        let header = &self.run.header;
        let Cell { row, instrument, .. } = header.study.cells[turn.cell];
        let plan = header.plan_of(instrument);
        match cells {
            SampledCells::Net(net) => {
                net.prepare(&turn, self.settings(&turn))?;
                net.sampler.sample(row, &net.cells[turn.cell].spec(plan))
            }
            SampledCells::Disks { cells, sampler } => sampler.sample(row, cells[turn.cell].spec(plan)),
            SampledCells::Migrations { cells, sampler } => sampler.sample(row, cells[turn.cell], plan),
        }
    }

    fn landed(&mut self, network: Option<&dyn NetSampler>, mut samples: Vec<Sample>) -> miette::Result<()> {
        if let Some(first) = samples.first_mut() {
            first.figures.others = self.around.others.look(network);
        }
        self.around.events.send(&RunEvent::Samples(Cow::Borrowed(&samples)))?;
        for sample in &samples {
            self.failed_rows.remove(&self.run.header.study.cells[sample.cell].row);
            self.run.land(sample);
        }
        Ok(())
    }

    fn failed(&mut self, failure: Failure) -> miette::Result<()> {
        self.around.events.send(&RunEvent::Failure(Cow::Borrowed(&failure)))?;
        *self.failures.entry(failure.cell).or_default() += 1;
        let row = self.run.header.study.cells[failure.cell].row;
        let failed = self.failed_rows.entry(row).or_default();
        *failed += 1;
        if *failed == GIVE_UP_ROW {
            let told = format_args!(
                "warning: {row}: no sample in {GIVE_UP_ROW} attempts; skipping this row for the rest of this run"
            );
            self.around.events.tell(told);
        }
        self.run.fail(failure);
        Ok(())
    }

    fn given_up(&self, cell: usize) -> bool {
        let row = self.run.header.study.cells[cell].row;
        let failed = |count: Option<&usize>| count.copied().unwrap_or(0);
        failed(self.failures.get(&cell)) >= GIVE_UP || failed(self.failed_rows.get(&row)) >= GIVE_UP_ROW
    }

    /// Returns whether netperf's stopping rule is met for every measured cell of the mode that answers the study.
    fn precise_enough(&self, round: u32) -> bool {
        let Some(rule) = &self.run.header.stopping else { return false };
        if (round as usize) < rule.min() {
            return false;
        }
        let study = &self.run.header.study;
        let answering = study.answering();
        let mut figures = stopping_figures(self.run);
        figures.retain(|cell, _| study.cells[*cell].instrument == answering);
        figures.values().all(|values| !matches!(rule.decide(values), Ok(Decision::Continue)))
    }
}

pub(super) fn label(cell: &Cell) -> String {
    let size = match cell.net().map(|net| net.workload.sizes()) {
        Some(WorkloadSizes::Exchange { request, response }) if request != response => format!(" {request}/{response}"),
        Some(WorkloadSizes::Exchange { request: size, .. } | WorkloadSizes::Messages(size)) => format!(" {size}"),
        Some(WorkloadSizes::File(_) | WorkloadSizes::Nothing) | None => String::new(),
    };
    let gap = cell.options().gap.map(|gap| format!(" gap {gap}")).unwrap_or_default();
    format!("{} {}{size}{gap} {}", cell.row, test_label(cell), cell.column().label())
}

fn test_label(cell: &Cell) -> String {
    format!("{} {}", cell.medium(), cell.kind())
}

#[cfg(test)]
mod tests;
