use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vtax_stats::histogram::Histogram;

use super::*;
use crate::{
    analysis::tests::demo_run,
    endpoint::Ends,
    measurement::{EndReport, IntervalRtt, MachineCpu},
    run::{Figures, Run, RunHeader, RunState, Sample},
    study::{StepRecord, TuningStep},
    workload::{TestKind, Transport},
};

/// Factors by which a transaction takes longer, on average and at the 99th percentile.
#[derive(Clone, Copy)]
struct Slower {
    mean: f64,
    p99: f64,
}

const SAME: Slower = Slower { mean: 1.0, p99: 1.0 };

fn faster(by: f64) -> Slower {
    Slower { mean: 1.0 - by, p99: 1.0 - by }
}

fn step(name: &str) -> StepName {
    name.parse().expect("a name")
}

/// Plans TCP RR with the original settings, and with each of these steps.
fn header(steps: &[&str], rounds: u32) -> RunHeader {
    let mut header = demo_run().header;
    header.unavailable.clear();
    let cell = { header.study.cells.iter() }
        .find(|cell| cell.net().expect("of a network").transport == Transport::Tcp && cell.kind() == TestKind::Rr)
        .copied()
        .expect("the demo has it");
    let tuned = steps.iter().map(|name| Row::Tuned { path: None, step: step(name) });
    header.study.rows = std::iter::once(Row::AsIs).chain(tuned).collect();
    header.study.cells = header.study.rows.iter().map(|row| Cell { row: *row, ..cell }).collect();
    header.study.baseline = Row::AsIs;
    let planned = |name: &&str| TuningStep { name: step(name), rules: Vec::new(), sysctl: Default::default() };
    header.study.steps = steps.iter().map(planned).collect();
    header.steps = steps.iter().map(|name| StepRecord { step: step(name), changes: Vec::new() }).collect();
    header.plan.samples = rounds;
    header
}

/// A run on a machine whose rounds differ by 2 %.
fn run(steps: &[&str], rounds: u32, seed: u64, slower: impl Fn(Row, Arm) -> Slower) -> RunReadings {
    let header = header(steps, rounds);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut samples = Vec::new();
    for round in 1..=rounds {
        for turn in header.turns(round) {
            let noise = 1.0 + 0.02 * (rng.random::<f64>() + rng.random::<f64>() - 1.0);
            let cell = &header.study.cells[turn.cell];
            let Slower { mean, p99 } = slower(cell.row, turn.arm);
            let figures = figures(cell, &header, mean * noise, p99 * noise);
            samples.push(Sample { cell: turn.cell, arm: turn.arm, round, at: String::new(), figures });
        }
    }
    let run = Run { header, state: RunState::Complete, wall_seconds: 1.0, samples, failures: vec![] };
    let Ok(readings) = run.readings();
    readings
}

fn figures(cell: &Cell, header: &RunHeader, mean: f64, p99: f64) -> Figures {
    let mut rtt = Histogram::new();
    (0..98).for_each(|_| rtt.record((50_000.0 * mean) as u64));
    (0..2).for_each(|_| rtt.record((100_000.0 * p99) as u64));
    let end = EndReport {
        seconds: 1.0,
        transactions: (20_000.0 / mean) as u64,
        bytes: 20_000,
        rtt: Some(rtt),
        machine: MachineCpu { cpus: 2, idle: 1.5, busy: Some(0.5 / mean), ..MachineCpu::default() },
        ..EndReport::default()
    };
    Figures::join(&cell.net().expect("of a network").spec(&header.plan), true, &end, &end)
}

fn margin() -> Difference {
    Difference::try_from(2.0).expect("possible")
}

fn verdicts(run: &RunReadings) -> Vec<(String, StepVerdict)> {
    Proof::of(run, margin()).steps.iter().map(|step| (step.step.to_string(), step.verdict)).collect()
}

#[test]
fn only_helpful_steps_are_kept() {
    let run = run(&["helps", "hardly", "nothing", "harms", "tail"], 40, 1, |row, _| match row.to_string().as_str() {
        "+helps" => faster(0.1),
        "+hardly" => faster(0.015),
        "+harms" => Slower { mean: 1.1, p99: 1.1 },
        "+tail" => Slower { mean: 0.9, p99: 2.0 },
        _ => SAME,
    });
    let expected = [
        ("helps", StepVerdict::Kept),
        ("hardly", StepVerdict::TooSmall),
        ("nothing", StepVerdict::NoEffectShown),
        ("harms", StepVerdict::Harmful),
        ("tail", StepVerdict::GuardBroken),
    ];
    assert_eq!(verdicts(&run), expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    assert_eq!(Proof::of(&run, margin()).kept(), [step("helps")]);
}

/// Such a step was once kept: it sped the measured path up and slowed another guest down.
#[test]
fn a_step_that_slows_a_guarded_path_is_harmful() {
    let run = |median: u64, p99: u64| {
        let mut run = run(&["helps"], 40, 7, |row, _| if row == Row::AsIs { SAME } else { faster(0.1) });
        let end = |name: &str| name.parse().expect("an end");
        let network = run.header.study.network_mut().expect("of a network");
        network.guarded = vec![Ends { initiator: end("local"), responder: end("zone:web-2") }];
        for (nth, sample) in (0..).zip(&mut run.samples) {
            let is_step = run.header.study.cells[sample.cell].row.step().is_some();
            let (median, p99) = if is_step { (median, p99) } else { (50_000, 90_000) };
            let noise = nth % 7 * 100;
            sample.guarded = vec![IntervalRtt { p50: median + noise, p99: p99 + noise, ..IntervalRtt::default() }];
        }
        run
    };
    let verdict = |median, p99| Proof::of(&run(median, p99), margin()).steps[0].verdict;
    assert_eq!(verdict(50_000, 90_000), StepVerdict::Kept);
    assert_eq!(verdict(50_500, 90_500), StepVerdict::Kept, "within the margin");
    assert_eq!(verdict(53_000, 90_000), StepVerdict::Harmful);
    assert_eq!(verdict(50_000, 99_000), StepVerdict::Harmful);
    let broken =
        Proof::of(&run(53_000, 90_000), margin()).steps.remove(0).guards.into_iter().find(|guard| guard.broken);
    assert_eq!(broken.and_then(|guard| guard.path), Some("zone:web-2".into()));
}

/// A step that trebled the bandwidth was once rejected, because 0.5 % of the packets were retransmitted where none was
/// before.
#[test]
fn a_few_retransmits_are_harmless_and_many_are_not() {
    let verdict = |share: f64| {
        let mut run = run(&["helps"], 40, 5, |row, _| if row == Row::AsIs { SAME } else { faster(0.1) });
        for sample in &mut run.samples {
            let is_step = run.header.study.cells[sample.cell].row.step().is_some();
            sample.transactions = 100_000;
            sample.retransmits = Some(if is_step { (100_000.0 * share) as u64 } else { 0 });
        }
        Proof::of(&run, margin()).steps[0].verdict
    };
    assert_eq!(verdict(0.005), StepVerdict::Kept);
    assert_eq!(verdict(0.02), StepVerdict::GuardBroken);
}

#[test]
fn possible_after_effects_are_subtracted_from_a_steps_gain() {
    let verdict = |brings: f64, left: f64| {
        let run = run(&["helps"], 200, 2, |row, arm| match (row, arm) {
            (Row::Tuned { .. }, _) => faster(brings),
            (_, Arm::APrime) => faster(left),
            _ => SAME,
        });
        Proof::of(&run, margin()).steps[0].verdict
    };
    assert_eq!(verdict(0.2, 0.0), StepVerdict::Kept);
    // As in a trial of a buffer whose change gained 63 %: reverting left 0.6 % behind, and everything was rejected for
    // that.
    assert_eq!(verdict(0.2, 0.006), StepVerdict::Kept);
    // And another one with after-effects of 1 %, perhaps 4 %, of 64 %.
    assert_eq!(verdict(0.2, 0.05), StepVerdict::Kept);
    assert_eq!(verdict(0.1, 0.1), StepVerdict::LeftBehind);
    assert_eq!(verdict(0.1, 0.085), StepVerdict::LeftBehind, "the rest is less than the margin");
    // In either direction.
    assert_eq!(verdict(0.1, -0.1), StepVerdict::LeftBehind);
}

#[test]
fn a_test_in_which_much_is_left_behind_may_hide_harm() {
    let most = |left: f64| FloorProof {
        low: left.exp(),
        high: (left + 0.01).exp(),
        ..floors(&run(&["helps"], 12, 2, |_, _| SAME)).remove(0)
    };
    let run = run(&["helps"], 40, 2, |_, _| SAME);
    let cells = analyse_readings(&run).cells;
    let tax = cells.iter().find_map(|record| record.tax.clone()).expect("a comparison");
    let may_hide = |left: f64, p: f64| {
        let floors = [FloorProof { p, ..most(left) }];
        let effect = StepEffect { block: floors[0].block, tax: tax.clone() };
        Judged { run: &run, cells: &cells, floors: &floors, margin: margin() }.may_hide_harm(&effect)
    };
    assert!(may_hide(0.05, 0.001));
    assert!(!may_hide(0.005, 0.001), "less than the margin");
    assert!(!may_hide(0.05, 0.2), "not shown");
}

#[test]
fn a_step_whose_samples_failed_is_not_measured() {
    let mut run = run(&["helps"], 12, 3, |_, _| SAME);
    run.samples.retain(|sample| run.header.study.cells[sample.cell].row == Row::AsIs);
    assert_eq!(verdicts(&run), [("helps".to_owned(), StepVerdict::NotMeasured)]);
}

#[test]
fn one_step_is_compared_with_another_in_the_same_rounds() {
    let run = run(&["all", "without"], 30, 4, |row, _| match row.to_string().as_str() {
        "+all" => faster(0.2),
        "+without" => faster(0.1),
        _ => SAME,
    });
    let [comparison] = &against(&run, step("without"), step("all"))[..] else { panic!("one test") };
    assert!(comparison.low < 0.9 / 0.8 && 0.9 / 0.8 < comparison.high, "{comparison:?}");
    assert!(comparison.worse().0 > 0.0, "{comparison:?}");
}

/// A run ends at the first planned look at which every difference is shown.
fn ends_after(run: &RunReadings) -> u32 {
    let all = run.header.rounds();
    let at = |round: u32| {
        let samples = run.samples.iter().filter(|sample| sample.round <= round).cloned().collect();
        RunReadings { samples, ..run.clone() }
    };
    (1..all).find(|round| at(*round).is_decided(*round)).unwrap_or(all)
}

#[test]
fn a_run_ends_at_a_planned_look_if_all_is_decided_and_continues_if_not() {
    let large = run(&["helps"], 50, 5, |row, _| if row == Row::AsIs { SAME } else { faster(0.2) });
    assert_eq!(large.header.looks(), [22, 36, 50]);
    assert_eq!(ends_after(&large), 22);
    let none = run(&["placebo"], 50, 6, |_, _| SAME);
    assert_eq!(ends_after(&none), 50);
}

/// As in a trial of an MTU: its gain was shown at the first look, 6.3 % [1.7, 11], and was rejected because it may be
/// less than the margin. The remaining rounds would have decided.
#[test]
fn a_run_continues_while_a_gain_may_be_more_or_less_than_the_margin() {
    let run = run(&["helps"], 50, 5, |row, _| if row == Row::AsIs { SAME } else { faster(0.03) });
    let with_margin = |margin: Option<&str>| {
        let margin = margin.map(|text| text.parse().expect("a difference"));
        RunReadings { header: RunHeader { margin, ..run.header.clone() }, ..run.clone() }
    };
    assert_eq!(ends_after(&with_margin(None)), 22, "a difference is shown");
    assert_eq!(ends_after(&with_margin(Some("3%"))), 50, "the gain is about the margin");
    for decided in ["0.5%", "20%"] {
        assert_eq!(ends_after(&with_margin(Some(decided))), 22, "{decided}");
    }
}

/// Three looks at two placebos: with p-values that ignore the looks, about 10 % of such runs show a difference.
#[test]
fn placebos_are_shown_to_differ_in_one_of_twenty_runs_at_most() {
    let shown = |seed: u64| {
        let run = run(&["one", "two"], 25, seed, |_, _| SAME);
        run.header.looks().into_iter().any(|look| {
            let samples = run.samples.iter().filter(|sample| sample.round <= look).cloned().collect();
            let seen = RunReadings { samples, ..run.clone() };
            Proof::of(&seen, margin()).steps.iter().any(|step| step.verdict != StepVerdict::NoEffectShown)
        })
    };
    let alarms = (0..100).filter(|seed| shown(*seed)).count();
    assert!(alarms <= 5 + 7, "{alarms} of 100: 5 % are 5, and 7 more are three standard deviations");
}
