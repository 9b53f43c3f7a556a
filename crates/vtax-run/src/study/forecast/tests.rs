use vtax_model::{
    cell::Arm,
    located::Source,
    measurement::{EndReport, MachineCpu},
    run::{Figures, Run, RunState, Sample, SampleReading},
    study::Study,
};
use vtax_stats::histogram::Histogram;

use super::*;
use vtax_synthetic::header;

/// Returns a plan of TCP RR between three rows, with a given number of rounds.
fn plan(rounds: u32) -> RunHeader {
    let text = r#"
        id = "three"
        title = "Three rows"
        baseline = "native"
        [matrix]
        methods = ["native", "bridge", "veth"]
        mtu = [1500]
        transports = ["tcp"]
        tests = ["rr"]
        [plan]
        samples = 11
        duration = "150ms"
        warmup = "10ms"
    "#;
    let study = Study::parse(Source { name: "three.toml", text }).expect("a study");
    let mut header = header("three-1", "2026-01-01T00:00:00.000Z");
    (header.plan, header.study) = (study.plan, study);
    header.set_rounds(rounds);
    header
}

/// Returns all rounds of a plan: figures scatter by a few percent, a sample takes half a second.
fn measured(header: RunHeader) -> Run {
    let mut run =
        Run { header, state: RunState::Complete, wall_seconds: 1.0, samples: Vec::new(), failures: Vec::new() };
    for round in 1..=run.header.rounds() {
        for turn in run.header.turns(round) {
            let nth = run.samples.len() as u64;
            let spread = if turn.arm == Arm::APrime { 3 } else { 7 };
            let rtt = 50_000 + 100 * (nth * spread % 11);
            let figures = figures(&run.header, turn.cell, rtt);
            let at = format!("2026-01-01T00:{:02}:{:02}.{:03}Z", nth / 120, nth / 2 % 60, nth % 2 * 500);
            run.samples.push(Sample { cell: turn.cell, arm: turn.arm, round, at, figures });
        }
    }
    run
}

fn read(run: Run) -> RunReadings {
    run.with_samples(|samples| samples.into_iter().map(SampleReading::from).collect())
}

fn figures(header: &RunHeader, cell: usize, rtt: u64) -> Figures {
    let mut times = Histogram::new();
    times.record(rtt);
    let machine = MachineCpu { cpus: 2, user: 0.1, idle: 1.9, ..MachineCpu::default() };
    let transactions = 1_000_000_000 / rtt;
    let end = EndReport { seconds: 1.0, transactions, machine, rtt: Some(times), ..EndReport::default() };
    let cell = &header.study.cells[cell];
    Figures::join(&cell.net().expect("of a network").spec(header.plan_of(cell.instrument)), true, &end, &end)
}

fn run_store(earlier: Option<&Run>) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a directory");
    let store = Store::open(folder.path()).expect("it opens");
    if let Some(run) = earlier {
        let mut writer = store.create_run(&run.header).expect("new");
        writer.samples(&run.samples).expect("they are stored");
        writer.finish(run.state, 1.0).expect("ends");
    }
    (folder, store)
}

fn lines(header: &RunHeader, earlier: Option<&Run>) -> String {
    let (_folder, store) = run_store(earlier);
    PlanForecast::of(header, Some(&store)).expect("readable").lines(header).join("\n")
}

fn asked(text: &str) -> RunHeader {
    let goal = match text.strip_suffix('%') {
        Some(_) => Goal::Show(text.parse().expect("a difference")),
        None => Goal::Budget(text.parse().expect("a time")),
    };
    RunHeader { unsettled: Some(goal), ..plan(50) }
}

#[test]
fn a_plan_is_reported_with_what_it_can_show_by_the_last_run() {
    let earlier = measured(plan(20));
    insta::assert_snapshot!(lines(&plan(50), Some(&earlier)), @"plan: 50 rounds, about 1 min 40 s; detectable (80 % power): about 0.6 % in TCP RR (from your run three-1)");
    insta::assert_snapshot!(lines(&plan(50), None), @"plan: 50 rounds, about 35 s; detectable differences are reported after the first 6 rounds");
    let other = Run { header: RunHeader { id: "three-0".into(), seed: 2, ..plan(3) }, ..measured(plan(3)) };
    assert_eq!(lines(&plan(50), Some(&other)), lines(&plan(50), None), "three rounds tell nothing");
    let stopped = Run { state: RunState::Stopped, ..earlier };
    assert_eq!(lines(&plan(50), Some(&stopped)), lines(&plan(50), None));
}

/// `--quick` had 3 rounds, by its own plan.
#[test]
fn a_plan_that_can_show_nothing_is_reported_before_it_starts() {
    insta::assert_snapshot!(lines(&plan(3), None), @r"
    plan: 3 rounds, about 2 s
    warning: 3 rounds cannot show any difference: 2 comparisons need at least 7 (--samples 7)
    ");
}

#[test]
fn rounds_are_chosen_by_the_last_run() {
    let (_folder, store) = run_store(Some(&measured(plan(20))));
    let settled = |mut header: RunHeader| {
        let forecast = PlanForecast::of(&header, Some(&store)).expect("readable");
        forecast.settle(&mut header).map_err(|stop| stop.to_string())?;
        assert!(header.unsettled.is_none() && !forecast.needs_pilot(&header));
        Ok::<u32, String>(header.rounds())
    };
    assert_eq!(settled(asked("2m")), Ok(60), "two seconds a round");
    let rounds = [settled(asked("1%")), settled(asked("0.5%"))].map(|rounds| rounds.expect("not too many"));
    assert!(rounds[0] >= 7 && rounds[1] > rounds[0], "{rounds:?}");
    assert!(settled(asked("1s")).expect_err("too short").contains("7 rounds"));
}

#[test]
fn a_pilot_chooses_the_rounds_where_nothing_is_known() {
    let (_folder, store) = run_store(None);
    let mut header = asked("0.5%");
    let forecast = PlanForecast::of(&header, Some(&store)).expect("readable");
    forecast.settle(&mut header).expect("a pilot");
    assert!(forecast.needs_pilot(&header) && header.unsettled.is_some(), "also after a kill");
    assert_eq!(header.rounds(), PILOT);
    insta::assert_snapshot!(forecast.lines(&header).join("\n"), @"plan: 6 rounds first, to estimate how many --show 0.5% needs");
    let mut run = read(measured(header));
    let Piloted { line, shortfall } = settle_by_pilot(&mut run);
    insta::assert_snapshot!(line.expect("told"), @"--show 0.5%: after 6 rounds: 141 rounds, about 4 min 42 s in all; detectable (80 % power): about 0.5 % in TCP RR");
    assert!(shortfall.is_none() && run.header.unsettled.is_none() && run.header.rounds() > PILOT);
}

#[test]
fn a_pilot_that_finds_no_number_of_rounds_ends_the_run_with_a_message() {
    let mut run = read(measured(RunHeader { unsettled: asked("0.001%").unsettled, ..plan(PILOT) }));
    let Piloted { line, shortfall } = settle_by_pilot(&mut run);
    insta::assert_snapshot!(shortfall.expect("told"), @"--show 0.001%: too noisy, according to the run three-1: 2000 rounds, the maximum of a run, detect 0.13 %; use a larger difference, or longer samples (--duration); the run ended after its first 6 rounds");
    assert!(line.is_none() && run.header.rounds() == PILOT);
}

#[test]
fn a_pilot_with_samples_too_short_for_a_percentile_reports_that() {
    let header = RunHeader { metric: Some(Metric::P99), unsettled: asked("5%").unsettled, ..plan(PILOT) };
    let Piloted { shortfall, .. } = settle_by_pilot(&mut read(measured(header)));
    insta::assert_snapshot!(shortfall.expect("told"), @"--show 5%: samples have fewer than 368 transactions, too few for p99; use longer samples (--duration); using the study's 11 rounds");
}

/// This is not a failure: there is a result, with as many rounds as a pilot.
#[test]
fn a_budget_that_a_pilot_has_used_up_is_reported() {
    let mut run = read(measured(RunHeader { unsettled: asked("1s").unsettled, ..plan(PILOT) }));
    let Piloted { line, shortfall } = settle_by_pilot(&mut run);
    insta::assert_snapshot!(line.expect("told"), @r"
    warning: --budget 1s: the first 6 rounds used it up
    warning: 6 rounds cannot show any difference: 2 comparisons need at least 7 (a longer --budget)
    ");
    assert!(shortfall.is_none() && run.header.rounds() == PILOT && run.header.unsettled.is_none());
}

/// A round may take minutes, and six of them far more than the requested time.
#[test]
fn a_budget_without_time_for_a_pilot_ends_the_run_after_the_rounds_that_fit() {
    let mut header = RunHeader { unsettled: asked("10m").unsettled, ..plan(PILOT) };
    let Piloted { line, shortfall } = settle_by_time(&mut header, 2);
    insta::assert_snapshot!(line.expect("told"), @r"
    warning: --budget 10m: no time for another round after 2 rounds
    warning: 2 rounds cannot show any difference: 2 comparisons need at least 7 (a longer --budget)
    ");
    assert!(shortfall.is_none() && header.rounds() == 2 && header.unsettled.is_none());
}

/// On a server whose guests boot slowly, a round takes minutes.
#[test]
fn a_quick_run_ends_after_the_rounds_that_fit_into_its_limit() {
    let limit = Some("11m".parse().expect("a time"));
    let mut header = plan(11);
    header.plan.limit = limit;
    let earlier = measured(plan(20));
    insta::assert_snapshot!(lines(&header, Some(&earlier)), @"plan: 11 rounds, about 22 s; detectable (80 % power): about 1.4 % in TCP RR (from your run three-1)");
    let Piloted { line, shortfall } = settle_by_time(&mut header, 2);
    insta::assert_snapshot!(line.expect("told"), @r"
    warning: --quick takes at most 11m unless --samples or --budget is given: no time for another round after 2 rounds
    warning: 2 rounds cannot show any difference: 2 comparisons need at least 7 (--samples 7)
    ");
    assert!(shortfall.is_none() && header.rounds() == 2);
    header = plan(400);
    header.plan.limit = limit;
    insta::assert_snapshot!(lines(&header, Some(&earlier)), @"plan: at most 400 rounds, as many as fit in 11m");
}

#[test]
fn a_pilot_whose_samples_failed_is_reported() {
    let mut run = read(measured(RunHeader { unsettled: asked("1%").unsettled, ..plan(PILOT) }));
    run.samples.retain(|sample| sample.round < 3);
    let Piloted { shortfall, .. } = settle_by_pilot(&mut run);
    insta::assert_snapshot!(shortfall.expect("told"), @"--show 1%: samples of the first 6 rounds failed; using the study's 11 rounds");
    let mut run = read(measured(plan(PILOT)));
    run.samples.clear();
    assert!(settle_by_pilot(&mut run).shortfall.is_none(), "nothing was asked for");
}

#[test]
fn per_cents_have_two_digits_at_most() {
    let told = [0.0005, 0.0061, 0.02, 0.0951, 0.126, 0.9].map(percent);
    assert_eq!(told, ["0.05 %", "0.6 %", "2 %", "9.5 %", "13 %", "90 %"]);
}

#[test]
fn omissions_of_quick_are_reported() {
    let mut header = plan(11);
    header.study.path = Some(header.plan);
    assert!(!lines(&header, None).contains("--mode controlled"));
    header.quick = true;
    assert!(lines(&header, None).contains("--quick omits controlled conditions; --mode controlled measures only"));
}
