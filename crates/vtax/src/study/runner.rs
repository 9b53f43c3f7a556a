//! The rounds of a run: which sample next, what to do when one fails, when to stop.
//!
//! Knows neither labs nor agents nor databases: samples come from a [`Sampler`] and go to a
//! [`Sink`], so that killed runs, failing cells and stopping rules are tested without any.

use std::collections::{BTreeMap, BTreeSet};

use vtax_model::{
    cell::{Arm, Cell, Turn},
    result::Metric,
    run::{Failure, Figures, PartialRecord, Run, RunState, Sample},
    stats::stopping::Decision,
    study::Row,
    units::Mtu,
    workload::{TestSpec, Workload},
};

/// Takes samples.
pub(crate) trait Sampler {
    /// Sets the MTU of every hop, and verifies it.
    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError>;
    /// One timed run between the ends of `row`.
    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError>;
}

/// Why a sample could not be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SampleError {
    /// This cell failed; others may work.
    #[error("{error}")]
    Cell {
        error: String,
        /// What the ends had until then.
        partial: Option<Box<PartialRecord>>,
    },
    /// Nothing more can be measured: an agent died, the lab is gone.
    #[error("{error}")]
    Run {
        error: anyhow::Error,
        /// What the ends that live had until then.
        partial: Option<Box<PartialRecord>>,
    },
}

impl SampleError {
    /// A failure of the cell of which nothing is left.
    pub(crate) fn cell(error: impl Into<String>) -> SampleError {
        SampleError::Cell { error: error.into(), partial: None }
    }

    /// The end of the run, outside of any sample.
    pub(crate) fn run(error: impl Into<anyhow::Error>) -> SampleError {
        SampleError::Run { error: error.into(), partial: None }
    }
}

/// Keeps samples as they land.
pub(crate) trait Sink {
    fn sample(&mut self, sample: &Sample) -> anyhow::Result<()>;
    fn failure(&mut self, failure: &Failure) -> anyhow::Result<()>;
}

/// What is told to the user while a run goes on.
pub(crate) trait Watcher {
    /// Before a sample.
    fn begin(&mut self, round: u32, cell: &str);
    /// After it.
    fn end(&mut self);
    /// A sample failed.
    fn failed(&mut self, cell: &str, error: &str);
    /// Whether the user has asked to stop.
    fn stop_asked(&self) -> bool;
    /// RFC 3339, UTC.
    fn now(&self) -> String;
}

/// How the rounds ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) state: RunState,
    /// The error that ended the run early, if one did.
    pub(crate) error: Option<anyhow::Error>,
}

/// Failures of one cell after which it is not tried again.
const GIVE_UP: usize = 3;

/// Takes every sample of `run` that it does not have yet.
pub(crate) fn run_rounds(
    run: &mut Run,
    sampler: &mut dyn Sampler,
    sink: &mut dyn Sink,
    watcher: &mut dyn Watcher,
) -> Ended {
    match Rounds::new(run, sampler, sink, watcher).go() {
        Ok(state) => Ended { state, error: None },
        Err(error) => Ended { state: RunState::Stopped, error: Some(error) },
    }
}

/// The samples of `header`'s plan that `run` lacks, at most.
pub(crate) fn samples_left(run: &Run) -> usize {
    let done = taken(run);
    let left = |round| run.header.turns(round).iter().filter(|turn| !done.contains(&(round, **turn))).count();
    (1..=run.header.rounds()).map(left).sum()
}

/// What failed is tried again when a run is resumed.
fn taken(run: &Run) -> BTreeSet<(u32, Turn)> {
    run.samples.iter().map(|s| (s.round, Turn { cell: s.cell, arm: s.arm })).collect()
}

struct Rounds<'a> {
    run: &'a mut Run,
    sampler: &'a mut dyn Sampler,
    sink: &'a mut dyn Sink,
    watcher: &'a mut dyn Watcher,
    mtu: Option<Mtu>,
    failures: BTreeMap<usize, usize>,
}

impl<'a> Rounds<'a> {
    fn new(
        run: &'a mut Run,
        sampler: &'a mut dyn Sampler,
        sink: &'a mut dyn Sink,
        watcher: &'a mut dyn Watcher,
    ) -> Self {
        Rounds { run, sampler, sink, watcher, mtu: None, failures: BTreeMap::new() }
    }

    fn go(mut self) -> anyhow::Result<RunState> {
        let done = taken(self.run);
        for round in 1..=self.run.header.rounds() {
            for turn in self.run.header.turns(round) {
                if self.watcher.stop_asked() {
                    return Ok(RunState::Stopped);
                }
                if !done.contains(&(round, turn)) && !self.given_up(turn.cell) {
                    self.turn(round, turn)?;
                }
            }
            if self.precise_enough(round) {
                break;
            }
        }
        Ok(if self.watcher.stop_asked() { RunState::Stopped } else { RunState::Complete })
    }

    fn turn(&mut self, round: u32, turn: Turn) -> anyhow::Result<()> {
        let cell = self.run.header.study.cells[turn.cell];
        let label = label(&cell);
        self.watcher.begin(round, &label);
        let at = self.watcher.now();
        let figures = self.measure(turn);
        self.watcher.end();
        match figures {
            Ok(figures) => self.landed(Sample { cell: turn.cell, arm: turn.arm, round, at, figures }),
            // A sample that the user's Ctrl-C broke is no failure of the cell.
            Err(_) if self.watcher.stop_asked() => Ok(()),
            Err(SampleError::Cell { error, partial }) => {
                self.watcher.failed(&label, &error);
                self.failed(Failure { cell: turn.cell, arm: turn.arm, round, error, partial })
            }
            Err(SampleError::Run { error, partial: None }) => Err(error),
            Err(SampleError::Run { error, partial }) => {
                self.failed(Failure { cell: turn.cell, arm: turn.arm, round, error: error.to_string(), partial })?;
                Err(error)
            }
        }
    }

    fn measure(&mut self, turn: Turn) -> Result<Figures, SampleError> {
        let header = &self.run.header;
        let cell = header.study.cells[turn.cell];
        if self.mtu != Some(cell.mtu) {
            self.sampler.set_mtu(cell.mtu)?;
            self.mtu = Some(cell.mtu);
        }
        self.sampler.sample(cell.row, &cell.spec(header.plan_of(cell.instrument)))
    }

    fn landed(&mut self, sample: Sample) -> anyhow::Result<()> {
        self.sink.sample(&sample)?;
        self.forget(sample.round, Turn { cell: sample.cell, arm: sample.arm });
        self.run.samples.push(sample);
        Ok(())
    }

    fn failed(&mut self, failure: Failure) -> anyhow::Result<()> {
        self.sink.failure(&failure)?;
        self.forget(failure.round, Turn { cell: failure.cell, arm: failure.arm });
        *self.failures.entry(failure.cell).or_default() += 1;
        self.run.failures.push(failure);
        Ok(())
    }

    /// An earlier failure of the sample, as the sink does.
    fn forget(&mut self, round: u32, turn: Turn) {
        self.run.failures.retain(|f| (f.round, Turn { cell: f.cell, arm: f.arm }) != (round, turn));
    }

    fn given_up(&self, cell: usize) -> bool {
        self.failures.get(&cell).is_some_and(|count| *count >= GIVE_UP)
    }

    /// Whether netperf's rule is met for every cell that has samples.
    fn precise_enough(&self, round: u32) -> bool {
        let Some(rule) = &self.run.header.stopping else { return false };
        if (round as usize) < rule.min() {
            return false;
        }
        let figures = primary_figures(self.run);
        figures.values().all(|values| !matches!(rule.decide(values), Ok(Decision::Continue)))
    }
}

/// A cell as progress and warnings call it.
fn label(cell: &Cell) -> String {
    let size = match cell.workload {
        Workload::Rr { request, response } | Workload::Crr { request, response } if request != response => {
            format!(" {request}/{response}")
        }
        Workload::Rr { request: size, .. } | Workload::Crr { request: size, .. } => format!(" {size}"),
        Workload::Stream { message, .. } => format!(" {message}"),
        Workload::Cc | Workload::File { .. } => String::new(),
    };
    let gap = cell.options.gap.map(|gap| format!(" gap {gap}")).unwrap_or_default();
    format!("{} {} {}{size}{gap} MTU {}", cell.row, cell.transport, cell.workload.kind(), cell.mtu)
}

/// The figure by which each cell is compared, sample by sample (arm A).
pub(crate) fn primary_figures(run: &Run) -> BTreeMap<usize, Vec<f64>> {
    let mut figures: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for sample in run.samples.iter().filter(|sample| sample.arm == Arm::A) {
        let test = run.header.study.cells[sample.cell].workload.kind();
        figures.entry(sample.cell).or_default().push(Metric::of(test).value(test, &sample.figures));
    }
    figures
}

#[cfg(test)]
mod tests;
