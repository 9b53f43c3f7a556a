//! Synthetic runs, and everything derived from them except figures.

use super::*;
use crate::{
    cell::Cell,
    located::Source,
    measurement::{EndReport, MachineCpu, PacketCounts, WireCounts},
    study::{Study, tests::PATH},
    units::ByteSize,
    workload::{Direction, TestKind, Workload},
};
use vtax_stats::{Confidence, Decision, Width, histogram::Histogram};

/// Three rows, of which the first is the baseline; TCP RR at one MTU.
pub(crate) const THREE_ROWS: &str = r#"
    id = "three"
    title = "Three rows"
    baseline = "native"
    [matrix]
    methods = ["native", "bridge", "veth"]
    mtu = [1500]
    transports = ["tcp"]
    tests = ["rr"]
    [plan]
    samples = 8
    duration = "1s"
"#;

pub(crate) fn header(text: &str) -> RunHeader {
    let study = Study::parse(Source { name: "test.toml", text }).expect("a study");
    RunHeader { seed: 7, ..RunHeader::plain("test-1".into(), String::new(), study) }
}

/// A complete run of the plan; `rtt` gives µs.
pub(crate) fn run(header: RunHeader, rtt: impl Fn(&Cell, Turn, u32) -> f64) -> RunReadings {
    let mut samples = Vec::new();
    for round in 1..=header.rounds() {
        for turn in header.turns(round) {
            let cell = &header.study.cells[turn.cell];
            let figures = figures(cell, &header, rtt(cell, turn, round));
            let sample = Sample { cell: turn.cell, arm: turn.arm, round, at: String::new(), figures };
            samples.push(SampleReading::of(&sample));
        }
    }
    Run { header, state: RunState::Complete, wall_seconds: 1.0, samples, failures: Vec::new() }
}

/// Returns the in-memory part of a sample with these figures.
pub(crate) fn reading(round: u32, figures: &Figures) -> SampleReading {
    SampleReading::of(&Sample { cell: 0, arm: Arm::A, round, at: String::new(), figures: figures.clone() })
}

fn figures(cell: &Cell, header: &RunHeader, rtt: f64) -> Figures {
    let mut times = Histogram::new();
    times.record((rtt * 1e3) as u64);
    let machine = MachineCpu { cpus: 2, user: 1.0, idle: 1.0, ..MachineCpu::default() };
    // Many, so that a whole number of them is as good as a fraction.
    let transactions = 1_000_000_000;
    let seconds = transactions as f64 * rtt / 1e6;
    let bytes = (1e15 / rtt) as u64;
    let end = EndReport { seconds, transactions, bytes, rtt: Some(times), machine, ..EndReport::default() };
    Figures::join(&cell.net().expect("of a network").spec(header.plan_of(cell.instrument)), true, &end, &end)
}

fn ruled(min: usize, max: usize) -> RunHeader {
    let width = Width::try_from(10.0).expect("a width");
    let rule = StoppingRule::new(Confidence::P95, width, min, max).expect("a rule");
    RunHeader { stopping: Some(rule), ..header(THREE_ROWS) }
}

/// `bridge` is noisy, the others are not.
fn noisy_bridge(cell: &Cell, _: Turn, round: u32) -> f64 {
    let noisy = cell.row.to_string() == "bridge" && round.is_multiple_of(2);
    if noisy { 200.0 } else { 100.0 + f64::from(round % 3) }
}

/// The coordinator once panicked, or stored a sample that no vtax can read.
#[test]
fn reports_whose_figures_overflow_are_joined_to_what_can_be_read() {
    let study = crate::study::tests::plain();
    let slice = crate::measurement::Slice { cpu: f64::MAX, retransmits: u64::MAX, seconds: 1.0, ..Default::default() };
    let most = PacketCounts { packets: u64::MAX, with_payload: Some(u64::MAX), bytes: Some(u64::MAX) };
    let report = EndReport {
        bytes: u64::MAX,
        seconds: 1.0,
        lost: u64::MAX,
        reordered: u64::MAX,
        retransmits: u64::MAX,
        wire: Some(WireCounts { sent: most, received: most }),
        slices: vec![slice],
        ..EndReport::default()
    };
    for kind in [TestKind::Rr, TestKind::Bidirectional] {
        let cell = study.cells.iter().find(|cell| cell.kind() == TestKind::Rr).expect("a cell");
        let mut spec = cell.net().expect("of a network").spec(&study.plan);
        if kind == TestKind::Bidirectional {
            spec.workload = Workload::Stream { message: ByteSize(1), direction: Direction::Both };
        }
        let figures = Figures::join(&spec, true, &report, &report);
        let written = serde_json::to_string(&figures).expect("JSON");
        let read: Figures = serde_json::from_str(&written).expect("readable");
        assert_eq!((read.retransmits, read.packets()), (Some(u64::MAX), Some(u64::MAX)));
    }
}

/// One TCP RR sample whose endpoints have sent these packets in these times.
fn sent(initiator: (f64, Option<PacketCounts>), responder: (f64, Option<PacketCounts>)) -> Figures {
    let study = crate::study::tests::plain();
    let spec = study.cells.iter().find_map(|cell| Some(cell.net()?.spec(&study.plan))).expect("a cell");
    let end = |(seconds, sent): (f64, Option<PacketCounts>)| {
        // An endpoint has received what the other one sent, which must not count twice.
        let wire = sent.map(|sent| WireCounts { sent, received: PacketCounts::datagrams(77, 1, 28) });
        EndReport { seconds, transactions: 10, wire, ..EndReport::default() }
    };
    Figures::join(&spec, true, &end(initiator), &end(responder))
}

#[test]
fn a_packet_is_counted_where_it_is_sent() {
    let packets = |packets| Some(PacketCounts::datagrams(packets, 72, 28));
    let figures = sent((2.0, packets(100)), (2.5, packets(100)));
    assert_eq!((figures.packets(), figures.wire_bytes()), (Some(180), Some(18_000)), "at the rates of both ends");
    let one_end = sent((2.0, packets(100)), (2.0, None));
    assert_eq!((one_end.packets(), one_end.wire_bytes()), (None, None));
    let old_kernel = packets(100).map(|sent| PacketCounts { bytes: None, ..sent });
    let figures = sent((2.0, packets(100)), (2.0, old_kernel));
    assert_eq!((figures.packets(), figures.wire_bytes()), (Some(200), None));
    let never = sent((2.0, packets(100)), (0.0, packets(100)));
    assert_eq!(never.packets(), Some(100));
}

#[test]
fn an_old_sample_has_no_packets() {
    let mut value = serde_json::to_value(sent((2.0, None), (2.0, None))).expect("JSON");
    assert!(value["ends"]["initiator"].get("wire").is_none());
    value["ends"]["initiator"]["wire"] = serde_json::json!({ "sent": { "packets": 7 } });
    let read: Figures = serde_json::from_value(value).expect("readable");
    assert_eq!(read.ends.initiator.wire.map(|wire| (wire.sent.packets, wire.received.bytes)), Some((7, None)));
    assert_eq!(read.packets(), None);
}

#[test]
fn a_run_has_no_outcome_without_a_rule() {
    assert_eq!(stopping_outcome(&run(header(THREE_ROWS), |_, _, _| 100.0)), []);
}

/// Such a run once ended at --max with 131 [121, 141], exit status 0 and no message.
#[test]
fn a_precision_that_was_not_reached_is_an_outcome() {
    let run = run(ruled(3, 6), noisy_bridge);
    let outcome = stopping_outcome(&run);
    let missed: Vec<String> = outcome
        .iter()
        .filter(|(_, decision)| !matches!(decision, Decision::Reached { .. }))
        .map(|(cell, _)| run.header.study.cells[*cell].row.to_string())
        .collect();
    assert_eq!((outcome.len(), missed), (3, vec!["bridge".to_owned()]));
    let (_, Decision::Exhausted { achieved: Some(achieved) }) = outcome[1] else { panic!("{outcome:?}") };
    assert!(achieved > 10.0, "{achieved}");
}

#[test]
fn a_cell_that_was_abandoned_has_not_reached_its_precision() {
    let mut run = run(ruled(3, 6), |_, _, round| f64::from(100 + round % 2));
    run.samples.retain(|sample| sample.cell != 2 || sample.round == 1);
    assert_eq!(stopping_outcome(&run)[2], (2, Decision::Continue));
}

#[test]
fn a_longer_plan_keeps_the_order_of_the_samples() {
    let short = run(header(THREE_ROWS), |_, _, _| 100.0);
    let long = short.extended(20).expect("more rounds");
    assert_eq!((long.plan.samples, long.rounds()), (20, 20));
    assert!((1..=8).all(|round| long.turns(round) == short.header.turns(round)));
    assert_eq!(long.turns(20).len(), 4);
}

#[test]
fn fewer_rounds_than_a_run_has_are_refused() {
    let mut run = run(header(THREE_ROWS), |_, _, _| 100.0);
    let told = |run: &RunReadings, rounds| run.extended(rounds).expect_err("too few").to_string();
    assert_eq!(told(&run, 8), "--samples 8: must be more than 8, the number of rounds of the run test-1");
    run.state = RunState::Stopped;
    insta::assert_snapshot!(told(&run, 5), @"--samples 5: must be more than 8, the planned rounds of the run test-1; or omit --samples to take the missing ones");
}

#[test]
fn a_rule_may_take_more_rounds_until_it_is_met() {
    let missed = run(ruled(3, 6), noisy_bridge);
    let longer = missed.extended(12).expect("more rounds");
    assert_eq!((longer.rounds(), longer.plan.samples), (12, 8));
    assert!(missed.extended(6).is_err());
    let reached = run(ruled(3, 6), |_, _, round| f64::from(100 + round % 2));
    let told = reached.extended(12).expect_err("reached").to_string();
    assert!(told.contains("has reached the precision"), "{told}");
}

#[test]
fn only_the_instrument_that_answers_gets_more_rounds() {
    let both = header(&format!("{THREE_ROWS}{PATH}"));
    assert_eq!((both.study.answering(), both.rounds()), (Instrument::Path, 50));
    let longer = run(both, |_, _, _| 100.0).extended(60).expect("more rounds");
    assert_eq!((longer.rounds_of(Instrument::Path), longer.rounds_of(Instrument::System)), (60, 8));
}

/// `sparc-t7-1` stays as published: a request changes its own plan, and not that of the additional block.
#[test]
fn a_study_that_is_answered_as_the_machine_runs_gets_more_of_these_rounds() {
    let both = header(&format!("answer = \"system\"\n{THREE_ROWS}{PATH}"));
    assert_eq!((both.study.answering(), both.rounds()), (Instrument::System, 50));
    let longer = run(both, |_, _, _| 100.0).extended(60).expect("more rounds");
    assert_eq!((longer.rounds_of(Instrument::Path), longer.rounds_of(Instrument::System)), (50, 60));
}

/// A precision is requested of the cells that answer the study.
#[test]
fn a_stopping_rule_is_of_the_instrument_that_answers() {
    let mut both = header(&format!("answer = \"system\"\n{THREE_ROWS}{PATH}"));
    both.stopping = ruled(3, 6).stopping;
    assert_eq!((both.rounds_of(Instrument::Path), both.rounds_of(Instrument::System)), (50, 6));
    let of_system = |run: &RunReadings| {
        let cells: Vec<usize> = stopping_outcome(run).into_iter().map(|(cell, _)| cell).collect();
        cells.into_iter().all(|cell| run.header.study.cells[cell].instrument == Instrument::System)
    };
    let run = run(both, |_, _, _| 100.0);
    assert!(of_system(&run) && stopping_outcome(&run).len() == 3);
}
