use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use super::*;
use crate::events::EventSink;
use proptest::prelude::*;
use vtax_model::{
    measurement::EndReport,
    method::{IoMethod, Unsupported},
    run::{PartialRecord, RunHeader, UnavailableRow},
    workload::TestKind,
};
use vtax_stats::{Confidence, StoppingRule, Width, histogram::Histogram};

/// A machine on which sample number n takes `seconds(n)` seconds, or fails.
struct Machine<F: FnMut(usize, Row) -> Result<f64, SampleError>> {
    answer: F,
    /// Never has a sample.
    broken: Option<(Row, Mtu, TestSpec)>,
    mtu: Option<Mtu>,
    taken: usize,
    mtu_changes: usize,
    settings: Vec<Settings>,
}

impl<F: FnMut(usize, Row) -> Result<f64, SampleError>> Machine<F> {
    fn new(answer: F) -> Self {
        Machine { answer, broken: None, mtu: None, taken: 0, mtu_changes: 0, settings: Vec::new() }
    }
}

impl<F: FnMut(usize, Row) -> Result<f64, SampleError>> NetSampler for Machine<F> {
    fn use_settings(&mut self, settings: Settings) -> Result<(), SampleError> {
        self.settings.push(settings);
        Ok(())
    }

    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        self.mtu = Some(mtu);
        self.mtu_changes += 1;
        Ok(())
    }

    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
        if self.broken.is_some() && self.broken == self.mtu.map(|mtu| (row, mtu, *spec)) {
            return Err(SampleError::cell("no answer"));
        }
        self.measured(row, spec)
    }

    fn take_turns(&mut self, rows: &[(Row, TestSpec)], orders: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns> {
        assert!(orders.iter().all(|order| order.len() == rows.len()), "each row has its turn in each pass");
        let sample = |(index, (row, spec)): (usize, &(Row, TestSpec))| {
            self.measured(*row, spec).map_err(|error| BrokenTurns { index, error })
        };
        rows.iter().enumerate().map(sample).collect()
    }

    fn processes(&self) -> Vec<Pid> {
        Vec::new()
    }

    fn other_programs(&self) -> Vec<OtherProgramsTime> {
        Vec::new()
    }
}

impl<F: FnMut(usize, Row) -> Result<f64, SampleError>> Machine<F> {
    fn measured(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
        self.taken += 1;
        let seconds = (self.answer)(self.taken, row)?;
        let mut rtt = Histogram::new();
        rtt.record(1000);
        let end = EndReport { seconds, transactions: 1000, bytes: 1000, rtt: Some(rtt), ..EndReport::default() };
        Ok(Figures::join(spec, true, &end, &end))
    }
}

fn steady() -> Machine<impl FnMut(usize, Row) -> Result<f64, SampleError>> {
    Machine::new(|_, _| Ok(1.0))
}

/// Stores samples until there are `room` of them.
#[derive(Clone)]
struct Shelf {
    kept: Arc<Mutex<Vec<Sample>>>,
    room: usize,
}

impl Shelf {
    fn with_room(room: usize) -> Shelf {
        Shelf { kept: Arc::default(), room }
    }

    fn kept(&self) -> Vec<Sample> {
        self.kept.lock().expect("nobody panics with it").clone()
    }
}

impl EventSink for Shelf {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        if let RunEvent::Samples(samples) = event {
            miette::ensure!(kept.len() < self.room, "no space left on device");
            kept.extend_from_slice(samples);
        }
        Ok(())
    }
}

fn fresh(study: &str, samples: u32) -> RunReadings {
    let mut study = vtax_synthetic::study(study);
    study.plan.samples = samples;
    let header = RunHeader { seed: 42, ..RunHeader::plain("test".into(), String::new(), study) };
    RunReadings::begun(header)
}

fn go(run: &mut RunReadings, machine: &mut dyn NetSampler) -> Ended {
    go_until(run, machine, &Shelf::with_room(usize::MAX), &|| false)
}

fn go_until(
    run: &mut RunReadings,
    machine: &mut dyn NetSampler,
    shelf: &Shelf,
    stop_asked: &dyn Fn() -> bool,
) -> Ended {
    let (events, pace) = (&RunEvents::to(shelf.clone()), Pace::new(samples_left(run)));
    run_rounds(
        run,
        Sampler::Net(machine),
        &mut RunSurroundings::new(events, stop_asked, pace, OtherProgramsWatch::new(None)),
    )
}

#[test]
fn no_round_begins_that_would_not_end_in_time() {
    let (mut run, mut machine) = (fresh("demo", 5), steady());
    let (events, pace, begun) = (&RunEvents::to(Shelf::with_room(usize::MAX)), Pace::new(0), Instant::now());
    let around = RunSurroundings::new(events, &|| false, pace, OtherProgramsWatch::new(None));
    let mut around = RunSurroundings { until: Some(begun), ..around };
    let ended = run_rounds(&mut run, Sampler::Net(&mut machine), &mut around);
    assert!(ended.error.is_none() && around.out_of_time == Some(1), "{ended:?}");
    assert_eq!(run.samples.iter().map(|sample| sample.round).max(), Some(1), "one round in any case");
}

/// Returns which samples were stored, but not when.
fn turns(run: &RunReadings) -> Vec<(u32, Turn)> {
    run.samples.iter().map(SampleReading::turn).collect()
}

#[test]
fn every_sample_of_the_plan_is_taken_once() {
    let mut run = fresh("demo", 2);
    let planned = samples_left(&run);
    let mut machine = steady();
    let ended = go(&mut run, &mut machine);
    assert!(ended.error.is_none() && ended.state == RunState::Complete);
    assert_eq!((run.samples.len(), samples_left(&run)), (planned, 0));
    assert_eq!(planned, 2 * (56 + 8));
    let changes = machine.mtu_changes;
    assert!(
        (3..=4).contains(&changes),
        "two MTUs in two rounds, of which the second may begin with the last: {changes}"
    );
}

proptest! {
    #[test]
    fn a_run_stopped_anywhere_is_completed_by_resuming(patience in 0usize..140) {
        let mut stopped = fresh("demo", 2);
        let shelf = Shelf::with_room(usize::MAX);
        let ended = go_until(&mut stopped, &mut steady(), &shelf, &|| shelf.kept().len() >= patience);
        let planned = samples_left(&fresh("demo", 2));
        prop_assert_eq!(stopped.samples.len(), patience.min(planned));
        prop_assert_eq!(ended.state == RunState::Stopped, patience <= planned);
        go(&mut stopped, &mut steady());
        let mut whole = fresh("demo", 2);
        go(&mut whole, &mut steady());
        prop_assert_eq!(turns(&stopped), turns(&whole));
    }
}

#[test]
fn a_cell_that_keeps_failing_is_abandoned_and_the_others_continue() {
    let mut run = fresh("demo", 5);
    let bridge = Row::Method(IoMethod::Bridge);
    let broken = run.header.study.cells.iter().find(|cell| cell.row == bridge).expect("a cell of the row");
    let mut machine = Machine::new(|_, _| Ok(1.0));
    machine.broken = broken.net().map(|net| (bridge, net.mtu, net.spec(&run.header.plan)));
    let ended = go(&mut run, &mut machine);
    assert_eq!(ended.state, RunState::Complete);
    assert_eq!(run.failures.len(), GIVE_UP);
    assert_eq!(run.samples.len(), 5 * (56 + 8 - 1));
}

#[test]
fn a_row_without_a_sample_is_abandoned_and_the_others_continue() {
    let bridge = Row::Method(IoMethod::Bridge);
    let mut machine = Machine::new(move |_, row| match row == bridge {
        true => Err(SampleError::cell("no answer")),
        false => Ok(1.0),
    });
    let mut run = fresh("demo", 5);
    let ended = go(&mut run, &mut machine);
    assert_eq!(ended.state, RunState::Complete);
    assert_eq!(run.failures.len(), GIVE_UP_ROW, "not three times for each of eight cells");
    assert_eq!(run.samples.len(), 5 * (48 + 8));
}

#[test]
fn a_row_with_occasional_samples_is_not_abandoned() {
    let bridge = Row::Method(IoMethod::Bridge);
    let mut tries = 0;
    let mut machine = Machine::new(move |_, row| {
        tries += usize::from(row == bridge);
        // Two of three fail, never the same cell three times.
        match row == bridge && tries % 3 > 0 {
            true => Err(SampleError::cell("no answer")),
            false => Ok(1.0),
        }
    });
    let mut run = fresh("demo", 2);
    go(&mut run, &mut machine);
    assert_eq!(run.failures.len() + run.samples.len(), 2 * (56 + 8), "each sample was tried");
    assert!(run.failures.len() > GIVE_UP_ROW);
}

#[test]
fn partial_reports_of_a_failed_sample_are_kept() {
    let partial = || Some(Box::new(PartialRecord { initiator: Some(EndReport::default()), responder: None }));
    let vanished = || SampleError::Cell { error: "the peer vanished".into(), partial: partial() };
    let died = || SampleError::Run { error: miette::miette!("the agent died"), partial: partial() };
    for (broken, landed) in [(&vanished as &dyn Fn() -> SampleError, None), (&died, Some(4))] {
        let mut run = fresh("demo", 1);
        let landed = landed.unwrap_or(samples_left(&run) - 1);
        go(&mut run, &mut Machine::new(|n, _| if n == 5 { Err(broken()) } else { Ok(1.0) }));
        let [failure] = run.failures.as_slice() else { panic!("one: {:?}", run.failures) };
        assert!(failure.partial.as_ref().is_some_and(|partial| partial.initiator.is_some()));
        assert_eq!(run.samples.len(), landed);
    }
}

#[test]
fn a_dead_agent_ends_the_run_and_what_is_measured_stays() {
    let mut machine = Machine::new(|n, _| match n {
        8 => Err(SampleError::run(miette::miette!("zone bridge-sut: the agent died"))),
        _ => Ok(1.0),
    });
    let mut run = fresh("demo", 2);
    let ended = go(&mut run, &mut machine);
    assert_eq!((ended.state, run.samples.len()), (RunState::Stopped, 7));
    assert!(ended.error.expect("the death").to_string().contains("bridge-sut"));
}

#[test]
fn a_full_disk_ends_the_run() {
    let mut run = fresh("demo", 2);
    let shelf = Shelf::with_room(3);
    let ended = go_until(&mut run, &mut steady(), &shelf, &|| false);
    assert_eq!((ended.state, run.samples.len(), shelf.kept().len()), (RunState::Stopped, 3, 3));
    assert!(ended.error.is_some());
}

#[test]
fn a_sample_broken_by_ctrl_c_is_not_a_failure() {
    let asked = Cell::new(false);
    let mut run = fresh("demo", 2);
    let mut machine = Machine::new(|_, _| {
        asked.set(true);
        Err(SampleError::cell("cancelled"))
    });
    let ended = go_until(&mut run, &mut machine, &Shelf::with_room(usize::MAX), &|| asked.get());
    assert_eq!((ended.state, run.failures.len()), (RunState::Stopped, 0));
}

#[test]
fn rows_that_cannot_run_take_no_samples() {
    let mut run = fresh("demo", 1);
    let unsupported = Unsupported { why: "no module".into(), remedy: "load it".into() };
    run.header.unavailable.push(UnavailableRow { method: Row::Method(IoMethod::Ipvlan), unsupported });
    go(&mut run, &mut steady());
    assert_eq!(run.samples.len(), 64 - 8);
}

fn rule(min: usize, max: usize) -> StoppingRule {
    let width = Width::try_from(5.0).expect("a width");
    StoppingRule::new(Confidence::P99, width, min, max).expect("a rule")
}

#[test]
fn a_steady_machine_stops_at_the_least_number_of_rounds() {
    let mut run = fresh("demo", 1);
    run.header.stopping = Some(rule(3, 30));
    go(&mut run, &mut steady());
    assert_eq!(run.samples.iter().map(|sample| sample.round).max(), Some(3));
}

#[test]
fn a_restless_machine_stops_at_the_most_rounds() {
    let mut run = fresh("demo", 1);
    run.header.stopping = Some(rule(3, 6));
    let mut machine = Machine::new(|n, _| Ok(1.0 + (n * 7919 % 13) as f64));
    let ended = go(&mut run, &mut machine);
    assert_eq!(ended.state, RunState::Complete);
    assert_eq!(run.samples.iter().map(|sample| sample.round).max(), Some(6));
}

#[test]
fn cells_are_compared_by_what_their_test_is_for() {
    let mut run = fresh("demo", 1);
    go(&mut run, &mut Machine::new(|_, _| Ok(2.0)));
    let cells = &run.header.study.cells;
    for (index, values) in stopping_figures(&run) {
        let expected = match cells[index].kind() {
            TestKind::Rr => 2000.0,
            _ => 0.004,
        };
        assert_eq!(values, [expected]);
    }
}

/// The demo's cells, cut into slices.
fn sliced(samples: u32) -> RunReadings {
    let mut run = fresh("demo", samples);
    let slices = vtax_model::study::Slices { passes: 4, stream: vtax_model::units::Span::from_millis(10) };
    run.header.plan.slices = Some(slices);
    run.header.plan.samples = samples;
    run
}

#[test]
fn rows_of_a_block_take_turns_and_land_together() {
    let mut run = sliced(3);
    let planned = samples_left(&run);
    let mut machine = steady();
    let ended = go(&mut run, &mut machine);
    assert_eq!((ended.state, run.samples.len(), machine.taken), (RunState::Complete, planned, planned));
    // Seven rows and the baseline again, block by block.
    let block = |sample: &SampleReading| run.header.study.cells[sample.cell].block();
    let together = run.samples.chunk_by(|one, next| block(one) == block(next) && one.round == next.round);
    assert!({ together }.all(|samples| samples.len() == 8));
}

#[test]
fn a_row_that_fails_in_its_turn_is_omitted_and_the_others_are_measured() {
    let vxlan: Row = "vxlan".parse().expect("a row");
    let mut run = sliced(4);
    let mut machine = Machine::new(|_, row| match row == vxlan {
        true => Err(SampleError::cell("no tunnel")),
        false => Ok(1.0),
    });
    let ended = go(&mut run, &mut machine);
    assert_eq!(ended.state, RunState::Complete);
    let of_vxlan = |cell: usize| run.header.study.cells[cell].row == vxlan;
    assert!(!run.samples.iter().any(|sample| of_vxlan(sample.cell)));
    assert_eq!(run.samples.len(), 4 * 8 * 7, "all others, in each round");
    assert!(run.failures.iter().all(|failure| of_vxlan(failure.cell)));
    assert_eq!(run.failures.len(), GIVE_UP_ROW / 2, "each tried twice, then it is given up");
}

#[test]
fn a_row_that_fails_once_in_its_turn_is_measured_again_with_the_others() {
    let vxlan: Row = "vxlan".parse().expect("a row");
    let mut run = sliced(2);
    let mut fails = false;
    let mut machine = Machine::new(|_, row| {
        fails ^= row == vxlan;
        if row == vxlan && fails { Err(SampleError::cell("no message arrived")) } else { Ok(1.0) }
    });
    assert_eq!(go(&mut run, &mut machine).state, RunState::Complete);
    assert_eq!(turns(&run).len(), 2 * 8 * 8);
    assert_eq!(run.failures, []);
}

#[test]
fn a_killed_run_has_whole_blocks_and_goes_on_with_the_next() {
    let mut run = sliced(2);
    let shelf = Shelf::with_room(20);
    let ended = go_until(&mut run, &mut steady(), &shelf, &|| false);
    let kept = shelf.kept();
    assert!(ended.error.is_some() && kept.len().is_multiple_of(8), "{}", kept.len());
    run.samples = kept.iter().map(SampleReading::of).collect();
    assert_eq!(go(&mut run, &mut steady()).state, RunState::Complete);
    assert_eq!(samples_left(&run), 0);
}

#[test]
fn settings_are_changed_before_each_sample_of_a_step() {
    let mut run = fresh("demo", 3);
    let step: StepName = "gro".parse().expect("a name");
    let study = &mut run.header.study;
    (study.rows, study.baseline) = (vec![Row::AsIs, Row::Tuned { path: None, step }], Row::AsIs);
    study.cells.truncate(1);
    study.cells = study.rows.iter().map(|row| vtax_model::cell::Cell { row: *row, ..study.cells[0] }).collect();
    study.steps =
        vec![vtax_model::study::TuningStep { name: step, rules: vec!["offloads".to_owned()], sysctl: BTreeMap::new() }];
    let mut machine = steady();
    go(&mut run, &mut machine);
    let expected = |sample: &SampleReading| match (study_row(&run, sample), sample.arm) {
        (Row::AsIs, Arm::A) => Settings::AsIs,
        (Row::AsIs, Arm::APrime) => Settings::Rewritten,
        _ => Settings::Of(step),
    };
    assert_eq!(machine.settings, run.samples.iter().map(expected).collect::<Vec<_>>());
    assert_eq!(machine.settings.len(), 9);
}

fn study_row(run: &RunReadings, sample: &SampleReading) -> Row {
    run.header.study.cells[sample.cell].row
}
