use vtax_model::{
    cell::Arm,
    foreign::ForeignText,
    guest::{Backend, EmulatedNic, Flavour},
    measurement::ThreadPriority,
    result::Disturbance,
    run::{Failure, Run},
    units::Span,
};
use vtax_stats::histogram::{Histogram, SparseHistogram};

use super::*;
use crate::Options;
use vtax_synthetic::{analyse, header, sample};

/// Two rounds of the demo's first cell.
fn small(id: &str) -> Run {
    let mut run = Run {
        header: header(id, "2026-01-01T00:00:00Z"),
        state: vtax_model::run::RunState::Complete,
        wall_seconds: 1.0,
        samples: vec![sample(0, Arm::A, 1), sample(0, Arm::A, 2)],
        failures: Vec::new(),
    };
    let mut times = Histogram::new();
    times.record(50_000);
    for sample in &mut run.samples {
        let rtt = vtax_model::run::RttFigures {
            mean: 50_000.0,
            by_rate: None,
            p50: 50_000,
            p99: 50_000,
            p999: 50_000,
            max: 50_000,
            hdr: SparseHistogram::of(&times),
        };
        sample.figures.rtt_ns = Some(rtt);
    }
    run
}

fn told(first: &ResultDocument, second: &ResultDocument) -> Vec<String> {
    compare(first, second, None).warnings
}

#[test]
fn two_runs_that_were_made_alike_cause_no_misgivings() {
    let [first, second] = ["demo-1", "demo-2"].map(|id| analyse(&small(id)));
    assert_eq!(told(&first, &second), [""; 0]);
    assert_eq!(compare(&first, &second, None).nothing_in_common(), None);
}

#[test]
fn runs_whose_threads_had_another_priority_are_not_alike() {
    let of = |id: &str, priority| {
        let mut run = small(id);
        run.samples.iter_mut().for_each(|sample| {
            sample.figures.ends.initiator.priority = priority;
            sample.figures.ends.responder.priority = priority;
        });
        analyse(&run)
    };
    let [first, second] = [Some(ThreadPriority::RealTime), Some(ThreadPriority::Normal)].map(|all| of("demo-1", all));
    let warnings = told(&first, &second);
    let text = "OTHER THREAD PRIORITY: real-time priority in the first run, normal priority in the second.";
    assert!(matches!(warnings.as_slice(), [warning] if warning.starts_with(text)), "{warnings:?}");
    assert_eq!(told(&first, &of("demo-2", None)), [""; 0], "an older vtax did not report it");
}

/// A complete run was compared with a stopped and disturbed one, and neither was reported.
#[test]
fn a_run_that_is_not_whole_or_was_disturbed_is_reported() {
    let whole = analyse(&small("demo-1"));
    let mut broken = small("demo-2");
    broken.state = vtax_model::run::RunState::Stopped;
    broken.failures = vec![Failure { cell: 0, arm: Arm::A, round: 2, error: "late".into(), partial: None }];
    let mut broken = analyse(&broken);
    broken.disturbance = Disturbance { other_programs: Some(0.54), stolen: Some(0.12), guests_waited: Some(0.3) };
    insta::assert_snapshot!(told(&whole, &broken).join("\n"), @r"
    INCOMPLETE: the second run has 1 of 11 rounds. Resume with: vtax run --resume demo-2
    BUSY HOST: in the second run other programs took 54 % of the CPU time, steal time 12 %.
    CPU CONTENTION: the guests of the second run waited for a CPU 30 % of the time.
    FAILED: 1 sample of the second run.
    ");
    let text = compare(&broken, &whole, None).render(&Options::default()).plain();
    assert!(text.contains("! INCOMPLETE: the first run"), "{text}");
}

#[test]
fn another_kernel_plan_or_instrument_is_reported() {
    let mut first = analyse(&small("demo-1"));
    let mut second = small("demo-2");
    (first.environment.kernel, second.header.environment.kernel) = ("6.18".into(), "6.19".into());
    second.header.plan.duration = Span::from_millis(1_000);
    insta::assert_snapshot!(told(&first, &analyse(&second)).join("\n"), @r"
    OTHER KERNEL: 6.18 in the first run, 6.19 in the second. Unless that is the change under test, it may explain the differences.
    OTHER PLAN: 150ms after 10ms of warm-up in the first run, 1s after 10ms of warm-up in the second. Unless that is the change under test, it may explain the differences.
    ");
    first.environment.kernel = ForeignText::default();
    let mut path = small("demo-3");
    path.header.path_plan = Some(path.header.plan);
    path.header.study.cells.iter_mut().for_each(|cell| cell.instrument = Instrument::Path);
    let path = analyse(&path);
    insta::assert_snapshot!(told(&first, &path).join("\n"), @"OTHER MEASUREMENT MODE: the first run used host settings, the second controlled conditions. Only figures of the same measurement mode are compared.");
    let why = compare(&first, &path, None).nothing_in_common().expect("nothing is compared");
    insta::assert_snapshot!(why, @"they have no cell in common (same row, MTU, test, sizes and options): native, 1 cell (host settings): in demo-1 only; native, 1 cell (controlled conditions): in demo-3 only");
}

#[test]
fn another_kind_of_nic_is_reported() {
    let [mut first, mut second] = ["demo-1", "demo-2"].map(|id| analyse(&small(id)));
    first.cells[0].backend = Some(Flavour::Backend(Backend::Vhost));
    second.cells[0].backend = Some(Flavour::Model(EmulatedNic::E1000e));
    insta::assert_snapshot!(told(&first, &second).join("\n"), @"OTHER KIND OF NIC: vhost in the first run, e1000e in the second. Unless that is the change under test, it may explain the differences.");
}

#[test]
fn the_two_instruments_have_their_own_tables() {
    let both = |id: &str| {
        let mut run = small(id);
        run.header.path_plan = Some(run.header.plan);
        let cell = run.header.study.cells[0];
        run.header.study.cells.push(Cell { instrument: Instrument::Path, ..cell });
        let last = run.header.study.cells.len() - 1;
        let again: Vec<_> =
            run.samples.iter().cloned().map(|sample| vtax_model::run::Sample { cell: last, ..sample }).collect();
        run.samples.extend(again);
        analyse(&run)
    };
    let text = compare(&both("demo-1"), &both("demo-2"), None).render(&Options::default()).plain();
    for title in ["Controlled conditions, TCP: RTT", "Host settings, TCP: RTT"] {
        assert!(text.contains(title), "{text}");
    }
}
