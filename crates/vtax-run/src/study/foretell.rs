//! Detectable difference of a budget, estimated before the first sample: a few samples are taken while no setting is
//! changed. They are discarded, because they belong to no round.

use vtax_model::{
    method::Unsupported,
    run::{Experience, Figures, Goal, RunHeader, RunReadings, UnavailableRow},
    study::Row,
    units::Mtu,
    workload::TestSpec,
};
use vtax_sys::process::Pid;

use super::{
    clock,
    others::{OtherProgramsTime, OtherProgramsWatch},
    runner::{self, BrokenTurns, NetSampler, Pace, RunSurroundings, SampleError, Sampler, Settings},
};
use crate::events::RunEvents;

/// Maximum share of the budget that this takes.
const MOST: f64 = 0.1;

/// Leaves settings unchanged, whatever a round asks for.
struct Untouched<'a>(&'a mut dyn NetSampler);

impl NetSampler for Untouched<'_> {
    fn use_settings(&mut self, _: Settings) -> Result<(), SampleError> {
        self.0.use_settings(Settings::AsIs)
    }

    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        self.0.set_mtu(mtu)
    }

    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
        self.0.sample(row, spec)
    }

    fn take_turns(&mut self, rows: &[(Row, TestSpec)], orders: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns> {
        self.0.take_turns(rows, orders)
    }

    fn processes(&self) -> Vec<Pid> {
        self.0.processes()
    }

    /// These samples are discarded, so other machines aren't asked what disturbs them.
    fn other_programs(&self) -> Vec<OtherProgramsTime> {
        Vec::new()
    }
}

/// Returns the plan of the samples: both arms of the settings as they are, in as many rounds as the plan has before its
/// rounds are chosen. None if they would take too much of the budget.
pub(super) fn plan(header: &RunHeader, goal: Goal) -> Option<RunHeader> {
    let budget = goal.budget()?;
    let mut plan = header.clone();
    let why = || Unsupported::new("only current settings count here", "no changes needed");
    let left_out = |row: &Row| UnavailableRow { method: *row, unsupported: why() };
    plan.unavailable.extend(header.study.rows.iter().filter(|row| row.step().is_some()).map(left_out));
    let seconds = plan.nominal_seconds()?;
    (header.study.baseline == Row::AsIs && seconds <= budget.0.as_secs_f64() * MOST).then_some(plan)
}

/// Takes the samples of such a plan. Tests that can't be measured are reported when the run itself tries them.
pub(super) fn measure(
    plan: RunHeader,
    sampler: &mut dyn NetSampler,
    stop_asked: &dyn Fn() -> bool,
) -> Option<Experience> {
    let mut run = RunReadings::begun(plan);
    let unheard = RunEvents::default();
    let mut around = RunSurroundings::new(&unheard, stop_asked, Pace::new(0), OtherProgramsWatch::new(None));
    runner::run_rounds(&mut run, Sampler::Net(&mut Untouched(sampler)), &mut around);
    Experience::of(&run, run.header.metric, clock::seconds)
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        cell::Cell,
        measurement::EndReport,
        study::{SamplingPlan, TuningStep},
        units::Span,
        workload::Warmup,
    };

    use super::*;

    /// Records which settings were requested, and which rows were measured.
    #[derive(Default)]
    struct Path(Vec<Settings>, Vec<Row>);

    impl NetSampler for Path {
        fn use_settings(&mut self, settings: Settings) -> Result<(), SampleError> {
            self.0.push(settings);
            Ok(())
        }

        fn set_mtu(&mut self, _: Mtu) -> Result<(), SampleError> {
            Ok(())
        }

        fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
            self.1.push(row);
            let end = EndReport { seconds: 1.0, transactions: 1000, ..EndReport::default() };
            Ok(Figures::join(spec, true, &end, &end))
        }

        fn take_turns(&mut self, _: &[(Row, TestSpec)], _: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns> {
            Ok(Vec::new())
        }

        fn processes(&self) -> Vec<Pid> {
            Vec::new()
        }

        fn other_programs(&self) -> Vec<OtherProgramsTime> {
            Vec::new()
        }
    }

    fn header() -> RunHeader {
        let mut header = vtax_synthetic::header("tune-1", "2026-01-01T00:00:00Z");
        let step = "rps".parse().expect("a name");
        let rows = vec![Row::AsIs, Row::Tuned { path: None, step }];
        let cell = header.study.cells[0];
        header.study.cells = rows.iter().map(|row| Cell { row: *row, ..cell }).collect();
        (header.study.rows, header.study.baseline) = (rows, Row::AsIs);
        header.study.steps = vec![TuningStep { name: step, rules: Vec::new(), sysctl: Default::default() }];
        let (duration, warmup) = (Span::from_millis(100), Warmup::NONE);
        header.plan = SamplingPlan { samples: 6, duration, warmup, slices: None, limit: None };
        header
    }

    #[test]
    fn only_the_settings_as_they_are_are_measured_and_nothing_is_changed() {
        let goal = Goal::Budget(Span::from_millis(60_000));
        let plan = plan(&header(), goal).expect("twelve samples are short");
        let mut path = Path::default();
        measure(plan, &mut path, &|| false);
        assert_eq!((path.1.len(), path.0.len()), (12, 12));
        assert!(path.1.iter().all(|row| *row == Row::AsIs) && path.0.iter().all(|asked| *asked == Settings::AsIs));
    }

    #[test]
    fn a_small_budget_is_left_to_the_rounds() {
        assert!(plan(&header(), Goal::Budget(Span::from_millis(10_000))).is_none());
        assert!(plan(&header(), Goal::Show("3%".parse().expect("possible"))).is_none());
    }
}
