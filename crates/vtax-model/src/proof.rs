//! Results of a proving run for each setting.
//!
//! A step is kept if it helps by more than a margin, and if it makes nothing else worse. The margin is compared with
//! the bound of the interval, not with the estimate: a gain of 5 % [1, 9] is not known to exceed 2 %.

mod guard;

use serde::{Deserialize, Serialize};
use vtax_stats::{Confidence, Preference, Significance, Verdict};

pub use guard::{Guard, GuardFinding};

use crate::{
    analysis::analyse_readings,
    cell::{Arm, Block, Cell},
    metric::Metric,
    result::{CellRecord, TaxRecord},
    run::{Difference, RunReadings, SampleReading, pairs},
    study::{Row, StepName},
};

/// Results of a run for all of its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// In the study's order, without those that change nothing here.
    pub steps: Vec<StepProof>,
    /// The baseline compared with itself, after all steps were applied and reverted.
    pub floors: Vec<FloorProof>,
}

/// Result of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepProof {
    /// Name of the step that was tried.
    pub step: StepName,
    /// Its effect on each test.
    pub effects: Vec<StepEffect>,
    /// Guards that it must not worsen.
    pub guards: Vec<GuardFinding>,
    /// Decision on the step, with the reason if it is not kept.
    pub verdict: StepVerdict,
}

/// Effect of a step on one test, by the test's metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEffect {
    /// The test.
    pub block: Block,
    /// The comparison with the original settings.
    pub tax: TaxRecord,
}

/// Decision on whether to keep a step, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StepVerdict {
    /// It helps by more than the margin, and no guard is violated.
    Kept,
    /// It helps, but not certainly by more than the margin.
    TooSmall,
    /// It gains more than the margin, but the after-effects of reverting changes may be the reason, or may hide that
    /// the step harms another test.
    LeftBehind,
    /// No test is shown to be faster with it.
    NoEffectShown,
    /// A test is slower with it, or the round trip of a guarded path.
    Harmful,
    /// It helps, but something else is worse with it.
    GuardBroken,
    /// Its samples failed.
    NotMeasured,
}

/// The original settings, measured twice in a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloorProof {
    /// The test.
    pub block: Block,
    /// Second arm over the first.
    pub ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
    /// p-value of this comparison alone.
    pub p: f64,
    /// The smallest change of the test that this many rounds can show. None if not even a factor of
    /// two.
    pub could_show: Option<f64>,
}

/// After-effects of reverting changes would affect every comparison. Below this p-value they are assumed to exist.
const BIASED: f64 = 0.01;

impl FloorProof {
    /// Returns true if applying and reverting changes has after-effects.
    fn is_biased(&self) -> bool {
        self.p < BIASED
    }

    /// Returns the bounds of the after-effects of reverting changes, as logarithms of the ratio. Zero if none are
    /// shown.
    pub fn left_behind(&self) -> (f64, f64) {
        let (one, other) = (self.low.ln().abs(), self.high.ln().abs());
        if self.is_biased() { (one.min(other), one.max(other)) } else { (0.0, 0.0) }
    }
}

impl Proof {
    /// Judges the steps of a run.
    pub fn of(run: &RunReadings, margin: Difference) -> Proof {
        let document = analyse_readings(run);
        let floors = floors(run);
        let judged = Judged { run, cells: &document.cells, floors: &floors, margin };
        let steps = run.header.steps.iter().map(|record| judged.step(record.step)).collect();
        Proof { steps, floors }
    }

    /// Returns the steps to keep.
    pub fn kept(&self) -> Vec<StepName> {
        self.steps.iter().filter(|proof| proof.verdict == StepVerdict::Kept).map(|proof| proof.step).collect()
    }
}

/// Criteria for the steps of a run.
struct Judged<'a> {
    run: &'a RunReadings,
    cells: &'a [CellRecord],
    floors: &'a [FloorProof],
    margin: Difference,
}

impl Judged<'_> {
    fn step(&self, step: StepName) -> StepProof {
        let Judged { run, cells, margin, .. } = *self;
        let of_step: Vec<usize> =
            (0..cells.len()).filter(|index| cells[*index].cell.row.step() == Some(step)).collect();
        let effect = |index: &usize| {
            let record = &cells[*index];
            Some(StepEffect { block: record.cell.block(), tax: record.tax.clone()? })
        };
        let effects: Vec<StepEffect> = of_step.iter().filter_map(effect).collect();
        let guards: Vec<GuardFinding> = of_step.iter().flat_map(|index| guard::findings(run, *index, margin)).collect();
        let complete = !effects.is_empty() && effects.len() == of_step.len();
        let verdict = if complete { self.verdict(&effects, &guards) } else { StepVerdict::NotMeasured };
        StepProof { step, effects, guards, verdict }
    }

    fn verdict(&self, effects: &[StepEffect], guards: &[GuardFinding]) -> StepVerdict {
        let any = |wanted: Verdict| effects.iter().any(|effect| effect.tax.verdict == wanted);
        let faster = || effects.iter().filter(|effect| effect.tax.verdict == Verdict::Faster);
        match () {
            () if any(Verdict::Slower) || guards.iter().any(GuardFinding::is_of_harmed_path) => StepVerdict::Harmful,
            () if !any(Verdict::Faster) => StepVerdict::NoEffectShown,
            () if !faster().any(|effect| effect.clears(self.margin)) => StepVerdict::TooSmall,
            () if !faster().any(|effect| self.is_more_than_left_behind(effect)) => StepVerdict::LeftBehind,
            () if effects.iter().any(|effect| self.may_hide_harm(effect)) => StepVerdict::LeftBehind,
            () if guards.iter().any(|guard| guard.broken) => StepVerdict::GuardBroken,
            () => StepVerdict::Kept,
        }
    }

    /// Returns true if a step helps by more than the margin even after subtracting the largest possible after-effects.
    fn is_more_than_left_behind(&self, effect: &StepEffect) -> bool {
        effect.tax.gain().0 - self.left_behind(effect) > self.margin.log()
    }

    /// Returns true if the after-effects in this test may be so large that a harmful step could seem harmless.
    fn may_hide_harm(&self, effect: &StepEffect) -> bool {
        self.left_behind(effect) > self.margin.log() && !self.is_more_than_left_behind(effect)
    }

    /// Returns the largest possible after-effect in the test of this effect, as a logarithm.
    fn left_behind(&self, effect: &StepEffect) -> f64 {
        let of_test = self.floors.iter().filter(|floor| floor.block == effect.block);
        of_test.map(|floor| floor.left_behind().1).fold(0.0, f64::max)
    }
}

impl StepEffect {
    /// Returns true if the whole interval is better than the margin.
    pub fn clears(&self, margin: Difference) -> bool {
        self.tax.gain().0 > margin.log()
    }
}

/// Compares the rows of one step with those of another in the same rounds: `step` over `with`.
pub fn against(run: &RunReadings, step: StepName, with: StepName) -> Vec<StepComparison> {
    let cells = &run.header.study.cells;
    let of = |wanted: StepName| cells.iter().enumerate().filter(move |(_, cell)| cell.row.step() == Some(wanted));
    let compare = |(index, cell): (usize, &Cell)| {
        let (other, _) = of(with).find(|(_, other)| other.block() == cell.block())?;
        let metric = Metric::of(cell.kind());
        let pairs = pairs(metric, cell.kind(), readings(run, other, Arm::A), readings(run, index, Arm::A));
        let tax = vtax_stats::PairedTax::of(&pairs, Confidence::P95).ok()?;
        Some(StepComparison { block: cell.block(), of: metric, ratio: tax.ratio, low: tax.low, high: tax.high })
    };
    of(step).filter_map(compare).collect()
}

/// Ratio of two steps' figures in one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepComparison {
    pub block: Block,
    pub of: Metric,
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

impl StepComparison {
    /// Returns the bounds of the loss of the first step, as logarithms: below zero it is better.
    pub fn worse(&self) -> (f64, f64) {
        let (low, high) = (self.low.ln(), self.high.ln());
        match self.of.direction() {
            Preference::LowerIsBetter => (low, high),
            Preference::HigherIsBetter => (-high, -low),
        }
    }
}

/// Returns the comparison of the baseline's two arms, for each test.
pub fn floors(run: &RunReadings) -> Vec<FloorProof> {
    let cells = run.header.study.cells.iter().enumerate();
    let floor = |(index, cell): (usize, &Cell)| {
        let of = Metric::of(cell.kind());
        let pairs = pairs(of, cell.kind(), readings(run, index, Arm::A), readings(run, index, Arm::APrime));
        let tax = vtax_stats::PairedTax::of(&pairs, Confidence::P95).ok()?;
        let tests = run.header.family(cell.instrument) * run.header.looks().len();
        let smallest = tax.smallest_shown(tax.pairs, Significance::FIVE_PERCENT.shared_by(tests.max(1)));
        Some(FloorProof {
            block: cell.block(),
            ratio: tax.ratio,
            low: tax.low,
            high: tax.high,
            p: tax.p.get(),
            could_show: smallest.map(|smallest| smallest.cost(of.direction())),
        })
    };
    cells.filter(|(_, cell)| cell.row == Row::AsIs).filter_map(floor).collect()
}

fn readings(run: &RunReadings, cell: usize, arm: Arm) -> impl Iterator<Item = &SampleReading> {
    run.samples.iter().filter(move |reading| reading.cell == cell && reading.arm == arm)
}

#[cfg(test)]
mod tests;
